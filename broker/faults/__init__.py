"""Faults of single requests, which a test asks for: errors, delays, lost connections.

They exist in a broker with a settable clock alone. `broker.net.dispatch` asks for the stand-in of a
handler when it first needs the handler; other brokers have none and pay nothing.
"""

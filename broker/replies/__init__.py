"""How a reply arrives: at once, after a wait, or in steps that take turns.

Owns replies that are not ready yet, the turns of long work on the event loop, and the change of a
reply whatever its form. Refuses to know requests, connections and the purpose of the steps.

May be imported by every other part of the broker; it imports `broker.threads` and no other.
"""

"""Sockets: bytes of a connection to requests, and answers back in order.

Owns connections, frames, back-pressure, and the dispatch of a request to its handler. Does not
interpret requests. Imported by `broker.node`, which puts the broker together.
"""

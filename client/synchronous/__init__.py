"""Producer and consumer for programs without an event loop: calls that block.

Owns no protocol: each object has a thread with an event loop, in which the asyncio class works, so
that heartbeats, batches and prefetching go on while the program does something else. Any thread may
call; calls of one consumer belong to one thread at a time. `client.blocking` is something else: the
core on plain sockets, without asyncio and without a thread, for Spark's tasks and share consumers.
May be imported by `tidelog` alone.
"""

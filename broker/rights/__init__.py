"""What each API needs to be allowed, and the answer to a client without the right.

With an authorizer the dispatcher wraps every handler in its *guard*. A guard takes the elements out
of a request that the client may not touch, calls the handler with the rest, and puts the refusals
into the answer. Handlers know no rights, and without an authorizer nothing of this is imported. One
exception: Fetch asks for itself, because its sessions remember partitions of earlier requests.

Every API is in `table.GUARDS` or in `table.FREE`; a test compares them with the APIs served. The
places and codes of refusals are Apache Kafka 4.3.1's.

Owns no state. May be imported by `broker.net` only.
"""

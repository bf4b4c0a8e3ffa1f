"""What both faces of the client share: versions, routing, retries, errors, authentication.

Owns the requests that need more than one step, written once as coroutines. They wait for two
things only, a connection and time, and get both from a `cluster.Pool`: `client.aio` gives an event
loop's, `client.blocking` a thread's. Refuses to know asyncio, sockets, clocks, and the records in a
batch. May be imported by the rest of `client`, by `pipeline`, and by `cli` and `console` for
options and requests without a class of their own.
"""

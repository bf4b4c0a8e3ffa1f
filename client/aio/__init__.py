"""What needs an event loop: sockets, timers, and the background tasks of producer and consumer.

Owns every task that a client starts. Refuses to know how a request is routed or retried, which is
`client.core`. May be imported by the asyncio classes beside it; values of its answers by what shows
them.
"""

"""What needs an event loop: sockets, timers, and the background tasks of producer and consumer.

Owns every task that a client starts. Refuses to know how a request is routed or retried, which is
`client.core`. May be imported by `client.admin`, `client.consumer` and `client.producer` only.
"""

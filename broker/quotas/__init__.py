"""Limits on what clients may use: bytes, time of the event loop, changes of topics, connections.

`book` has the limits and decides which one applies, `rates` the arithmetic, `throttle` measures
clients and delays those above their limits. The book and the arithmetic are pure.

Refuses to know how limits are kept (`broker.security.service` does that, in the metadata journal).
May be imported by `broker.security`, `broker.handlers`, `broker.net`, `broker.operator` and
`broker.node`; the book by the CLI, which moves quotas to Kafka and back.
"""

"""Metrics that clients push to the broker (KIP-714): subscriptions, instances, and the figures.

`subscriptions` says who pushes what, `instances` which request is in order, `otlp` reads a push,
`figures` keeps the newest values for the metrics port, and `service` is all of it. What a client
sends is bounded: bytes, points of a push, figures of all clients, lengths of labels.

Refuses to know requests and HTTP. Imported by handlers, `broker.requests`, `broker.operator` and
`broker.node`.
"""

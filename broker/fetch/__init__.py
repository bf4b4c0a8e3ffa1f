"""Incremental fetches (KIP-227), fetches that wait for bytes, reads that fail.

Owns the state between two fetches of a consumer. Knows no records and no sockets. Imported by the
handlers and `broker.requests`, and for failed reads by `broker.jobs`, `broker.operator` and
`broker.net`.
"""

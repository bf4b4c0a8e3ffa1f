"""Incremental fetches (KIP-227), fetches that wait for bytes, reads that fail.

Owns the state between two fetches of a consumer. Knows no records and no sockets. Imported by the
handlers, `broker.requests`, `broker.group_commit` and `broker.node`, and for failed reads by
`broker.jobs`, `broker.operator` and `broker.net`.
"""

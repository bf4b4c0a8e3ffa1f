"""Bytes to values and back: frames, headers, requests, responses and record batches.

This package owns no socket, clock, loop or file: everything is synchronous and testable from a byte
string. In reading order: `declare` (field kinds, and the codecs made from declarations), `api`
(every message, declared once), `stored` (records that brokers keep, declared the same way),
`registry` (the only entry point), `frames` and `headers` (what surrounds a message), `records`
(what is inside Produce and Fetch). `extensions` decides whether compiled modules are loaded: all or
none.

Refuses to know what a message does. Every other package but `values` and `config` may import it.
"""

"""Who a client is, and what it may do.

Owns principals, credentials, SASL mechanisms, TLS contexts, access control lists and the decision
that they make. Everything here but `tls` is pure: bytes and values in, bytes and verdicts out, the
time as an argument.

Refuses to know sockets (`broker.net` drives a SASL exchange), requests (`broker.handlers` ask
`access` and encode the answer) and files (`storage.directory` keeps the documents).

May be imported by every part of the broker above it, and by the CLI for users of a stopped
directory. Of the broker it imports `clocks`, `errors`, `metrics`, `quotas` and `threads` at most.
"""

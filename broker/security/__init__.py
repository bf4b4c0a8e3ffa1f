"""Who a client is, and what it may do.

Owns principals, credentials, SASL mechanisms, TLS contexts, access control lists and the decision
that they make. Everything here but `tls` is pure: bytes and values in, bytes and verdicts out, the
time as an argument.

Refuses to know sockets (`broker.net` drives a SASL exchange), requests (`broker.handlers` ask
`access` and encode the answer) and files (`storage.directory` keeps the documents).

May be imported by `broker.net`, `broker.handlers`, `broker.requests`, `broker.operator` and
`broker.node`. It imports `broker.clocks` and `config` at most.
"""

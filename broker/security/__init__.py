"""Who a client is, and what it may do.

Owns credentials, SASL mechanisms, TLS contexts, access control lists and the decision
that they make. Mechanisms, rules and decisions are pure: bytes and values in, bytes and verdicts
out, the time as an argument. Four places read or write: `tls` and `secret_files` certificates and
secrets, `oauth.keys` the keys of an identity provider, `audit_file` its log.

Refuses to know sockets (`broker.net` drives a SASL exchange), requests (`broker.handlers` ask
`access` and encode the answer) and the data directory (`storage.directory` keeps the documents).

May be imported by every part of the broker above it, and by the CLI: for users of a stopped
directory, the options of a client, and a first user and certificate at a start. Of the broker it
imports `clocks`, `errors`, `metrics`, `principal`, `quotas` and `threads` at most.
"""

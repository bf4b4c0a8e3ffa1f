"""Shared parts of the handlers: request context, error codes, configuration resources, waiting.

Owns the translation of refusals into Kafka's error codes, the memory of answers, and waiting for a
group commit. Knows no sockets. Imported by `broker.handlers`, `broker.rights`, `broker.net`,
`broker.workers` and `broker.node`.
"""

"""What handlers share: the context of a request, error codes, configuration resources, waiting.

Owns the translation of refusals into Kafka's error codes, the answer that is not there yet, turns
for long work, the memory of answers, and waiting for a group commit.
Refuses to know sockets. Imported by `broker.handlers` and `broker.net`.
"""

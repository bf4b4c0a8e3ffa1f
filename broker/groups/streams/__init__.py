"""Groups of Kafka Streams (KIP-1071): which member runs which task of an application.

Owns the state machine of heartbeats, the configured topology and the assignor. Pure:
`broker.groups.streams_coordinator` adds time and storage; the topics that an application needs are
created by its handler.
"""

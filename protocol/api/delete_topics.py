"""DeleteTopics (key 20): remove topics and their data.

| version | change                                                             |
|---------|--------------------------------------------------------------------|
| 0       | topics by name                                                     |
| 1       | answer carries throttle_time_ms                                    |
| 2       | client, not broker, waits out a throttle                           |
| 3       | TOPIC_DELETION_DISABLED may be answered                            |
| 4       | flexible                                                           |
| 5       | error message; THROTTLING_QUOTA_EXCEEDED may be answered (KIP-599) |
| 6       | topics by name or by id (KIP-516)                                  |
"""

from protocol.declare import primitives as wire


class DeleteTopicState(wire.Struct):
    """A topic by name, or by id with a null name."""

    name: str | None = wire.string(since=6, nullable_since=6, default=None)
    topic_id: bytes = wire.uuid(since=6)


class DeleteTopicsRequest(wire.Message, max_version=6, flexible_since=4):
    """Topics to delete: ``topic_names`` up to v5, ``topics`` from v6."""

    topics: list[DeleteTopicState] = wire.array(since=6)
    topic_names: list[str] = wire.array(wire.STRING, until=5)
    timeout_ms: int = wire.int32()


class DeletableTopicResult(wire.Struct):
    """The outcome for one topic."""

    name: str | None = wire.string(nullable_since=6)
    """Null when an id was given and is unknown."""

    topic_id: bytes = wire.uuid(since=6)
    error_code: int = wire.int16()
    error_message: str | None = wire.string(since=5, nullable_since=5, default=None)


class DeleteTopicsResponse(wire.Message, max_version=6, flexible_since=4):
    """The outcome for every topic."""

    throttle_time_ms: int = wire.int32(since=1)
    responses: list[DeletableTopicResult] = wire.array()

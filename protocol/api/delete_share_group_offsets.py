"""DeleteShareGroupOffsets (key 92, version 0): forget topics of an empty share group (KIP-932)."""

from protocol.declare import primitives as wire


class DeleteShareGroupOffsetsRequestTopic(wire.Struct):
    """One topic."""

    topic_name: str = wire.string()


class DeleteShareGroupOffsetsRequest(wire.Message, max_version=0, flexible_since=0):
    """The topics that one group forgets."""

    group_id: str = wire.string()
    topics: list[DeleteShareGroupOffsetsRequestTopic] = wire.array()


class DeleteShareGroupOffsetsResponseTopic(wire.Struct):
    """The outcome for one topic."""

    topic_name: str = wire.string()
    topic_id: bytes = wire.uuid()
    error_code: int = wire.int16()
    error_message: str | None = wire.string(nullable_since=0, default=None)


class DeleteShareGroupOffsetsResponse(wire.Message, max_version=0, flexible_since=0):
    """The outcome for every topic."""

    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.string(nullable_since=0, default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = wire.array()

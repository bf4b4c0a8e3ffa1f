"""AlterShareGroupOffsets (key 91, version 0): set where an empty share group begins (KIP-932)."""

from protocol.declare import primitives as wire


class AlterShareGroupOffsetsRequestPartition(wire.Struct):
    """One partition, and its new start offset."""

    partition_index: int = wire.int32()
    start_offset: int = wire.int64()


class AlterShareGroupOffsetsRequestTopic(wire.Struct):
    """The partitions of one topic."""

    topic_name: str = wire.string()
    partitions: list[AlterShareGroupOffsetsRequestPartition] = wire.array()


class AlterShareGroupOffsetsRequest(wire.Message, max_version=0, flexible_since=0):
    """The new start offsets of one group."""

    group_id: str = wire.string()
    topics: list[AlterShareGroupOffsetsRequestTopic] = wire.array()


class AlterShareGroupOffsetsResponsePartition(wire.Struct):
    """The outcome for one partition."""

    partition_index: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.string(nullable_since=0, default=None)


class AlterShareGroupOffsetsResponseTopic(wire.Struct):
    """The partitions of one topic."""

    topic_name: str = wire.string()
    topic_id: bytes = wire.uuid()
    partitions: list[AlterShareGroupOffsetsResponsePartition] = wire.array()


class AlterShareGroupOffsetsResponse(wire.Message, max_version=0, flexible_since=0):
    """The outcome for every partition."""

    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.string(nullable_since=0, default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic] = wire.array()

"""OffsetDelete (key 47): delete single offsets of a group (KIP-496).

| version | change                |
|---------|-----------------------|
| 0       | never became flexible |
"""

from protocol.declare import primitives as wire


class OffsetDeleteRequestPartition(wire.Struct):
    """A partition whose offset to delete."""

    partition_index: int = wire.int32()


class OffsetDeleteRequestTopic(wire.Struct):
    """The partitions of one topic."""

    name: str = wire.string()
    partitions: list[OffsetDeleteRequestPartition] = wire.array(OffsetDeleteRequestPartition)


class OffsetDeleteRequest(wire.Message, max_version=0):
    """The offsets to delete from a group."""

    group_id: str = wire.string()
    topics: list[OffsetDeleteRequestTopic] = wire.array(OffsetDeleteRequestTopic)


class OffsetDeleteResponsePartition(wire.Struct):
    """The outcome for one partition."""

    partition_index: int = wire.int32()
    error_code: int = wire.int16()


class OffsetDeleteResponseTopic(wire.Struct):
    """The partitions of one topic."""

    name: str = wire.string()
    partitions: list[OffsetDeleteResponsePartition] = wire.array(OffsetDeleteResponsePartition)


class OffsetDeleteResponse(wire.Message, max_version=0):
    """The outcome for every partition."""

    error_code: int = wire.int16()
    throttle_time_ms: int = wire.int32()
    topics: list[OffsetDeleteResponseTopic] = wire.array(OffsetDeleteResponseTopic)

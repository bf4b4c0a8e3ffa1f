"""OffsetDelete (key 47): delete single offsets of a group (KIP-496).

| version | change                |
|---------|-----------------------|
| 0       | never became flexible |
"""

from protocol.declare import primitives as wire
from protocol.structs import PartitionIndex, TopicErrors


class OffsetDeleteRequestTopic(wire.Struct):
    """The partitions of one topic."""

    name: str = wire.string()
    partitions: list[PartitionIndex] = wire.array()


class OffsetDeleteRequest(wire.Message, max_version=0):
    """The offsets to delete from a group."""

    group_id: str = wire.string()
    topics: list[OffsetDeleteRequestTopic] = wire.array()


class OffsetDeleteResponse(wire.Message, max_version=0):
    """The outcome for every partition."""

    error_code: int = wire.int16()
    throttle_time_ms: int = wire.int32()
    topics: list[TopicErrors] = wire.array()

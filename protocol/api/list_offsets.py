"""ListOffsets (key 2): turn a point in time into an offset.

Negative timestamps name positions: -1 the end, -2 the start, -3 the record with the greatest
timestamp, -4 the start of the local log, -5 the end of tiered storage, -6 the first offset not yet
uploaded. For any other the answer is the first record whose timestamp is not below it, or (-1, -1)
when there is none.

| version | change                                             |
|---------|----------------------------------------------------|
| 0       | answers with a list of segment boundaries          |
| 1       | answers with one offset and its timestamp (KIP-79) |
| 2       | isolation level; answer carries throttle_time_ms   |
| 3       | client, not broker, waits out a throttle           |
| 4       | leader epoch (KIP-320)                             |
| 5       | OFFSET_NOT_AVAILABLE may be answered               |
| 6       | flexible                                           |
| 7       | timestamp -3 (KIP-734)                             |
| 8       | timestamp -4 (KIP-405)                             |
| 9       | timestamp -5 (KIP-1005)                            |
| 10      | timeout for lookups in remote storage (KIP-1075)   |
| 11      | timestamp -6 (KIP-1023)                            |
"""

from protocol.declare import primitives as wire


class ListOffsetsPartition(wire.Struct):
    """The question for one partition."""

    partition_index: int = wire.int32()
    current_leader_epoch: int = wire.int32(since=4, default=-1)
    timestamp: int = wire.int64()
    """Milliseconds since the epoch, or one of the negative names."""

    max_num_offsets: int = wire.int32(until=0, default=1)
    """Most boundaries wanted in the list of v0."""


class ListOffsetsTopic(wire.Struct):
    """The partitions of one topic."""

    name: str = wire.string()
    partitions: list[ListOffsetsPartition] = wire.array()


class ListOffsetsRequest(wire.Message, max_version=11, flexible_since=6):
    """Questions for any number of partitions."""

    replica_id: int = wire.int32()
    """-1 for consumers."""

    isolation_level: int = wire.int8(since=2)
    """1 makes "the end" the last stable offset."""

    topics: list[ListOffsetsTopic] = wire.array()
    timeout_ms: int = wire.int32(since=10)


class ListOffsetsPartitionResponse(wire.Struct):
    """The answer for one partition."""

    partition_index: int = wire.int32()
    error_code: int = wire.int16()
    old_style_offsets: list[int] = wire.array(wire.INT64, until=0)
    """Descending, newest first."""

    timestamp: int = wire.int64(since=1, default=-1)
    """Of the record found. Never negative when an offset was found by time."""

    offset: int = wire.int64(since=1, default=-1)
    leader_epoch: int = wire.int32(since=4, default=-1)


class ListOffsetsTopicResponse(wire.Struct):
    """The partitions of one topic."""

    name: str = wire.string()
    partitions: list[ListOffsetsPartitionResponse] = wire.array()


class ListOffsetsResponse(wire.Message, max_version=11, flexible_since=6):
    """The answers for all requested partitions."""

    throttle_time_ms: int = wire.int32(since=2)
    topics: list[ListOffsetsTopicResponse] = wire.array()

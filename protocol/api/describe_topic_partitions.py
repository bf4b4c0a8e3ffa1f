"""DescribeTopicPartitions (key 75, version 0): topics in detail, page by page (KIP-966)."""

from protocol.declare import primitives as wire


class TopicRequest(wire.Struct):
    """A topic of interest."""

    name: str = wire.string()


class Cursor(wire.Struct):
    """The first topic and partition of a page."""

    topic_name: str = wire.string()
    partition_index: int = wire.int32()


class DescribeTopicPartitionsRequest(wire.Message, max_version=0, flexible_since=0):
    """Topics, and the cursor to continue from."""

    topics: list[TopicRequest] = wire.array()
    """Empty for all."""

    response_partition_limit: int = wire.int32(default=2000)
    """Most partitions in one answer."""

    cursor: Cursor | None = wire.struct(nullable_since=0)


class DescribeTopicPartitionsResponsePartition(wire.Struct):
    """One partition and its replicas."""

    error_code: int = wire.int16()
    partition_index: int = wire.int32()
    leader_id: int = wire.int32()
    leader_epoch: int = wire.int32(default=-1)
    replica_nodes: list[int] = wire.array(wire.INT32)
    isr_nodes: list[int] = wire.array(wire.INT32)
    eligible_leader_replicas: list[int] | None = wire.array(
        wire.INT32, nullable_since=0, default=None
    )
    """May lead although not in sync; null is unknown."""

    last_known_elr: list[int] | None = wire.array(wire.INT32, nullable_since=0, default=None)
    """Were eligible once; null is unknown."""

    offline_replicas: list[int] = wire.array(wire.INT32)


class DescribeTopicPartitionsResponseTopic(wire.Struct):
    """One topic."""

    error_code: int = wire.int16()
    name: str | None = wire.string(nullable_since=0)
    topic_id: bytes = wire.uuid()
    is_internal: bool = wire.boolean()
    partitions: list[DescribeTopicPartitionsResponsePartition] = wire.array()
    topic_authorized_operations: int = wire.operations()


class DescribeTopicPartitionsResponse(wire.Message, max_version=0, flexible_since=0):
    """One page."""

    throttle_time_ms: int = wire.int32()
    topics: list[DescribeTopicPartitionsResponseTopic] = wire.array()
    next_cursor: Cursor | None = wire.struct(nullable_since=0)
    """Null on the last page."""

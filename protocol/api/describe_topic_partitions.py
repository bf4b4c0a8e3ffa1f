"""DescribeTopicPartitions (key 75): topics in detail, page by page (KIP-966).

=======  =======================
version  change
=======  =======================
0        flexible from the start
=======  =======================
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.declare.primitives import (
    INT32,
    Direction,
    array,
    boolean,
    int16,
    int32,
    message,
    string,
    struct,
    uuid,
)


@dataclass(slots=True, kw_only=True)
class TopicRequest:
    """A topic of interest."""

    name: str = string()


@dataclass(slots=True, kw_only=True)
class Cursor:
    """The first topic and partition of a page."""

    topic_name: str = string()
    partition_index: int = int32()


@message(ApiKey.DESCRIBE_TOPIC_PARTITIONS, Direction.REQUEST, max_version=0, flexible_since=0)
@dataclass(slots=True, kw_only=True)
class DescribeTopicPartitionsRequest:
    """Topics, and the cursor to continue from."""

    topics: list[TopicRequest] = array(TopicRequest)
    """Empty for all."""

    response_partition_limit: int = int32(default=2000)
    """Most partitions in one answer."""

    cursor: Cursor | None = struct(Cursor, nullable_since=0)


@dataclass(slots=True, kw_only=True)
class DescribeTopicPartitionsResponsePartition:
    """One partition and its replicas."""

    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1)
    replica_nodes: list[int] = array(INT32)
    isr_nodes: list[int] = array(INT32)
    eligible_leader_replicas: list[int] | None = array(INT32, nullable_since=0, default=None)
    """May lead although not in sync; null is unknown."""

    last_known_elr: list[int] | None = array(INT32, nullable_since=0, default=None)
    """Were eligible once; null is unknown."""

    offline_replicas: list[int] = array(INT32)


@dataclass(slots=True, kw_only=True)
class DescribeTopicPartitionsResponseTopic:
    """One topic."""

    error_code: int = int16()
    name: str | None = string(nullable_since=0)
    topic_id: bytes = uuid()
    is_internal: bool = boolean()
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(
        DescribeTopicPartitionsResponsePartition
    )
    topic_authorized_operations: int = int32(default=-(2**31))
    """Bit field of operation codes; the default means "not requested"."""


@message(ApiKey.DESCRIBE_TOPIC_PARTITIONS, Direction.RESPONSE, max_version=0, flexible_since=0)
@dataclass(slots=True, kw_only=True)
class DescribeTopicPartitionsResponse:
    """One page."""

    throttle_time_ms: int = int32()
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic)
    next_cursor: Cursor | None = struct(Cursor, nullable_since=0)
    """Null on the last page."""

"""DescribeQuorum (key 55): state of the Raft quorum for the cluster's metadata (KIP-595).

Request and response both have structs called ``TopicData`` and ``PartitionIndex``; the response's
are prefixed here.

| version | change                                                           |
|---------|------------------------------------------------------------------|
| 0       | flexible from the start                                          |
| 1       | times at which replicas fetched and caught up (KIP-836)          |
| 2       | error messages, directory ids, listeners of the voters (KIP-853) |
"""

from protocol.declare import primitives as wire
from protocol.structs import PartitionIndex


class TopicData(wire.Struct):
    """The partitions of one topic."""

    topic_name: str = wire.string()
    partitions: list[PartitionIndex] = wire.array()


class DescribeQuorumRequest(wire.Message, max_version=2, flexible_since=0):
    """The quorums of interest."""

    topics: list[TopicData] = wire.array()


class ReplicaState(wire.Struct):
    """How far one replica has come; times are milliseconds, -1 is unknown."""

    replica_id: int = wire.int32()
    replica_directory_id: bytes = wire.uuid(since=2)
    log_end_offset: int = wire.int64()
    last_fetch_timestamp: int = wire.int64(since=1, default=-1)
    last_caught_up_timestamp: int = wire.int64(since=1, default=-1)


class DescribeQuorumResponsePartitionData(wire.Struct):
    """The quorum of one partition."""

    partition_index: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.string(since=2, nullable_since=2)
    leader_id: int = wire.int32()
    leader_epoch: int = wire.int32()
    high_watermark: int = wire.int64()
    current_voters: list[ReplicaState] = wire.array()
    observers: list[ReplicaState] = wire.array()


class DescribeQuorumResponseTopicData(wire.Struct):
    """The partitions of one topic."""

    topic_name: str = wire.string()
    partitions: list[DescribeQuorumResponsePartitionData] = wire.array()


class Listener(wire.Struct):
    """One address of a voter."""

    name: str = wire.string(since=2)
    host: str = wire.string(since=2)
    port: int = wire.uint16(since=2)


class Node(wire.Struct):
    """A voter and its addresses."""

    node_id: int = wire.int32(since=2)
    listeners: list[Listener] = wire.array(since=2)


class DescribeQuorumResponse(wire.Message, max_version=2, flexible_since=0):
    """The requested quorums."""

    error_code: int = wire.int16()
    error_message: str | None = wire.string(since=2, nullable_since=2)
    topics: list[DescribeQuorumResponseTopicData] = wire.array()
    nodes: list[Node] = wire.array(since=2)

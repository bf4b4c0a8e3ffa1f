"""DescribeQuorum (key 55): state of the Raft quorum for the cluster's metadata (KIP-595).

Request and response both have structs called ``TopicData`` and ``PartitionData``; the response's
are prefixed here.

    =======  ================================================================
    version  change
    =======  ================================================================
    0        flexible from the start
    1        times at which replicas fetched and caught up (KIP-836)
    2        error messages, directory ids, listeners of the voters (KIP-853)
    =======  ================================================================
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.declare.primitives import (
    Direction,
    array,
    int16,
    int32,
    int64,
    message,
    string,
    uint16,
    uuid,
)


@dataclass(slots=True, kw_only=True)
class PartitionData:
    """A partition of interest."""

    partition_index: int = int32()


@dataclass(slots=True, kw_only=True)
class TopicData:
    """The partitions of one topic."""

    topic_name: str = string()
    partitions: list[PartitionData] = array(PartitionData)


@message(ApiKey.DESCRIBE_QUORUM, Direction.REQUEST, max_version=2, flexible_since=0)
@dataclass(slots=True, kw_only=True)
class DescribeQuorumRequest:
    """The quorums of interest."""

    topics: list[TopicData] = array(TopicData)


@dataclass(slots=True, kw_only=True)
class ReplicaState:
    """How far one replica has come; times are milliseconds, -1 is unknown."""

    replica_id: int = int32()
    replica_directory_id: bytes = uuid(since=2)
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64(since=1, default=-1)
    last_caught_up_timestamp: int = int64(since=1, default=-1)


@dataclass(slots=True, kw_only=True)
class DescribeQuorumResponsePartitionData:
    """The quorum of one partition."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(since=2, nullable_since=2)
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[ReplicaState] = array(ReplicaState)
    observers: list[ReplicaState] = array(ReplicaState)


@dataclass(slots=True, kw_only=True)
class DescribeQuorumResponseTopicData:
    """The partitions of one topic."""

    topic_name: str = string()
    partitions: list[DescribeQuorumResponsePartitionData] = array(
        DescribeQuorumResponsePartitionData
    )


@dataclass(slots=True, kw_only=True)
class Listener:
    """One address of a voter."""

    name: str = string(since=2)
    host: str = string(since=2)
    port: int = uint16(since=2)


@dataclass(slots=True, kw_only=True)
class Node:
    """A voter and its addresses."""

    node_id: int = int32(since=2)
    listeners: list[Listener] = array(Listener, since=2)


@message(ApiKey.DESCRIBE_QUORUM, Direction.RESPONSE, max_version=2, flexible_since=0)
@dataclass(slots=True, kw_only=True)
class DescribeQuorumResponse:
    """The requested quorums."""

    error_code: int = int16()
    error_message: str | None = string(since=2, nullable_since=2)
    topics: list[DescribeQuorumResponseTopicData] = array(DescribeQuorumResponseTopicData)
    nodes: list[Node] = array(Node, since=2)

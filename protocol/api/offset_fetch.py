"""OffsetFetch (key 9): return how far a group has read.

Up to v7 a request names one group at its top level; from v8 it names any number in ``groups``, and
the answer has the same form.

    =======  ======================================================================
    version  change
    =======  ======================================================================
    0        offsets that Kafka kept in ZooKeeper
    1        offsets kept in the log
    2        null topics mean all; error for the whole answer
    3        answer carries throttle_time_ms
    4        client, not broker, waits out a throttle
    5        leader epoch of the committed offset (KIP-320)
    6        flexible
    7        require_stable waits out open transactions (KIP-447)
    8        several groups at once (KIP-709)
    9        member id and epoch are checked for consumer-protocol groups (KIP-848)
    10       topics by id instead of name
    =======  ======================================================================
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
    int64,
    message,
    string,
    uuid,
)


@dataclass(slots=True, kw_only=True)
class OffsetFetchRequestTopic:
    """The partitions of one topic, up to v7."""

    name: str = string(until=7)
    partition_indexes: list[int] = array(INT32, until=7)


@dataclass(slots=True, kw_only=True)
class OffsetFetchRequestTopics:
    """The partitions of one topic, from v8."""

    name: str = string(since=8, until=9)
    topic_id: bytes = uuid(since=10)
    partition_indexes: list[int] = array(INT32, since=8)


@dataclass(slots=True, kw_only=True)
class OffsetFetchRequestGroup:
    """One group and the topics of interest."""

    group_id: str = string(since=8)
    member_id: str | None = string(since=9, nullable_since=9, default=None)
    member_epoch: int = int32(since=9, default=-1)
    topics: list[OffsetFetchRequestTopics] | None = array(
        OffsetFetchRequestTopics, since=8, nullable_since=8
    )
    """Null for everything the group has committed."""


@message(ApiKey.OFFSET_FETCH, Direction.REQUEST, max_version=10, flexible_since=6)
@dataclass(slots=True, kw_only=True)
class OffsetFetchRequest:
    """The positions wanted."""

    group_id: str = string(until=7)
    topics: list[OffsetFetchRequestTopic] | None = array(
        OffsetFetchRequestTopic, until=7, nullable_since=2
    )
    """Null for everything the group has committed, from v2 on."""

    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, since=8)
    require_stable: bool = boolean(since=7)
    """Answer UNSTABLE_OFFSET_COMMIT while a transaction may still change the position."""


@dataclass(slots=True, kw_only=True)
class OffsetFetchResponsePartition:
    """One position, up to v7."""

    partition_index: int = int32(until=7)
    committed_offset: int = int64(until=7)
    """-1 when none is known."""

    committed_leader_epoch: int = int32(since=5, until=7, default=-1)
    metadata: str | None = string(until=7, nullable_since=0)
    error_code: int = int16(until=7)


@dataclass(slots=True, kw_only=True)
class OffsetFetchResponseTopic:
    """The partitions of one topic, up to v7."""

    name: str = string(until=7)
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition, until=7)


@dataclass(slots=True, kw_only=True)
class OffsetFetchResponsePartitions:
    """One position, from v8."""

    partition_index: int = int32(since=8)
    committed_offset: int = int64(since=8)
    """-1 when none is known."""

    committed_leader_epoch: int = int32(since=8, default=-1)
    metadata: str | None = string(since=8, nullable_since=8)
    error_code: int = int16(since=8)


@dataclass(slots=True, kw_only=True)
class OffsetFetchResponseTopics:
    """The partitions of one topic, from v8."""

    name: str = string(since=8, until=9)
    topic_id: bytes = uuid(since=10)
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions, since=8)


@dataclass(slots=True, kw_only=True)
class OffsetFetchResponseGroup:
    """The positions of one group."""

    group_id: str = string(since=8)
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics, since=8)
    error_code: int = int16(since=8)


@message(ApiKey.OFFSET_FETCH, Direction.RESPONSE, max_version=10, flexible_since=6)
@dataclass(slots=True, kw_only=True)
class OffsetFetchResponse:
    """The requested positions."""

    throttle_time_ms: int = int32(since=3)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, until=7)
    error_code: int = int16(since=2, until=7)
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, since=8)

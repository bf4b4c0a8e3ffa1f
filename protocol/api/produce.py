"""Produce (key 0): append record batches to partitions.

The producer chooses with ``acks`` when the broker answers; with ``acks=0`` there is no answer at
all. Records travel as opaque bytes, magic 0 and 1 up to v2, magic 2 from v3.

    =======  =========================================================
    version  change
    =======  =========================================================
    0        topic, partition, base offset
    1        answer carries throttle_time_ms
    2        records may be magic 1; answer carries log_append_time_ms
    3        records must be magic 2; transactional_id
    4        KAFKA_STORAGE_ERROR may be answered
    5        answer carries log_start_offset
    6        client, not broker, waits out a throttle
    7        Zstandard is allowed
    8        answer names the records that failed a batch (KIP-467)
    9        flexible
    10       answer may name the current leader (KIP-951)
    11       TRANSACTION_ABORTABLE may be answered (KIP-890)
    12       producing adds the partition to the transaction (KIP-890)
    13       topics by id instead of name (KIP-516)
    =======  =========================================================
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.declare.primitives import (
    Buffer,
    Direction,
    array,
    int16,
    int32,
    int64,
    message,
    records,
    string,
    struct,
    uuid,
)


@dataclass(slots=True, kw_only=True)
class PartitionProduceData:
    """The batches meant for one partition."""

    index: int = int32()
    records: Buffer | None = records(nullable_since=0)
    """Null or empty is legal on the wire and an error to the broker."""


@dataclass(slots=True, kw_only=True)
class TopicProduceData:
    """The partitions of one topic."""

    name: str = string(until=12)
    topic_id: bytes = uuid(since=13)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


@message(ApiKey.PRODUCE, Direction.REQUEST, max_version=13, flexible_since=9)
@dataclass(slots=True, kw_only=True)
class ProduceRequest:
    """Batches for any number of partitions, and when to answer."""

    transactional_id: str | None = string(since=3, nullable_since=3, default=None)
    acks: int = int16()
    """-1 waits for durability as configured, 1 for the leader's append, 0 wants no answer."""

    timeout_ms: int = int32()
    """How long the broker may wait for the requested acknowledgement."""

    topic_data: list[TopicProduceData] = array(TopicProduceData)


@dataclass(slots=True, kw_only=True)
class BatchIndexAndErrorMessage:
    """One record that made its whole batch fail."""

    batch_index: int = int32(since=8)
    """Index of the record inside the batch, from 0."""

    batch_index_error_message: str | None = string(since=8, nullable_since=8, default=None)


@dataclass(slots=True, kw_only=True)
class LeaderIdAndEpoch:
    """Where the partition lives now; -1 is unknown."""

    leader_id: int = int32(since=10, default=-1)
    leader_epoch: int = int32(since=10, default=-1)


@dataclass(slots=True, kw_only=True)
class PartitionProduceResponse:
    """The outcome for the batches of one partition."""

    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    """Offset given to the first record; -1 on error."""

    log_append_time_ms: int = int64(since=2, default=-1)
    """When the log stamped the records, or -1 if they keep the producer's own timestamps."""

    log_start_offset: int = int64(since=5, default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, since=8)
    error_message: str | None = string(since=8, nullable_since=8, default=None)
    """The common cause of ``record_errors``, as text."""

    current_leader: LeaderIdAndEpoch | None = struct(LeaderIdAndEpoch, since=10, tag=0)


@dataclass(slots=True, kw_only=True)
class TopicProduceResponse:
    """The partitions of one topic."""

    name: str = string(until=12)
    topic_id: bytes = uuid(since=13)
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


@dataclass(slots=True, kw_only=True)
class NodeEndpoint:
    """Address of a leader named by ``current_leader``."""

    node_id: int = int32(since=10)
    host: str = string(since=10)
    port: int = int32(since=10)
    rack: str | None = string(since=10, nullable_since=10, default=None)


@message(ApiKey.PRODUCE, Direction.RESPONSE, max_version=13, flexible_since=9)
@dataclass(slots=True, kw_only=True)
class ProduceResponse:
    """The outcome for every requested partition."""

    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32(since=1)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, since=10, tag=0)

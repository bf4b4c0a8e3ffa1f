"""Produce (key 0): append record batches to partitions.

The producer chooses with ``acks`` when the broker answers; with ``acks=0`` there is no answer at
all. Records travel as opaque bytes, magic 0 and 1 up to v2, magic 2 from v3.

| version | change                                                    |
|---------|-----------------------------------------------------------|
| 0       | topic, partition, base offset                             |
| 1       | answer carries throttle_time_ms                           |
| 2       | records may be magic 1; answer carries log_append_time_ms |
| 3       | records must be magic 2; transactional_id                 |
| 4       | KAFKA_STORAGE_ERROR may be answered                       |
| 5       | answer carries log_start_offset                           |
| 6       | client, not broker, waits out a throttle                  |
| 7       | Zstandard is allowed                                      |
| 8       | answer names the records that failed a batch (KIP-467)    |
| 9       | flexible                                                  |
| 10      | answer may name the current leader (KIP-951)              |
| 11      | TRANSACTION_ABORTABLE may be answered (KIP-890)           |
| 12      | producing adds the partition to the transaction (KIP-890) |
| 13      | topics by id instead of name (KIP-516)                    |
"""

from protocol.declare import primitives as wire
from protocol.structs import LeaderIdAndEpoch, NodeEndpoint


class PartitionProduceData(wire.Struct):
    """The batches meant for one partition."""

    index: int = wire.int32()
    records: wire.Buffer | None = wire.records(nullable_since=0)
    """Null or empty is legal on the wire and an error to the broker."""


class TopicProduceData(wire.Struct):
    """The partitions of one topic."""

    name: str = wire.string(until=12)
    topic_id: bytes = wire.uuid(since=13)
    partition_data: list[PartitionProduceData] = wire.array()


class ProduceRequest(wire.Message, max_version=13, flexible_since=9):
    """Batches for any number of partitions, and when to answer."""

    transactional_id: str | None = wire.string(since=3, nullable_since=3, default=None)
    acks: int = wire.int16()
    """-1 waits for durability as configured, 1 for the leader's append, 0 wants no answer."""

    timeout_ms: int = wire.int32()
    """How long the broker may wait for the requested acknowledgement."""

    topic_data: list[TopicProduceData] = wire.array()


class BatchIndexAndErrorMessage(wire.Struct):
    """One record that made its whole batch fail."""

    batch_index: int = wire.int32(since=8)
    """Index of the record inside the batch, from 0."""

    batch_index_error_message: str | None = wire.string(since=8, nullable_since=8, default=None)


class PartitionProduceResponse(wire.Struct):
    """The outcome for the batches of one partition."""

    index: int = wire.int32()
    error_code: int = wire.int16()
    base_offset: int = wire.int64()
    """Offset given to the first record; -1 on error."""

    log_append_time_ms: int = wire.int64(since=2, default=-1)
    """When the log stamped the records, or -1 if they keep the producer's own timestamps."""

    log_start_offset: int = wire.int64(since=5, default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = wire.array(since=8)
    error_message: str | None = wire.string(since=8, nullable_since=8, default=None)
    """The common cause of ``record_errors``, as text."""

    current_leader: LeaderIdAndEpoch | None = wire.struct(since=10, tag=0)


class TopicProduceResponse(wire.Struct):
    """The partitions of one topic."""

    name: str = wire.string(until=12)
    topic_id: bytes = wire.uuid(since=13)
    partition_responses: list[PartitionProduceResponse] = wire.array()


class ProduceResponse(wire.Message, max_version=13, flexible_since=9):
    """The outcome for every requested partition."""

    responses: list[TopicProduceResponse] = wire.array()
    throttle_time_ms: int = wire.int32(since=1)
    node_endpoints: list[NodeEndpoint] = wire.array(since=10, tag=0)

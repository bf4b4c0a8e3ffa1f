"""ShareFetch (key 78): acquire records for a member of a share group, and acknowledge earlier ones.

Every request belongs to a share session: one for each member of a group on a connection, whose
epoch grows by one with each ShareFetch or ShareAcknowledge.

| version | change                                                          |
|---------|-----------------------------------------------------------------|
| 0       | of Kafka 4.0, never served here                                 |
| 1       | limits by records and batches in place of bytes per partition   |
| 2       | how strictly max_records counts (KIP-1206), renewal (KIP-1222)  |
"""

from protocol.declare import primitives as wire
from protocol.structs import AcknowledgementBatch, LeaderIdAndEpoch, NodeEndpoint, TopicPartitions


class FetchPartition(wire.Struct):
    """One partition to read, or whose records are acknowledged."""

    partition_index: int = wire.int32()
    partition_max_bytes: int = wire.int32(until=0)
    acknowledgement_batches: list[AcknowledgementBatch] = wire.array()


class FetchTopic(wire.Struct):
    """The partitions of one topic."""

    topic_id: bytes = wire.uuid()
    partitions: list[FetchPartition] = wire.array()


class ShareFetchRequest(wire.Message, max_version=2, flexible_since=0):
    """One poll of a member."""

    group_id: str | None = wire.string(nullable_since=0, default=None)
    member_id: str | None = wire.string(nullable_since=0, default=None)
    share_session_epoch: int = wire.int32()
    """0 begins a session, -1 ends it, more continues it."""

    max_wait_ms: int = wire.int32()
    min_bytes: int = wire.int32()
    max_bytes: int = wire.int32(default=2**31 - 1)
    max_records: int = wire.int32(since=1)
    """How many records to acquire; the last batch may exceed it, unless the mode is 1."""

    batch_size: int = wire.int32(since=1)
    """The most records of one acquired range."""

    share_acquire_mode: int = wire.int8(since=2)
    """0: whole batches; 1: never more than max_records."""

    is_renew_ack: bool = wire.boolean(since=2)
    """Whether renewals are among the acknowledgements; then nothing is fetched."""

    topics: list[FetchTopic] = wire.array()
    forgotten_topics_data: list[TopicPartitions] = wire.array()


class AcquiredRecords(wire.Struct):
    """A range of offsets, both included, that the member holds now."""

    first_offset: int = wire.int64()
    last_offset: int = wire.int64()
    delivery_count: int = wire.int16()


class PartitionData(wire.Struct):
    """The records of one partition, and the outcome of its acknowledgements."""

    partition_index: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.string(nullable_since=0, default=None)
    acknowledge_error_code: int = wire.int16()
    acknowledge_error_message: str | None = wire.string(nullable_since=0, default=None)
    current_leader: LeaderIdAndEpoch = wire.struct()
    records: wire.Buffer = wire.records(default=b"")
    """Whole batches that contain the acquired records, and may contain others."""

    acquired_records: list[AcquiredRecords] = wire.array()


class ShareFetchableTopicResponse(wire.Struct):
    """The partitions of one topic."""

    topic_id: bytes = wire.uuid()
    partitions: list[PartitionData] = wire.array()


class ShareFetchResponse(wire.Message, max_version=2, flexible_since=0):
    """Records that the member has acquired."""

    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.string(nullable_since=0, default=None)
    acquisition_lock_timeout_ms: int = wire.int32(since=1)
    """How long the records are the member's."""

    responses: list[ShareFetchableTopicResponse] = wire.array()
    node_endpoints: list[NodeEndpoint] = wire.array()

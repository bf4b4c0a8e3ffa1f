"""Fetch (key 1): read record batches, waiting for them if need be.

A fetch may belong to a session (KIP-227), in which client and broker exchange only what has
changed. Without one, the answer contains every requested partition, empty ones too. Offsets are
logical; sizes are bytes of records.

| version | change                                                               |
|---------|----------------------------------------------------------------------|
| 0       | one size limit per partition                                         |
| 1       | answer carries throttle_time_ms                                      |
| 2       | magic 1 is understood                                                |
| 3       | max_bytes for the whole answer; order of partitions matters (KIP-74) |
| 4       | magic 2, isolation level, aborted transactions (KIP-98)              |
| 5       | log start offset                                                     |
| 6       | KAFKA_STORAGE_ERROR may be answered                                  |
| 7       | fetch sessions (KIP-227)                                             |
| 8       | client, not broker, waits out a throttle                             |
| 9       | leader epoch fences stale readers (KIP-320)                          |
| 10      | Zstandard is allowed (KIP-110)                                       |
| 11      | rack of the consumer, preferred replica (KIP-392)                    |
| 12      | flexible; truncation is found by last fetched epoch (KIP-595)        |
| 13      | topics by id instead of name (KIP-516)                               |
| 14      | OFFSET_MOVED_TO_TIERED_STORAGE may be answered (KIP-405)             |
| 15      | replica state replaces replica_id (KIP-903)                          |
| 16      | answer may name the current leader (KIP-951)                         |
| 17      | directory id of a follower (KIP-853)                                 |
| 18      | high watermark known to a follower (KIP-1166)                        |
"""

from protocol.declare import primitives as wire
from protocol.structs import LeaderIdAndEpoch, NodeEndpoint


class ReplicaState(wire.Struct):
    """Who fetches, when it is a broker."""

    replica_id: int = wire.int32(since=15, default=-1)
    replica_epoch: int = wire.int64(since=15, default=-1)


class FetchPartition(wire.Struct):
    """From where, and how much, of one partition."""

    partition: int = wire.int32()
    current_leader_epoch: int = wire.int32(since=9, default=-1)
    """Epoch the reader believes in; -1 skips the check."""

    fetch_offset: int = wire.int64()
    last_fetched_epoch: int = wire.int32(since=12, default=-1)
    log_start_offset: int = wire.int64(since=5, default=-1)
    """A follower's own log start; consumers send -1."""

    partition_max_bytes: int = wire.int32()
    """A first batch above this is sent nevertheless, so that readers always advance."""

    replica_directory_id: bytes = wire.uuid(since=17, tag=0)
    high_watermark: int = wire.int64(since=18, tag=1, default=2**63 - 1)
    """The state of a follower; the default means "not supported"."""


class FetchTopic(wire.Struct):
    """The partitions of one topic."""

    topic: str = wire.string(until=12)
    topic_id: bytes = wire.uuid(since=13)
    partitions: list[FetchPartition] = wire.array()


class ForgottenTopic(wire.Struct):
    """Partitions to drop from the session."""

    topic: str = wire.string(since=7, until=12)
    topic_id: bytes = wire.uuid(since=13)
    partitions: list[int] = wire.array(wire.INT32, since=7)


class FetchRequest(wire.Message, max_version=18, flexible_since=12):
    """One poll: the partitions, the size limits, and how long to wait."""

    cluster_id: str | None = wire.string(since=12, nullable_since=12, tag=0, default=None)
    replica_id: int = wire.int32(until=14, default=-1)
    """-1 for consumers, -2 for a debugging reader."""

    replica_state: ReplicaState | None = wire.struct(since=15, tag=1)
    max_wait_ms: int = wire.int32()
    """How long the broker may hold the answer while it has less than ``min_bytes``."""

    min_bytes: int = wire.int32()
    max_bytes: int = wire.int32(since=3, default=2**31 - 1)
    isolation_level: int = wire.int8(since=4)
    """0 reads up to the high watermark, 1 up to the last stable offset."""

    session_id: int = wire.int32(since=7)
    session_epoch: int = wire.int32(since=7, default=-1)
    """-1 fetches without a session, 0 requests a new one, more continues one."""

    topics: list[FetchTopic] = wire.array()
    forgotten_topics_data: list[ForgottenTopic] = wire.array(since=7)
    rack_id: str = wire.string(since=11)


class EpochEndOffset(wire.Struct):
    """Where the logs of reader and leader part."""

    epoch: int = wire.int32(since=12, default=-1)
    end_offset: int = wire.int64(since=12, default=-1)


class SnapshotId(wire.Struct):
    """The snapshot a lagging Raft follower has to load first."""

    end_offset: int = wire.int64(default=-1)
    epoch: int = wire.int32(default=-1)


class AbortedTransaction(wire.Struct):
    """Records of this producer, from this offset to its abort marker, do not count."""

    producer_id: int = wire.int64(since=4)
    first_offset: int = wire.int64(since=4)


class PartitionData(wire.Struct):
    """The records and offsets of one partition."""

    partition_index: int = wire.int32()
    error_code: int = wire.int16()
    high_watermark: int = wire.int64()
    """Exclusive end of what consumers may read; -1 on error."""

    last_stable_offset: int = wire.int64(since=4, default=-1)
    """Exclusive end for isolation level 1: below it every transaction is decided."""

    log_start_offset: int = wire.int64(since=5, default=-1)
    diverging_epoch: EpochEndOffset | None = wire.struct(since=12, tag=0)
    current_leader: LeaderIdAndEpoch | None = wire.struct(since=12, tag=1)
    snapshot_id: SnapshotId | None = wire.struct(since=12, tag=2)
    aborted_transactions: list[AbortedTransaction] | None = wire.array(since=4, nullable_since=4)
    """Null for isolation level 0."""

    preferred_read_replica: int = wire.int32(since=11, default=-1)
    """A closer replica to read from, or -1."""

    records: wire.Buffer | None = wire.records(nullable_since=0)
    """Whole batches, the first of which may begin below the requested offset. Never send null:
    librdkafka reports it as a protocol error; send empty bytes instead."""


class FetchableTopicResponse(wire.Struct):
    """The partitions of one topic."""

    topic: str = wire.string(until=12)
    topic_id: bytes = wire.uuid(since=13)
    partitions: list[PartitionData] = wire.array()


class FetchResponse(wire.Message, max_version=18, flexible_since=12):
    """Records of the requested partitions, or of those that changed in a session."""

    throttle_time_ms: int = wire.int32(since=1)
    error_code: int = wire.int16(since=7)
    """Concerns the session or the whole request, not a partition."""

    session_id: int = wire.int32(since=7)
    """The session to continue with; 0 means there is none."""

    responses: list[FetchableTopicResponse] = wire.array()
    node_endpoints: list[NodeEndpoint] = wire.array(since=16, tag=0)

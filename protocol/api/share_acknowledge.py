"""ShareAcknowledge (key 79): accept, release, reject or renew records without fetching others.

| version | change                          |
|---------|---------------------------------|
| 0       | of Kafka 4.0, never served here |
| 1       | the same fields                 |
| 2       | renewal (KIP-1222)              |
"""

from protocol.declare import primitives as wire
from protocol.structs import AcknowledgementBatch, LeaderIdAndEpoch, NodeEndpoint


class AcknowledgePartition(wire.Struct):
    """The acknowledgements of one partition."""

    partition_index: int = wire.int32()
    acknowledgement_batches: list[AcknowledgementBatch] = wire.array()


class AcknowledgeTopic(wire.Struct):
    """The partitions of one topic."""

    topic_id: bytes = wire.uuid()
    partitions: list[AcknowledgePartition] = wire.array()


class ShareAcknowledgeRequest(wire.Message, max_version=2, flexible_since=0):
    """Acknowledgements of a member, in its share session."""

    group_id: str | None = wire.string(nullable_since=0, default=None)
    member_id: str | None = wire.string(nullable_since=0, default=None)
    share_session_epoch: int = wire.int32()
    """-1 ends the session, more continues it."""

    is_renew_ack: bool = wire.boolean(since=2)
    topics: list[AcknowledgeTopic] = wire.array()


class PartitionData(wire.Struct):
    """The outcome for one partition."""

    partition_index: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.string(nullable_since=0, default=None)
    current_leader: LeaderIdAndEpoch = wire.struct()


class ShareAcknowledgeTopicResponse(wire.Struct):
    """The partitions of one topic."""

    topic_id: bytes = wire.uuid()
    partitions: list[PartitionData] = wire.array()


class ShareAcknowledgeResponse(wire.Message, max_version=2, flexible_since=0):
    """The outcome for every partition."""

    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.string(nullable_since=0, default=None)
    acquisition_lock_timeout_ms: int = wire.int32(since=2)
    responses: list[ShareAcknowledgeTopicResponse] = wire.array()
    node_endpoints: list[NodeEndpoint] = wire.array()

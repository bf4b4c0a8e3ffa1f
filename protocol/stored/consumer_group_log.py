"""`__consumer_offsets`, second half: groups of the consumer protocol (KIP-848).

The key's version is the kind of record; every value has version 0, which is flexible.

| key | kind               | about         | value                    |
|-----|--------------------|---------------|--------------------------|
| 3   | group epoch        | group         | `GroupEpochValue`        |
| 5   | member metadata    | group, member | `MemberMetadataValue`    |
| 6   | assignment epoch   | group         | `GroupEpochValue`        |
| 7   | target assignment  | group, member | `TargetAssignmentValue`  |
| 8   | current assignment | group, member | `CurrentAssignmentValue` |

Source: Kafka ``ConsumerGroup*Key/Value.json``.
"""

from protocol.declare import primitives as wire
from protocol.structs import ProtocolMetadata


class GroupEpochValue(wire.Stored, max_version=0, flexible_since=0):
    """The epoch of a group, or of its target assignment."""

    epoch: int = wire.int32()


class ClassicMemberMetadata(wire.Struct):
    """The request of a classic-protocol member that joined a consumer group."""

    session_timeout_ms: int = wire.int32()
    supported_protocols: list[ProtocolMetadata] = wire.array()


class MemberMetadataValue(wire.Stored, max_version=0, flexible_since=0):
    """A member's subscription."""

    instance_id: str | None = wire.string(nullable_since=0, default=None)
    rack_id: str | None = wire.string(nullable_since=0, default=None)
    client_id: str = wire.string()
    client_host: str = wire.string()
    subscribed_topic_names: list[str] = wire.array(wire.STRING)
    subscribed_topic_regex: str | None = wire.string(nullable_since=0, default=None)
    rebalance_timeout_ms: int = wire.int32(default=-1)
    server_assignor: str | None = wire.string(nullable_since=0, default=None)
    classic_member_metadata: ClassicMemberMetadata | None = wire.struct(nullable_since=0, tag=0)


class TopicPartitions(wire.Struct):
    """Partitions of one topic.

    `assignment_epochs` are the epochs in which the partitions were assigned, in their order; only
    current assignments have them, and only since Kafka 4.3 (KIP-1251).
    """

    topic_id: bytes = wire.uuid()
    partitions: list[int] = wire.array(wire.INT32)
    assignment_epochs: list[int] | None = wire.array(
        wire.INT32, nullable_since=0, tag=0, default=None
    )


class TargetAssignmentValue(wire.Stored, max_version=0, flexible_since=0):
    """The partitions that a member should get."""

    topic_partitions: list[TopicPartitions] = wire.array()


class CurrentAssignmentValue(wire.Stored, max_version=0, flexible_since=0):
    """The partitions that a member has, and those that it must give up first."""

    member_epoch: int = wire.int32()
    previous_member_epoch: int = wire.int32()
    state: int = wire.int8()
    assigned_partitions: list[TopicPartitions] = wire.array()
    partitions_pending_revocation: list[TopicPartitions] = wire.array()

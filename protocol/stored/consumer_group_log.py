"""`__consumer_offsets`, second half: groups of the consumer protocol (KIP-848).

The key's version is the kind of record; every value has version 0, which is flexible.

    ====  ====================  =============  ==================================================
    key   kind                  about          value
    ====  ====================  =============  ==================================================
    3     group epoch           group          `GroupEpochValue`
    5     member metadata       group, member  `MemberMetadataValue`
    6     assignment epoch      group          `GroupEpochValue`
    7     target assignment     group, member  `TargetAssignmentValue`
    8     current assignment    group, member  `CurrentAssignmentValue`
    ====  ====================  =============  ==================================================

Source: Kafka ``ConsumerGroup*Key/Value.json``.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.declare.primitives import (
    INT32,
    STRING,
    array,
    binary,
    int8,
    int32,
    stored,
    string,
    struct,
    uuid,
)


@stored(max_version=8)
@dataclass(slots=True, kw_only=True)
class GroupKey:
    """The key of a record about a group; its version is the kind."""

    group_id: str = string()


@stored(max_version=8)
@dataclass(slots=True, kw_only=True)
class MemberKey:
    """The key of a record about one member; its version is the kind."""

    group_id: str = string()
    member_id: str = string()


@stored(max_version=0, flexible_since=0)
@dataclass(slots=True, kw_only=True)
class GroupEpochValue:
    """The epoch of a group, or of its target assignment."""

    epoch: int = int32()


@dataclass(slots=True, kw_only=True)
class ClassicProtocol:
    """One assignor of a member of the classic protocol."""

    name: str = string()
    metadata: bytes = binary()


@dataclass(slots=True, kw_only=True)
class ClassicMemberMetadata:
    """The request of a classic-protocol member that joined a consumer group."""

    session_timeout_ms: int = int32()
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol)


@stored(max_version=0, flexible_since=0)
@dataclass(slots=True, kw_only=True)
class MemberMetadataValue:
    """A member's subscription."""

    instance_id: str | None = string(nullable_since=0, default=None)
    rack_id: str | None = string(nullable_since=0, default=None)
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(STRING)
    subscribed_topic_regex: str | None = string(nullable_since=0, default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(nullable_since=0, default=None)
    classic_member_metadata: ClassicMemberMetadata | None = struct(
        ClassicMemberMetadata, nullable_since=0, tag=0
    )


@dataclass(slots=True, kw_only=True)
class TopicPartitions:
    """Partitions of one topic.

    `assignment_epochs` are the epochs in which the partitions were assigned, in their order; only
    current assignments have them, and only since Kafka 4.3 (KIP-1251).
    """

    topic_id: bytes = uuid()
    partitions: list[int] = array(INT32)
    assignment_epochs: list[int] | None = array(INT32, nullable_since=0, tag=0, default=None)


@stored(max_version=0, flexible_since=0)
@dataclass(slots=True, kw_only=True)
class TargetAssignmentValue:
    """The partitions that a member should get."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


@stored(max_version=0, flexible_since=0)
@dataclass(slots=True, kw_only=True)
class CurrentAssignmentValue:
    """The partitions that a member has, and those that it must give up first."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)
    partitions_pending_revocation: list[TopicPartitions] = array(TopicPartitions)

"""Records of share groups (KIP-932): of `__consumer_offsets`, and of `__share_group_state`.

The key's version is the kind of record; every value has version 0, which is flexible.

| topic                 | key | kind               | about           | value                       |
|-----------------------|-----|--------------------|-----------------|-----------------------------|
| `__consumer_offsets`  | 10  | member metadata    | group, member   | `ShareMemberMetadataValue`  |
|                       | 11  | group epoch        | group           | `ShareGroupMetadataValue`   |
|                       | 12  | assignment epoch   | group           | `AssignmentEpochValue`      |
|                       | 13  | target assignment  | group, member   | `ShareTargetValue`          |
|                       | 14  | current assignment | group, member   | `ShareCurrentValue`         |
|                       | 15  | stored partitions  | group           | `StatePartitionsValue`      |
| `__share_group_state` | 0   | snapshot           | share partition | `ShareSnapshotValue`        |
|                       | 1   | update             | share partition | `ShareUpdateValue`          |

Source: Kafka ``ShareGroup*Key/Value.json``, ``ShareSnapshot*.json``, ``ShareUpdate*.json``.
"""

from protocol.declare import primitives as wire
from protocol.structs import NamedPartitions, StoredBatch, TopicPartitions


class ShareMemberMetadataValue(wire.Stored, max_version=0, flexible_since=0):
    """A member's subscription."""

    rack_id: str | None = wire.string(nullable_since=0, default=None)
    client_id: str = wire.string()
    client_host: str = wire.string()
    subscribed_topic_names: list[str] = wire.array(wire.STRING)


class ShareGroupMetadataValue(wire.Stored, max_version=0, flexible_since=0):
    """The epoch of a group."""

    epoch: int = wire.int32()
    metadata_hash: int = wire.int64()
    """Of the topics that it reads; 0 is unknown, so that a reader computes a new target."""


class ShareTargetValue(wire.Stored, max_version=0, flexible_since=0):
    """The partitions that a member should read."""

    topic_partitions: list[TopicPartitions] = wire.array()


class ShareCurrentValue(wire.Stored, max_version=0, flexible_since=0):
    """The partitions that a member reads."""

    member_epoch: int = wire.int32()
    previous_member_epoch: int = wire.int32()
    state: int = wire.int8()
    assigned_partitions: list[TopicPartitions] = wire.array()


class DeletingTopic(wire.Struct):
    """A topic whose states are being deleted."""

    topic_id: bytes = wire.uuid()
    topic_name: str = wire.string()


class StatePartitionsValue(wire.Stored, max_version=0, flexible_since=0):
    """Which partitions of a group have a state in `__share_group_state`."""

    initializing_topics: list[NamedPartitions] = wire.array()
    initialized_topics: list[NamedPartitions] = wire.array()
    deleting_topics: list[DeletingTopic] = wire.array()


class SharePartitionKey(wire.Stored, max_version=1):
    """The key of a record of `__share_group_state`; its version is the kind."""

    group_id: str = wire.string()
    topic_id: bytes = wire.uuid()
    partition: int = wire.int32()


class ShareSnapshotValue(wire.Stored, max_version=0, flexible_since=0):
    """The whole state of a share partition."""

    snapshot_epoch: int = wire.int32()
    state_epoch: int = wire.int32()
    leader_epoch: int = wire.int32()
    start_offset: int = wire.int64()
    """The first offset that is not done; -1 until the first fetch decides."""

    create_timestamp: int = wire.int64()
    write_timestamp: int = wire.int64()
    state_batches: list[StoredBatch] = wire.array()
    delivery_complete_count: int = wire.int32(tag=0, default=-1)
    """Records at or above start_offset that are done; -1 is unknown."""


class ShareUpdateValue(wire.Stored, max_version=0, flexible_since=0):
    """What changed since the snapshot of the same epoch, or an earlier update."""

    snapshot_epoch: int = wire.int32()
    leader_epoch: int = wire.int32()
    start_offset: int = wire.int64()
    """-1 is unchanged."""

    state_batches: list[StoredBatch] = wire.array()
    delivery_complete_count: int = wire.int32(tag=0, default=-1)

"""Records of groups of Kafka Streams (KIP-1071) in `__consumer_offsets`.

The key's version is the kind of record; every value has version 0, which is flexible.

| key | kind               | about         | value                  |
|-----|--------------------|---------------|------------------------|
| 17  | group epoch        | group         | `GroupMetadataValue`   |
| 19  | member metadata    | group, member | `MemberMetadataValue`  |
| 20  | assignment epoch   | group         | `AssignmentEpochValue` |
| 21  | target assignment  | group, member | `TargetValue`          |
| 22  | current assignment | group, member | `CurrentValue`         |
| 23  | topology           | group         | `TopologyValue`        |

Source: Kafka ``StreamsGroup*Key/Value.json``.
"""

from protocol.declare import primitives as wire
from protocol.streams import Endpoint, KeyValue, Subtopology


class GroupMetadataValue(wire.Stored, max_version=0, flexible_since=0):
    """The epoch of a group and what led to it."""

    epoch: int = wire.int32()
    metadata_hash: int = wire.int64()
    """Of the topics of the topology; each broker has its own way to compute it."""

    validated_topology_epoch: int = wire.int32(tag=0, default=-1)
    """The epoch of the topology whose topics are as they should be; -1 is none."""

    last_assignment_configs: list[KeyValue] | None = wire.array(
        nullable_since=0, tag=1, default=None
    )


class MemberMetadataValue(wire.Stored, max_version=0, flexible_since=0):
    """A member's description of itself."""

    instance_id: str | None = wire.string(nullable_since=0, default=None)
    rack_id: str | None = wire.string(nullable_since=0, default=None)
    client_id: str = wire.string()
    client_host: str = wire.string()
    rebalance_timeout_ms: int = wire.int32(default=-1)
    topology_epoch: int = wire.int32()
    process_id: str = wire.string()
    user_endpoint: Endpoint | None = wire.struct(nullable_since=0)
    client_tags: list[KeyValue] = wire.array()


class StoredTaskIds(wire.Struct):
    """Tasks of one subtopology.

    `assignment_epochs` are the epochs in which they were assigned, in their order; only current
    active tasks have them.
    """

    subtopology_id: str = wire.string()
    partitions: list[int] = wire.array(wire.INT32)
    assignment_epochs: list[int] | None = wire.array(
        wire.INT32, nullable_since=0, tag=0, default=None
    )


class TargetValue(wire.Stored, max_version=0, flexible_since=0):
    """The tasks that a member should get."""

    active_tasks: list[StoredTaskIds] = wire.array()
    standby_tasks: list[StoredTaskIds] = wire.array()
    warmup_tasks: list[StoredTaskIds] = wire.array()


class CurrentValue(wire.Stored, max_version=0, flexible_since=0):
    """The tasks that a member has, and those that it must give up first."""

    member_epoch: int = wire.int32()
    previous_member_epoch: int = wire.int32()
    state: int = wire.int8()
    active_tasks: list[StoredTaskIds] = wire.array()
    standby_tasks: list[StoredTaskIds] = wire.array()
    warmup_tasks: list[StoredTaskIds] = wire.array()
    active_tasks_pending_revocation: list[StoredTaskIds] = wire.array()
    standby_tasks_pending_revocation: list[StoredTaskIds] = wire.array()
    warmup_tasks_pending_revocation: list[StoredTaskIds] = wire.array()


class TopologyValue(wire.Stored, max_version=0, flexible_since=0):
    """What the application reads, stores and writes."""

    epoch: int = wire.int32()
    subtopologies: list[Subtopology] = wire.array()

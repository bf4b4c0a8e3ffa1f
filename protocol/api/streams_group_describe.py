"""StreamsGroupDescribe (key 89, version 0): groups of Kafka Streams, with members (KIP-1071)."""

from protocol.api.streams_group_heartbeat import TaskIds, TaskOffset
from protocol.declare import primitives as wire
from protocol.streams import Endpoint, KeyValue, TopicInfo


class StreamsGroupDescribeRequest(wire.Message, max_version=0, flexible_since=0):
    """The groups of interest."""

    group_ids: list[str] = wire.array(wire.STRING)
    include_authorized_operations: bool = wire.boolean()


class Subtopology(wire.Struct):
    """A part of the application; the topics have numbers of partitions once the group is ready."""

    subtopology_id: str = wire.string()
    source_topics: list[str] = wire.array(wire.STRING)
    repartition_sink_topics: list[str] = wire.array(wire.STRING)
    state_changelog_topics: list[TopicInfo] = wire.array()
    repartition_source_topics: list[TopicInfo] = wire.array()


class Topology(wire.Struct):
    """What the application reads, stores and writes."""

    epoch: int = wire.int32()
    subtopologies: list[Subtopology] | None = wire.array(nullable_since=0, default=None)


class Assignment(wire.Struct):
    """The tasks that a member has or should have."""

    active_tasks: list[TaskIds] = wire.array()
    standby_tasks: list[TaskIds] = wire.array()
    warmup_tasks: list[TaskIds] = wire.array()


class Member(wire.Struct):
    """One member."""

    member_id: str = wire.string()
    member_epoch: int = wire.int32()
    instance_id: str | None = wire.string(nullable_since=0, default=None)
    rack_id: str | None = wire.string(nullable_since=0, default=None)
    client_id: str = wire.string()
    client_host: str = wire.string()
    topology_epoch: int = wire.int32()
    process_id: str = wire.string()
    user_endpoint: Endpoint | None = wire.struct(nullable_since=0)
    client_tags: list[KeyValue] = wire.array()
    task_offsets: list[TaskOffset] = wire.array()
    task_end_offsets: list[TaskOffset] = wire.array()
    assignment: Assignment = wire.struct()
    target_assignment: Assignment = wire.struct()
    is_classic: bool = wire.boolean()


class DescribedGroup(wire.Struct):
    """One group."""

    error_code: int = wire.int16()
    error_message: str | None = wire.string(nullable_since=0, default=None)
    group_id: str = wire.string()
    group_state: str = wire.string()
    group_epoch: int = wire.int32()
    assignment_epoch: int = wire.int32()
    topology: Topology | None = wire.struct(nullable_since=0)
    members: list[Member] = wire.array()
    authorized_operations: int = wire.operations()


class StreamsGroupDescribeResponse(wire.Message, max_version=0, flexible_since=0):
    """The requested groups."""

    throttle_time_ms: int = wire.int32()
    groups: list[DescribedGroup] = wire.array()

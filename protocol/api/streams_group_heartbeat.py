"""StreamsGroupHeartbeat (key 88, version 0): membership in a group of Kafka Streams (KIP-1071)."""

from protocol.declare import primitives as wire
from protocol.streams import Endpoint, KeyValue, Topology
from protocol.structs import TopicIndexes


class TaskOffset(wire.Struct):
    """How far the state of a task is restored."""

    subtopology_id: str = wire.string()
    partition: int = wire.int32()
    offset: int = wire.int64()


class TaskIds(wire.Struct):
    """Tasks of one subtopology."""

    subtopology_id: str = wire.string()
    partitions: list[int] = wire.array(wire.INT32)


class StreamsGroupHeartbeatRequest(wire.Message, max_version=0, flexible_since=0):
    """A member's state, as far as it changed; null is unchanged."""

    group_id: str = wire.string()
    member_id: str = wire.string()
    member_epoch: int = wire.int32()
    """0 joins, -1 leaves, -2 leaves for a while."""

    endpoint_information_epoch: int = wire.int32()
    instance_id: str | None = wire.string(nullable_since=0, default=None)
    rack_id: str | None = wire.string(nullable_since=0, default=None)
    rebalance_timeout_ms: int = wire.int32(default=-1)
    topology: Topology | None = wire.struct(nullable_since=0)
    active_tasks: list[TaskIds] | None = wire.array(nullable_since=0, default=None)
    standby_tasks: list[TaskIds] | None = wire.array(nullable_since=0, default=None)
    warmup_tasks: list[TaskIds] | None = wire.array(nullable_since=0, default=None)
    process_id: str | None = wire.string(nullable_since=0, default=None)
    user_endpoint: Endpoint | None = wire.struct(nullable_since=0)
    client_tags: list[KeyValue] | None = wire.array(nullable_since=0, default=None)
    task_offsets: list[TaskOffset] | None = wire.array(nullable_since=0, default=None)
    task_end_offsets: list[TaskOffset] | None = wire.array(nullable_since=0, default=None)
    shutdown_application: bool = wire.boolean()


class Status(wire.Struct):
    """A state of the group that the member has to know."""

    status_code: int = wire.int8()
    status_detail: str = wire.string()


class EndpointToPartitions(wire.Struct):
    """The partitions whose state an instance of the application has."""

    user_endpoint: Endpoint = wire.struct()
    active_partitions: list[TopicIndexes] = wire.array()
    standby_partitions: list[TopicIndexes] = wire.array()


class StreamsGroupHeartbeatResponse(wire.Message, max_version=0, flexible_since=0):
    """The group's state, as far as the member has to know; null is unchanged."""

    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.string(nullable_since=0, default=None)
    member_id: str = wire.string()
    member_epoch: int = wire.int32()
    heartbeat_interval_ms: int = wire.int32()
    acceptable_recovery_lag: int = wire.int32()
    task_offset_interval_ms: int = wire.int32()
    status: list[Status] | None = wire.array(nullable_since=0)
    active_tasks: list[TaskIds] | None = wire.array(nullable_since=0, default=None)
    standby_tasks: list[TaskIds] | None = wire.array(nullable_since=0, default=None)
    warmup_tasks: list[TaskIds] | None = wire.array(nullable_since=0, default=None)
    endpoint_information_epoch: int = wire.int32()
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = wire.array(
        nullable_since=0, default=None
    )

"""Requests, answers and changes of a group of Kafka Streams (KIP-1071): plain values.

Owns the vocabulary between `broker.groups.streams.group` (which decides) and
`broker.groups.streams_coordinator` (which stores and answers). A topology is the struct that
members send and that is stored.

A task is one partition number of one subtopology: it reads that partition of each source topic.
An active task processes; a standby task only keeps a copy of the state. Warm-up tasks exist on the
wire and are not assigned, as in Kafka 4.3.

Source: KIP-1071; Kafka's `StreamsGroupMember`, `TasksTuple`, `MemberState`.
"""

import enum
from collections.abc import Mapping
from dataclasses import field
from typing import Final, NamedTuple, TypeAlias

from protocol.error_codes import ErrorCode
from protocol.streams import Topology
from values.dataclasses import dataclass

FIRST_EPOCH: Final = 1
STREAMS: Final = "streams"

Task: TypeAlias = tuple[str, int]
"""Subtopology and partition."""

Tasks: TypeAlias = frozenset[Task]

NO_TASKS: Final[Tasks] = frozenset()


class TaskSet(NamedTuple):
    """The tasks of a member, by their role."""

    active: Tasks = NO_TASKS
    standby: Tasks = NO_TASKS

    def overlaps(self, other: "TaskSet") -> bool:
        """Whether a task is in both, in the same role."""
        return bool(self.active & other.active or self.standby & other.standby)

    def is_within(self, other: "TaskSet") -> bool:
        """Whether every task is in `other`, in the same role."""
        return self.active <= other.active and self.standby <= other.standby


NOTHING: Final = TaskSet()


class StreamsGroupState(enum.Enum):
    """The state of a group; the value is the name that clients see."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    """Topics of the topology are missing, or have a wrong number of partitions."""

    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class MemberState(enum.IntEnum):
    """A member's progress towards its target; the number is stored."""

    STABLE = 1
    UNREVOKED = 2
    """It still owns tasks that the coordinator has asked it to give up."""

    UNRELEASED = 3
    """It has given up what it must, and waits for others to do the same."""


class StatusCode(enum.IntEnum):
    """What a member has to know besides its tasks; the number is that of the wire."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class Status(NamedTuple):
    """A status with a sentence for people."""

    code: StatusCode
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsLimits:
    """The settings that a group obeys; times in ms."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    initial_delay_ms: int = 3_000
    standby_replicas: int = 0
    size_max: int = 2**31 - 1


class Endpoint(NamedTuple):
    """Where an instance of the application answers queries."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsHeartbeat:
    """A heartbeat; None means unchanged."""

    member_id: str
    member_epoch: int
    endpoint_epoch: int = 0
    rack_id: str | None = None
    rebalance_timeout_ms: int | None = None
    topology: Topology | None = None
    owned: TaskSet | None = None
    process_id: str | None = None
    endpoint: Endpoint | None = None
    tags: Mapping[str, str] | None = None
    wants_shutdown: bool = False
    client_id: str = ""
    client_host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberFacts:
    """A member's description of itself: stored as its metadata."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    endpoint: Endpoint | None = None
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentTasks:
    """A member's tasks and epoch, as stored.

    `since` is the epoch in which an active task was assigned; one that is not in it came with the
    member's own epoch.
    """

    member_epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: TaskSet = NOTHING
    pending_revocation: TaskSet = NOTHING
    since: Mapping[Task, int] = field(default_factory=dict)

    def had_since(self, task: Task) -> int | None:
        """The epoch in which the member got an active task; None for one that it does not have."""
        if task not in self.assigned.active and task not in self.pending_revocation.active:
            return None
        return self.since.get(task, self.member_epoch)


@dataclass(slots=True, kw_only=True)
class StreamsMember:
    """One member. Deadlines are monotonic ms, None while there is none."""

    member_id: str
    facts: MemberFacts = field(default_factory=MemberFacts)
    current: CurrentTasks = field(default_factory=CurrentTasks)
    session_due_ms: int | None = None
    rebalance_due_ms: int | None = None


class PartitionsOfTopic(NamedTuple):
    """Partitions of one topic."""

    topic: str
    partitions: list[int]


class EndpointPartitions(NamedTuple):
    """The partitions whose state an instance of the application has."""

    endpoint: Endpoint
    active: list[PartitionsOfTopic]
    standby: list[PartitionsOfTopic]


class InternalTopicWish(NamedTuple):
    """A topic that the application needs and that does not exist."""

    name: str
    partitions: int
    replication_factor: int
    settings: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsAnswer:
    """The answer to a heartbeat; `tasks` and `endpoints` None mean unchanged.

    `missing` are the topics to create, which is not part of the answer.
    """

    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    member_id: str = ""
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    statuses: tuple[Status, ...] = ()
    tasks: TaskSet | None = None
    endpoint_epoch: int = 0
    endpoints: list[EndpointPartitions] | None = None
    missing: tuple[InternalTopicWish, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """The epoch of a group and what led to it, as stored."""

    epoch: int = FIRST_EPOCH
    metadata_hash: int = 0
    validated_topology_epoch: int = -1
    standby_replicas: int | None = None
    """None when it is unknown."""


@dataclass(slots=True, kw_only=True)
class StoredStreamsGroup:
    """A group as found in the log."""

    group: GroupFacts | None = None
    assignment_epoch: int = FIRST_EPOCH
    topology: Topology | None = None
    facts: dict[str, MemberFacts] = field(default_factory=dict)
    targets: dict[str, TaskSet] = field(default_factory=dict)
    current: dict[str, CurrentTasks] = field(default_factory=dict)


class StreamsChangeKind(enum.IntEnum):
    """The subject of a change; the number is the version of the record's key."""

    GROUP = 17
    MEMBER = 19
    ASSIGNMENT_EPOCH = 20
    TARGET = 21
    CURRENT = 22
    TOPOLOGY = 23


class StreamsChange(NamedTuple):
    """One record to store: `value` None is a tombstone, `member_id` None means the group."""

    kind: StreamsChangeKind
    member_id: str | None
    value: int | GroupFacts | MemberFacts | TaskSet | CurrentTasks | Topology | None

"""Requests, answers and changes of a group of the consumer protocol (KIP-848): plain values.

Owns the vocabulary between `broker.groups.consumer.group` (which decides) and
`broker.groups.consumer_coordinator` (which stores and answers). Refuses to know the wire.

Partitions are (topic id, index): a topic that is deleted and made again is a different one.

Source: KIP-848; Kafka's `ConsumerGroupMember`, `MemberState`.
"""

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Final, NamedTuple, TypeAlias, TypeVar

from broker.groups.classic.values import Protocols
from protocol.error_codes import ErrorCode
from values.dataclasses import dataclass

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2
"""A static member leaves for a while: its partitions stay reserved for its return."""

UNIFORM: Final = "uniform"
RANGE: Final = "range"

Partition: TypeAlias = tuple[bytes, int]
Partitions: TypeAlias = frozenset[Partition]

NO_PARTITIONS: Final[Partitions] = frozenset()

_Key = TypeVar("_Key", bytes, str)


def indexes_by_key(pairs: Iterable[tuple[_Key, int]]) -> dict[_Key, list[int]]:
    """The indexes of each topic id or subtopology, ascending, as messages and records list them."""
    found: dict[_Key, list[int]] = {}
    for key, index in sorted(pairs):
        found.setdefault(key, []).append(index)
    return found


class ConsumerGroupState(enum.Enum):
    """The state of a group; the value is the name that clients see."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class MemberState(enum.IntEnum):
    """A member's progress towards its target; the number is stored."""

    STABLE = 0
    UNREVOKED = 1
    """It still owns partitions that the coordinator has asked it to give up."""

    UNRELEASED = 2
    """It has given up what it must, and waits for others to do the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerLimits:
    """The broker's settings that a group obeys; times in ms."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 0
    size_max: int = 2**31 - 1


class TopicImage(NamedTuple):
    """The facts about a topic that an assignor needs."""

    topic_id: bytes
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """The existing topics, as of one revision.

    `by_name` are those that patterns match; `unlisted` finds one that only its name leads to.
    """

    revision: int
    by_name: Mapping[str, TopicImage]
    unlisted: Callable[[str], TopicImage | None] = lambda _: None

    def find(self, name: str) -> TopicImage | None:
        """The topic of that name, or None."""
        image = self.by_name.get(name)
        return self.unlisted(name) if image is None else image

    def named(self, names: Iterable[str]) -> dict[str, TopicImage]:
        """Those of `names` that exist."""
        found = ((name, self.find(name)) for name in names)
        return {name: image for name, image in found if image is not None}


Sight: TypeAlias = Callable[[str], bool]
"""Whether a client may see the topic of a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatRequest:
    """A member's state, as far as it changed; None means unchanged.

    `sees` says which topics its pattern may find, None for all.
    """

    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int | None = None
    subscribed_names: frozenset[str] | None = None
    subscribed_regex: str | None = None
    server_assignor: str | None = None
    owned: Partitions | None = None
    client_id: str = ""
    client_host: str = ""
    sees: Sight | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswer:
    """The answer to a heartbeat; `assigned` None means unchanged."""

    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assigned: Partitions | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicFacts:
    """The further facts about a classic member; `protocols` in order of preference."""

    session_timeout_ms: int
    protocols: Protocols


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A member's description of itself: stored as its metadata.

    `classic` is set for a member that speaks the classic protocol.
    """

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    names: frozenset[str] = frozenset()
    regex: str | None = None
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicFacts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentAssignment:
    """A member's partitions and epoch, as stored.

    `since` is the epoch in which a partition was assigned; one that is not in it came with the
    member's own epoch.
    """

    member_epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NO_PARTITIONS
    pending_revocation: Partitions = NO_PARTITIONS
    since: Mapping[Partition, int] = field(default_factory=dict)

    def had_since(self, partition: Partition) -> int | None:
        """The epoch in which the member got a partition; None for one that it does not have."""
        if partition not in self.assigned and partition not in self.pending_revocation:
            return None
        return self.since.get(partition, max(self.member_epoch, JOIN_EPOCH))


@dataclass(slots=True, kw_only=True)
class ConsumerMember:
    """One member. Deadlines are monotonic ms, None while there is none.

    `rebalance_due_ms` is the deadline of the member's part in a rebalance: to give up partitions,
    or for a classic member the JoinGroup or SyncGroup that it owes.
    """

    member_id: str
    subscription: Subscription
    current: CurrentAssignment
    session_due_ms: int | None = None
    rebalance_due_ms: int | None = None

    @property
    def is_classic(self) -> bool:
        """Whether the member speaks the classic protocol."""
        return self.subscription.classic is not None


@dataclass(slots=True, kw_only=True)
class StoredConsumerGroup:
    """A group as found in the log."""

    epoch: int = 0
    assignment_epoch: int = 0
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    targets: dict[str, Partitions] = field(default_factory=dict)
    current: dict[str, CurrentAssignment] = field(default_factory=dict)


class ChangeKind(enum.IntEnum):
    """The subject of a change; the number is the version of the record's key."""

    GROUP_EPOCH = 3
    SUBSCRIPTION = 5
    ASSIGNMENT_EPOCH = 6
    TARGET = 7
    CURRENT = 8


class Change(NamedTuple):
    """One record to store: `value` None is a tombstone, `member_id` None means the group."""

    kind: ChangeKind
    member_id: str | None
    value: int | Subscription | Partitions | CurrentAssignment | None


class HeartbeatRefused(Exception):
    """The request is refused with `error`, and nothing changes."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        self.error = error
        super().__init__(message)

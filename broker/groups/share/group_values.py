"""Requests, answers and changes of the membership of a share group: plain values.

Owns the vocabulary between `broker.groups.share.group` (which decides) and
`broker.groups.share_coordinator` (which stores and answers). Refuses to know the wire.

Source: KIP-932; Kafka's `ShareGroupMember`.
"""

import enum
from collections.abc import Mapping
from dataclasses import field
from typing import NamedTuple, TypeAlias

from broker.groups.consumer.values import NO_PARTITIONS, Partitions
from values.dataclasses import dataclass

StatePartitions: TypeAlias = Mapping[bytes, tuple[str, frozenset[int]]]
"""Topic id to the topic's name and the partitions that have a stored state."""


class ShareGroupState(enum.Enum):
    """The state of a group; the value is the name that clients see."""

    EMPTY = "Empty"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareHeartbeat:
    """A heartbeat; `names` None means an unchanged subscription."""

    member_id: str
    member_epoch: int
    rack_id: str | None = None
    names: frozenset[str] | None = None
    client_id: str = ""
    client_host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareSubscription:
    """A member's description of itself: stored as its metadata."""

    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    names: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMember:
    """A member's epoch and partitions, as stored."""

    epoch: int = 0
    previous_epoch: int = 0
    assigned: Partitions = NO_PARTITIONS


@dataclass(slots=True, kw_only=True)
class ShareMember:
    """One member. `session_due_ms` is monotonic."""

    member_id: str
    subscription: ShareSubscription
    current: StoredMember = field(default_factory=StoredMember)
    session_due_ms: int = 0


@dataclass(slots=True, kw_only=True)
class StoredShareGroup:
    """A group as found in the log."""

    epoch: int = 0
    assignment_epoch: int = 0
    subscriptions: dict[str, ShareSubscription] = field(default_factory=dict)
    targets: dict[str, Partitions] = field(default_factory=dict)
    current: dict[str, StoredMember] = field(default_factory=dict)
    initialized: StatePartitions = field(default_factory=dict)


class ShareChangeKind(enum.IntEnum):
    """The subject of a change; the number is the version of the record's key."""

    SUBSCRIPTION = 10
    GROUP_EPOCH = 11
    ASSIGNMENT_EPOCH = 12
    TARGET = 13
    CURRENT = 14
    STATES = 15


class ShareChange(NamedTuple):
    """One record to store: `value` None is a tombstone, `member_id` None means the group."""

    kind: ShareChangeKind
    member_id: str | None
    value: int | ShareSubscription | Partitions | StoredMember | StatePartitions | None

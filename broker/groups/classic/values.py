"""Requests, answers and actions of a classic group, as plain values.

Owns the vocabulary between `broker.groups.classic.group` (which decides) and
`broker.groups.coordinator` (which talks to connections and to the log). Refuses to know the wire:
no message class and no version number appears here, only the consequences of a version that
change a decision (`requires_known_member_id`, `supports_skipping_assignment`).

A *waiter* is any object that the caller passes with a request that may have to wait. The group
never inspects it; it only names it again in the action that answers it, exactly once.

Source: KIP-62, KIP-345, KIP-394, KIP-814; Kafka's `ClassicGroup` and `JoinGroupRequest.json`.
"""

import enum
from dataclasses import field
from typing import TypeAlias

from protocol.error_codes import ErrorCode
from protocol.stored.group_log import GroupMetadataValue
from values.dataclasses import dataclass

NO_GENERATION = -1
NO_MEMBER_ID = ""
NO_LEADER = ""

Waiter: TypeAlias = object
Protocols: TypeAlias = tuple[tuple[str, bytes], ...]


class GroupState(enum.Enum):
    """The state of a group; the value is the name that clients see."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """The broker's settings that a group obeys; times in ms."""

    session_timeout_min_ms: int = 6_000
    session_timeout_max_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 0
    new_member_join_timeout_ms: int = 300_000
    size_max: int = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """One member's request to be in the next generation.

    `new_member_id` is the id that the group gives out when `member_id` is empty: randomness, like
    time, comes from outside. `protocols` are in order of preference, their metadata opaque.
    """

    member_id: str
    new_member_id: str
    protocol_type: str
    protocols: Protocols
    session_timeout_ms: int
    rebalance_timeout_ms: int
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    requires_known_member_id: bool = False
    supports_skipping_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedMember:
    """One entry of the member list that only the leader receives."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAnswer:
    """The answer to a JoinGroup; on an error only `error` and `member_id` are valid."""

    error: ErrorCode
    member_id: str
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = NO_LEADER
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """A member's request for its assignment; the leader's carries the assignments of all."""

    member_id: str
    generation_id: int
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncAnswer:
    """A member's assignment, or the reason why it has none."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class AssignmentReceipt:
    """Returned once the leader's assignments of this generation are durable, or failed."""

    generation_id: int
    assignments: dict[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticMemberReceipt:
    """Returned once a static member's new id is durable, or failed."""

    waiter: Waiter
    answer: JoinAnswer


Receipt: TypeAlias = AssignmentReceipt | StaticMemberReceipt


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Answer this waiting JoinGroup or SyncGroup."""

    waiter: Waiter
    answer: JoinAnswer | SyncAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreGroup:
    """Make this snapshot durable, then pass the receipt, if any, to `ClassicGroup.stored`."""

    snapshot: GroupMetadataValue
    receipt: Receipt | None = None


Action: TypeAlias = Answer | StoreGroup

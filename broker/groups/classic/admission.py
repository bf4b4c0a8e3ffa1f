"""The checks that admit or refuse requests to a classic group, each with its error code.

Pure functions of a group; nothing here changes it. Each returns `ErrorCode.NONE` to accept. The
order of the checks is Kafka's, because clients act on the first error they see: a fenced static
member must get FENCED_INSTANCE_ID and stop, not ILLEGAL_GENERATION and try again.

Source: Kafka's `ClassicGroup.validateMember`, `validateOffsetCommit`, `acceptJoiningMember`
and `supportsProtocols`; KIP-345, KIP-559.
Read next: `broker.groups.classic.group`.
"""

from __future__ import annotations

from broker.groups.classic.roster import Member, Roster
from broker.groups.classic.values import (
    NO_MEMBER_ID,
    GroupLimits,
    GroupState,
    JoinRequest,
    SyncRequest,
)
from broker.groups.classic.view import GroupView
from protocol.error_codes import ErrorCode


def join_error(group: GroupView, request: JoinRequest, limits: GroupLimits) -> ErrorCode:
    """Why this JoinGroup is refused, before its member is checked."""
    error = session_error(request, limits)
    if error is not ErrorCode.NONE:
        return error
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if not _has_room(group, request.member_id, limits.size_max):
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    if not request.protocol_type or not request.protocols:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if len(group.roster) and (
        request.protocol_type != group.protocol_type or not group.roster.accepts(request.protocols)
    ):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE


def session_error(request: JoinRequest, limits: GroupLimits) -> ErrorCode:
    """Why a member's session timeout is refused, whatever the group."""
    timeout_ms = request.session_timeout_ms
    if not limits.session_timeout_min_ms <= timeout_ms <= limits.session_timeout_max_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    return ErrorCode.NONE


def _has_room(group: GroupView, member_id: str, size_max: int) -> bool:
    """Whether one more member fits; during a rebalance only members that have rejoined count."""
    member = group.roster.find(member_id)
    if group.state is GroupState.PREPARING_REBALANCE:
        is_waiting = member is not None and member.join_waiter is not None
        return is_waiting or group.roster.joining_count < size_max
    return member is not None or len(group.roster) < size_max


def identity_error(roster: Roster, member_id: str, group_instance_id: str | None) -> ErrorCode:
    """Why this is not a member: its id is unknown, or its instance id now has another member id."""
    if group_instance_id is not None:
        known_id = roster.find_static(group_instance_id)
        if known_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if known_id != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if member_id in roster else ErrorCode.UNKNOWN_MEMBER_ID


def member_error(
    group: GroupView, member_id: str, group_instance_id: str | None, generation_id: int
) -> ErrorCode:
    """Why this is not a member of the group's current generation."""
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = identity_error(group.roster, member_id, group_instance_id)
    if error is ErrorCode.NONE and generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    return error


def is_settled(group: GroupView, member: Member, request: JoinRequest) -> bool:
    """Whether a rejoin changes nothing, so that the current generation answers it.

    | state                | leader    | others    |
    |----------------------|-----------|-----------|
    | PREPARING_REBALANCE  | rejoin    | rejoin    |
    | COMPLETING_REBALANCE | unchanged | unchanged |
    | STABLE               | rejoin    | unchanged |

    A stable leader that rejoins wants new assignments, so it is never settled.
    """
    if group.state is GroupState.STABLE and member.member_id == group.roster.leader_id:
        return False
    if group.state is GroupState.PREPARING_REBALANCE:
        return False
    return member.protocols == request.protocols


def sync_error(group: GroupView, request: SyncRequest) -> ErrorCode:
    """Why this SyncGroup is refused."""
    error = member_error(group, request.member_id, request.group_instance_id, request.generation_id)
    if error is not ErrorCode.NONE:
        return error
    for asked, ours in (
        (request.protocol_type, group.protocol_type),
        (request.protocol_name, group.protocol_name),
    ):
        if asked is not None and asked != ours:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def commit_error(
    group: GroupView,
    member_id: str,
    group_instance_id: str | None,
    generation_id: int,
    *,
    is_transactional: bool,
) -> ErrorCode:
    """Why these offsets may not be committed.

    | named as               | group empty       | preparing, stable | between join and sync |
    |------------------------|-------------------|-------------------|-----------------------|
    | no member              | yes               | UNKNOWN_MEMBER_ID | UNKNOWN_MEMBER_ID     |
    | none, transactional    | yes               | yes               | yes                   |
    | member                 | UNKNOWN_MEMBER_ID | yes               | REBALANCE_IN_PROGRESS |
    | member, transactional  | UNKNOWN_MEMBER_ID | yes               | yes                   |

    Commits while others join are accepted: that is how a consumer that revokes its partitions
    saves its position. Between join and sync no member owns a partition yet. Transactions of
    clients before KIP-447 name no member.
    """
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if generation_id < 0 and group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    if generation_id < 0 and member_id == NO_MEMBER_ID and group_instance_id is None:
        return ErrorCode.NONE if is_transactional else ErrorCode.UNKNOWN_MEMBER_ID
    error = member_error(group, member_id, group_instance_id, generation_id)
    if error is not ErrorCode.NONE:
        return error
    if group.state is GroupState.COMPLETING_REBALANCE and not is_transactional:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE

"""Who a heartbeat of the consumer protocol comes from, and why it may be turned away.

Finds the member a request speaks for, lets a new one in, or raises `HeartbeatRefused`. The order
of the checks is Kafka's, because clients act on the error: a fenced member gives everything up
and joins again, one with an unreleased instance id ends.

Source: Kafka's `GroupMetadataManager.getOrMaybeSubscribeDynamicConsumerMember`,
`getOrMaybeSubscribeStaticConsumerMember`, `throwIfConsumerGroupMemberEpochIsInvalid`.
Read next: `broker.groups.consumer_group`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.groups import topic_pattern
from broker.groups.assignors import ASSIGNORS
from broker.groups.consumer_values import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerMember,
    CurrentAssignment,
    HeartbeatRefused,
    HeartbeatRequest,
    Subscription,
)
from protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from broker.groups.consumer_group import ConsumerGroup


def check_wishes(request: HeartbeatRequest) -> None:
    """Accept a pattern and an assignor by name. Raises: HeartbeatRefused."""
    if request.subscribed_regex:
        topic_pattern.compile_pattern(request.subscribed_regex)
    if request.server_assignor is not None and request.server_assignor not in ASSIGNORS:
        names = ", ".join(ASSIGNORS)
        raise HeartbeatRefused(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"There is no assignor {request.server_assignor!r}; use one of {names}.",
        )


def find_or_join(group: ConsumerGroup, request: HeartbeatRequest) -> ConsumerMember:
    """The member that a heartbeat comes from, taken in if it is new. Raises: HeartbeatRefused."""
    is_joining = request.member_epoch == JOIN_EPOCH
    if request.instance_id is not None:
        known_id = group.static_ids.get(request.instance_id)
        if is_joining and known_id is not None and known_id != request.member_id:
            _check_released(group.members[known_id])
            return group.take_over(known_id, request.member_id)
        if known_id is not None or not is_joining:
            member = find_known(group, request.instance_id, request.member_id)
            return _accept(group, member, request)
    member_or_none = group.members.get(request.member_id)
    if member_or_none is not None:
        return _accept(group, member_or_none, request)
    if not is_joining:
        find_known(group, None, request.member_id)
    check_room(group)
    member = ConsumerMember(
        member_id=request.member_id,
        subscription=Subscription(instance_id=request.instance_id),
        current=CurrentAssignment(),
    )
    group.add(member)
    return member


def check_room(group: ConsumerGroup) -> None:
    """Whether one more may join. Raises: HeartbeatRefused."""
    if len(group.members) >= group.limits.size_max:
        raise HeartbeatRefused(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The group has {len(group.members)} members, as many as allowed.",
        )


def find_known(group: ConsumerGroup, instance_id: str | None, member_id: str) -> ConsumerMember:
    """The member of this id; a static one must not have another id by now.

    Raises: HeartbeatRefused.
    """
    known_id: str | None = member_id
    if instance_id is not None:
        known_id = group.static_ids.get(instance_id)
    member = group.members.get(known_id or "")
    if member is None:
        who = repr(member_id) if instance_id is None else f"Instance {instance_id!r}"
        raise HeartbeatRefused(
            ErrorCode.UNKNOWN_MEMBER_ID, f"{who} is not a member of group {group.group_id}."
        )
    if known_id != member_id:
        raise HeartbeatRefused(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Instance {instance_id} belongs to member {known_id} by now.",
        )
    return member


def _accept(
    group: ConsumerGroup, member: ConsumerMember, request: HeartbeatRequest
) -> ConsumerMember:
    """Check a known member's epoch; one that joins again has nothing any more.

    The epoch before is accepted from a member that cannot know the present one: its answer was
    lost, so it still owns no more than it has been given.
    """
    current = member.current
    if request.member_epoch == JOIN_EPOCH:
        group.start_over(member)
        return member
    if request.member_epoch == current.member_epoch:
        return member
    is_retry = (
        request.member_epoch == current.previous_epoch
        and request.owned is not None
        and request.owned <= current.assigned
    )
    if not is_retry:
        raise HeartbeatRefused(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"Member {member.member_id} is in epoch {current.member_epoch}, "
            f"not {request.member_epoch}; join again.",
        )
    return member


def _check_released(former: ConsumerMember) -> None:
    """A static member's place is taken over once it has left it.

    A member of the classic protocol cannot leave for a while, so its place is taken at once.
    """
    if former.current.member_epoch != LEAVE_STATIC_EPOCH and not former.is_classic:
        raise HeartbeatRefused(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Instance {former.subscription.instance_id} is still in use by member "
            f"{former.member_id}.",
        )

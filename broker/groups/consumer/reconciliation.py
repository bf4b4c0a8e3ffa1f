"""One member's next step towards its target: a pure function of its partitions and the free ones.

| partitions to give up   | partitions to receive    | it becomes                             |
|-------------------------|--------------------------|----------------------------------------|
| some is still its own   | whatever                 | UNREVOKED, in its epoch, with the rest |
| nothing is left         | another still holds some | UNRELEASED, in the new epoch           |
| nothing is left         | everything is free       | STABLE, in the new epoch               |

Source: KIP-848; Kafka's `CurrentAssignmentBuilder`. Read next: `broker.groups.consumer.group`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from broker.groups.consumer.values import (
    JOIN_EPOCH,
    CurrentAssignment,
    MemberState,
    Partition,
    Partitions,
)


def next_assignment(
    current: CurrentAssignment,
    target: Partitions,
    *,
    owned: Partitions | None,
    epoch: int,
    is_free: Callable[[Partition], bool],
) -> CurrentAssignment:
    """The step. `owned` is what the member claims to own now, None when it does not say;
    `is_free` returns whether no other member holds a partition; `epoch` is the target's.
    """
    kept = current.assigned & target
    revoked = current.assigned - target
    if revoked and (owned is None or owned & revoked):
        return replace(
            current, state=MemberState.UNREVOKED, assigned=kept, pending_revocation=revoked
        )
    since = {partition: current.had_since(partition) or JOIN_EPOCH for partition in kept}
    since.update((partition, epoch) for partition in target - kept if is_free(partition))
    assigned = frozenset(since)
    return CurrentAssignment(
        member_epoch=epoch,
        previous_epoch=current.member_epoch,
        state=MemberState.STABLE if assigned == target else MemberState.UNRELEASED,
        assigned=assigned,
        since=since,
    )

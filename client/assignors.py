"""How the partitions of subscribed topics are shared among the members of a group.

The member that the broker names leader runs one of these for all. Every member offers those it has,
and the group uses one that all share. The names are Kafka's, and so is the outcome of `range` and
`roundrobin`, so that members written in other languages may share a group.

`cooperative-sticky` moves as little as balance allows. It takes a partition from its owner in one
round and gives it to the next in a second one, so that no member stops reading the partitions it
keeps (KIP-429).

Pure: subscriptions and partition counts in, assignments out. The bytes are `client.subscription`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from client.types import TopicPartition

Assignment = dict[str, list[TopicPartition]]
"""Member id -> its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """One member's subscription and its current partitions.

    `generation` is that of the rebalance in which it got `owned`, -1 if unknown.
    """

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    instance_id: str | None = field(default=None)


class Assignor(Protocol):
    """One way to share."""

    name: str
    is_cooperative: bool

    def assign(
        self, members: Mapping[str, Subscription], partition_counts: Mapping[str, int]
    ) -> Assignment:
        """The partitions of each member; topics without a count are unknown and left out."""


class RangeAssignor:
    """Per topic, neighbouring partitions to one member: equal numbers go to the same member."""

    name = "range"
    is_cooperative = False

    def assign(
        self, members: Mapping[str, Subscription], partition_counts: Mapping[str, int]
    ) -> Assignment:
        """As Kafka's RangeAssignor: the first members get one more where it does not divide."""
        assignment: Assignment = {member: [] for member in members}
        for topic, count in sorted(partition_counts.items()):
            interested = _interested(members, topic)
            if not interested:
                continue
            each, extra = divmod(count, len(interested))
            first = 0
            for position, member in enumerate(interested):
                number = each + (position < extra)
                assignment[member] += [
                    TopicPartition(topic, first + index) for index in range(number)
                ]
                first += number
        return assignment


class RoundRobinAssignor:
    """All partitions in a row, dealt out one by one."""

    name = "roundrobin"
    is_cooperative = False

    def assign(
        self, members: Mapping[str, Subscription], partition_counts: Mapping[str, int]
    ) -> Assignment:
        """As Kafka's RoundRobinAssignor: members that do not want a topic are passed over."""
        assignment: Assignment = {member: [] for member in members}
        circle = sorted(members, key=lambda member: _order(member, members[member]))
        turn = 0
        for partition in _all_partitions(members, partition_counts):
            while partition.topic not in members[circle[turn % len(circle)]].topics:
                turn += 1
            assignment[circle[turn % len(circle)]].append(partition)
            turn += 1
        return assignment


class CooperativeStickyAssignor:
    """Balanced within one partition per member where interests allow; owners keep what they can."""

    name = "cooperative-sticky"
    is_cooperative = True

    def assign(
        self, members: Mapping[str, Subscription], partition_counts: Mapping[str, int]
    ) -> Assignment:
        """The target without partitions that another member still owns: they come a round later."""
        partitions = list(_all_partitions(members, partition_counts))
        owners = _owners(members, set(partitions))
        target = _balanced(members, partitions, owners)
        return {
            member: [tp for tp in mine if owners.get(tp, member) == member]
            for member, mine in target.items()
        }


ASSIGNORS: dict[str, Assignor] = {
    assignor.name: assignor
    for assignor in (RangeAssignor(), RoundRobinAssignor(), CooperativeStickyAssignor())
}
"""Every assignor by its name on the wire."""


def _order(member: str, subscription: Subscription) -> tuple[bool, str]:
    """Static members first, by their lasting names; Kafka's order, which keeps ranges stable."""
    instance_id = subscription.instance_id
    return (instance_id is None, instance_id or member)


def _interested(members: Mapping[str, Subscription], topic: str) -> list[str]:
    wanting = [member for member, subscription in members.items() if topic in subscription.topics]
    return sorted(wanting, key=lambda member: _order(member, members[member]))


def _all_partitions(
    members: Mapping[str, Subscription], partition_counts: Mapping[str, int]
) -> Sequence[TopicPartition]:
    return [
        TopicPartition(topic, number)
        for topic, count in sorted(partition_counts.items())
        if any(topic in subscription.topics for subscription in members.values())
        for number in range(count)
    ]


def _owners(
    members: Mapping[str, Subscription], partitions: set[TopicPartition]
) -> dict[TopicPartition, str]:
    """The owner of each partition; if two claim one, the one of the later generation."""
    owners: dict[TopicPartition, str] = {}
    claims = sorted(members.items(), key=lambda item: (item[1].generation, item[0]))
    for member, subscription in claims:
        for partition in subscription.owned:
            if partition in partitions and partition.topic in subscription.topics:
                owners[partition] = member
    return owners


def _balanced(
    members: Mapping[str, Subscription],
    partitions: Sequence[TopicPartition],
    owners: Mapping[TopicPartition, str],
) -> Assignment:
    """Owners keep theirs, free ones go to the emptiest, then the fullest give to the emptiest."""
    target: Assignment = {member: [] for member in sorted(members)}
    for partition, owner in sorted(owners.items()):
        target[owner].append(partition)
    for partition in partitions:
        if partition not in owners:
            interested = [m for m in target if partition.topic in members[m].topics]
            target[min(interested, key=lambda m: (len(target[m]), m))].append(partition)
    while move := _next_move(members, target):
        giver, taker, partition = move
        target[giver].remove(partition)
        target[taker].append(partition)
    return target


def _next_move(
    members: Mapping[str, Subscription], target: Assignment
) -> tuple[str, str, TopicPartition] | None:
    """A partition whose move narrows the gap between two members, None when balanced."""
    by_load = sorted(target, key=lambda member: (len(target[member]), member))
    for taker in by_load:
        for giver in reversed(by_load):
            if len(target[giver]) - len(target[taker]) < 2:
                break
            for partition in reversed(target[giver]):
                if partition.topic in members[taker].topics:
                    return giver, taker, partition
    return None

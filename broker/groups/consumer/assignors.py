"""The server-side assignors of the consumer protocol, as pure functions.

Both take each member's subscription, each member's previous target, and the partition counts of
the topics. They give every partition of a subscribed topic to exactly one subscribed member. The
order of members does not depend on hashing: static members sort by their instance id, so that a
restart changes nothing.

* `range`: per topic, contiguous ranges in member order, so that members with the same topics get
  the same indexes of each (joins of co-partitioned topics).
* `uniform`: members' totals as equal as the subscriptions allow, with as few moves as possible.

Source: KIP-848; Kafka's `RangeAssignor`, `UniformAssignor` describe the goals; algorithms are ours.
"""

import heapq
from collections.abc import Mapping
from typing import Final, NamedTuple

from broker.groups.consumer.values import RANGE, UNIFORM, Partition, Partitions, TopicImage


class AssignedMember(NamedTuple):
    """A member as an assignor sees it.

    Attributes:
        sort_key: its place in the order of members.
        topics: names of the topics that it wants, all of them existing.
        target: its target before this assignment.
    """

    sort_key: str
    topics: frozenset[str]
    target: Partitions


def assign(
    name: str, members: Mapping[str, AssignedMember], topics: Mapping[str, TopicImage]
) -> dict[str, Partitions]:
    """The new target of every member. `name` must be one of `ASSIGNORS`."""
    return ASSIGNORS[name](members, topics)


def _in_order(members: Mapping[str, AssignedMember]) -> list[str]:
    return sorted(members, key=lambda member_id: (members[member_id].sort_key, member_id))


def _subscribers(
    members: Mapping[str, AssignedMember], topics: Mapping[str, TopicImage]
) -> dict[str, list[str]]:
    """Topic to members, both in order; topics without subscribers are left out."""
    order = _in_order(members)
    wanted = sorted({topic for member in members.values() for topic in member.topics} & set(topics))
    return {topic: [m for m in order if topic in members[m].topics] for topic in wanted}


def _range(
    members: Mapping[str, AssignedMember], topics: Mapping[str, TopicImage]
) -> dict[str, Partitions]:
    targets: dict[str, set[Partition]] = {member_id: set() for member_id in members}
    for topic, readers in _subscribers(members, topics).items():
        topic_id, count = topics[topic]
        share, more = divmod(count, len(readers))
        start = 0
        for place, member_id in enumerate(readers):
            end = start + share + (place < more)
            targets[member_id].update((topic_id, index) for index in range(start, end))
            start = end
    return {member_id: frozenset(target) for member_id, target in targets.items()}


def _uniform(
    members: Mapping[str, AssignedMember], topics: Mapping[str, TopicImage]
) -> dict[str, Partitions]:
    """Keep each member's partitions up to the even share, then fill the members with least.

    When all members want the same topics, the result is already even. Otherwise partitions move
    from the members with most to those with least that may have them, until no move helps.
    """
    subscribers = _subscribers(members, topics)
    readers_of = {topics[topic].topic_id: readers for topic, readers in subscribers.items()}
    everything = [
        (topics[topic].topic_id, index)
        for topic in subscribers
        for index in range(topics[topic].partitions)
    ]
    is_even = len({member.topics for member in members.values()}) <= 1
    targets = _kept(members, readers_of, everything, is_even=is_even)
    taken = {partition for target in targets.values() for partition in target}
    free = [partition for partition in everything if partition not in taken]
    if is_even:
        _fill(targets, _in_order(members), free)
    else:
        _spread(targets, readers_of, free)
    return {member_id: frozenset(target) for member_id, target in targets.items()}


def _kept(
    members: Mapping[str, AssignedMember],
    readers_of: Mapping[bytes, list[str]],
    everything: list[Partition],
    *,
    is_even: bool,
) -> dict[str, set[Partition]]:
    """What each member keeps: what it still wants, up to its share if all want the same."""
    known = set(everything)
    wanted_ids = {
        member_id: {topic_id for topic_id, readers in readers_of.items() if member_id in readers}
        for member_id in (members if not is_even else ())
    }
    share, more = divmod(len(everything), max(len(members), 1))
    targets: dict[str, set[Partition]] = {}
    seen: set[Partition] = set()
    for member_id in _in_order(members):
        own: set[Partition] = set(members[member_id].target & known) - seen
        if not is_even:
            own = {partition for partition in own if partition[0] in wanted_ids[member_id]}
        elif len(own) > share:
            quota = share + (more > 0)
            more -= more > 0
            own = set(sorted(own)[:quota])
        seen |= own
        targets[member_id] = own
    return targets


def _fill(targets: dict[str, set[Partition]], order: list[str], free: list[Partition]) -> None:
    """Give each free partition to the member with least, in the order of members."""
    heap = [(len(targets[member_id]), place) for place, member_id in enumerate(order)]
    heapq.heapify(heap)
    for partition in free:
        count, place = heap[0]
        targets[order[place]].add(partition)
        heapq.heapreplace(heap, (count + 1, place))


def _spread(
    targets: dict[str, set[Partition]],
    readers_of: Mapping[bytes, list[str]],
    free: list[Partition],
) -> None:
    """Do the same where subscriptions differ; end when no single move improves the balance.

    Every move lowers the sum of squares of the members' counts, so the loop terminates.
    """
    for partition in free:
        least = min(readers_of[partition[0]], key=lambda member_id: len(targets[member_id]))
        targets[least].add(partition)
    is_moving = True
    while is_moving:
        is_moving = False
        for member_id in sorted(targets, key=lambda each: -len(targets[each])):
            for partition in sorted(targets[member_id]):
                readers = readers_of[partition[0]]
                least = min(readers, key=lambda each: len(targets[each]))
                if len(targets[member_id]) - len(targets[least]) > 1:
                    targets[member_id].remove(partition)
                    targets[least].add(partition)
                    is_moving = True


ASSIGNORS: Final = {UNIFORM: _uniform, RANGE: _range}
"""The assignors by name."""

DEFAULT_ASSIGNOR: Final = UNIFORM

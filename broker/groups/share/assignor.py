"""The assignor of share groups: every member gets partitions, and every partition gets members.

Unlike in a consumer group a partition may have several members, and each member has work even if
there are fewer partitions than members. The assignment is balanced per topic and keeps what it can:

1. a member keeps what it has and still wants, up to its share;
2. each member below its share takes the partitions that the fewest members have;
3. a partition without a member goes to the member with the least.

The share of a topic with P partitions and M members is P / M partitions for each member, rounded
up, and at least one.

Source: KIP-932; Kafka's `SimpleAssignor` describes the goals; the algorithm is ours.
"""

from collections.abc import Mapping
from typing import Final

from broker.groups.consumer.values import Partition, Partitions, TopicImage

SIMPLE: Final = "simple"


def assign_shares(
    wanted: Mapping[str, frozenset[str]],
    targets: Mapping[str, Partitions],
    topics: Mapping[str, TopicImage],
    assignable: Partitions,
) -> dict[str, Partitions]:
    """The new target of every member.

    `wanted` has the topics of each member, `targets` their former targets; only `assignable`
    partitions of `topics` are given out.
    """
    members_of: dict[str, list[str]] = {}
    for member_id in sorted(wanted):
        for name in wanted[member_id] & topics.keys():
            members_of.setdefault(name, []).append(member_id)
    found: dict[str, set[Partition]] = {member_id: set() for member_id in wanted}
    for name in sorted(members_of):
        topic_id, count = topics[name]
        partitions = [(topic_id, index) for index in range(count)]
        known = [partition for partition in partitions if partition in assignable]
        if known:
            _assign_topic(known, members_of[name], targets, found)
    return {member_id: frozenset(partitions) for member_id, partitions in found.items()}


def _assign_topic(
    partitions: list[Partition],
    members: list[str],
    targets: Mapping[str, Partitions],
    found: dict[str, set[Partition]],
) -> None:
    share, more = divmod(len(partitions), len(members))
    sharing = -(-len(members) // len(partitions))
    holders: dict[Partition, int] = dict.fromkeys(partitions, 0)
    own: dict[str, list[Partition]] = {}
    for member_id in members:
        most = max(1, share + (more > 0))
        kept: list[Partition] = []
        for partition in sorted(targets.get(member_id, frozenset()) & holders.keys()):
            if len(kept) < most and holders[partition] < sharing:
                kept.append(partition)
                holders[partition] += 1
        if share and len(kept) > share:
            more -= 1
        own[member_id] = kept
    least = max(1, share)
    for member_id in members:
        while len(own[member_id]) < least:
            free = [partition for partition in partitions if partition not in own[member_id]]
            chosen = min(free, key=holders.__getitem__)
            own[member_id].append(chosen)
            holders[chosen] += 1
    for partition in partitions:
        if not holders[partition]:
            member_id = min(members, key=lambda each: len(own[each]))
            own[member_id].append(partition)
            holders[partition] += 1
    for member_id, kept in own.items():
        found[member_id].update(kept)

"""A group's committed offsets, read and written without being a member of it.

The sink keeps its marks in groups of their own (a group's offset with a text), and
`translate-offsets` reads and commits the offsets of other groups. Both are plain requests to the
group's coordinator. A mark is not a position in a topic: its text begins with `MARK_PREFIX`, so the
broker's metrics leave it out of the lag.

Source: Kafka `OffsetFetch`, `OffsetCommit` with generation -1. Read next: `sink`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pipeline.net.cluster import Cluster, check
from pipeline.options.options import TopicPartition
from protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic

MARK_PREFIX: Final = "tidelog-mark "
"""The prefix of a mark's text; `broker.groups.offsets.lag` knows it too."""

_GROUP = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """An offset that a group has committed, and its text."""

    offset: int
    metadata: str


def committed(
    cluster: Cluster, group: str, partitions: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, Committed]:
    """The commits of `group`, for `partitions` or for all; partitions without one are left out.

    The call waits for open transactions, so a restart would get the same answer.

    Raises:
        BrokerRefused: the coordinator denies it.
    """
    topics = None
    if partitions is not None:
        by_topic: dict[str, list[int]] = {}
        for topic, index in sorted(partitions):
            by_topic.setdefault(topic, []).append(index)
        topics = [
            OffsetFetchRequestTopic(name=topic, partition_indexes=indexes)
            for topic, indexes in by_topic.items()
        ]
    request = OffsetFetchRequest(group_id=group, topics=topics, require_stable=True)

    def ask() -> dict[TopicPartition, Committed]:
        answer = cluster.coordinator(group, _GROUP).call(request, 7, 2)
        check(answer.error_code, f"group {group}")
        found = {}
        for topic in answer.topics:
            for part in topic.partitions:
                check(part.error_code, f"group {group}, {topic.name}-{part.partition_index}")
                if part.committed_offset >= 0:
                    found[topic.name, part.partition_index] = Committed(
                        offset=part.committed_offset, metadata=part.metadata or ""
                    )
        return found

    return cluster.retrying(ask)


def commit(
    cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int], metadata: str = ""
) -> None:
    """Commit `offsets` for `group`, which must have no members.

    Raises:
        BrokerRefused: the group has members, or the coordinator denies it.
    """
    by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, index), offset in sorted(offsets.items()):
        by_topic.setdefault(topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=index, committed_offset=offset, committed_metadata=metadata
            )
        )
    request = OffsetCommitRequest(
        group_id=group,
        topics=[
            OffsetCommitRequestTopic(name=topic, partitions=parts)
            for topic, parts in by_topic.items()
        ],
    )

    def ask() -> None:
        answer = cluster.coordinator(group, _GROUP).call(request, 8, 2)
        for topic in answer.topics:
            for part in topic.partitions:
                check(part.error_code, f"group {group}, {topic.name}-{part.partition_index}")

    cluster.retrying(ask)

"""Offsets from brokers: by time, at the ends, and the positions that groups have committed.

Requests and their answers only; consumer, admin and Spark's planner decide when to send them. Every
call retries within the cluster's timeout and drops cached leaders or coordinators that proved
wrong.

Source: KIP-79 (ListOffsets by time), KIP-734 (the largest timestamp), KIP-709 (batched
OffsetFetch).
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any

from client.checks import check_choice
from client.core.cluster import Cluster
from client.core.parts import by_topic, check
from client.errors import BrokerRefused
from client.types import GroupMetadata, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from protocol.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from protocol.error_codes import ErrorCode
from protocol.records.layout import NO_OFFSET
from protocol.structs import PartitionIndexes

EARLIEST = -2
LATEST = -1
MAX_TIMESTAMP = -3
"""Special timestamps of `list_offsets`: the ends, and the newest record by time."""

# The last versions in which topics go by name.
_OFFSET_COMMIT_VERSION = 9
_OFFSET_FETCH_VERSION = 9

_MAX_TIMESTAMP_SINCE = 7


class Isolation(IntEnum):
    """Whether records of unfinished and aborted transactions count."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1

    @classmethod
    def named(cls, name: str) -> "Isolation":
        """The level that users call ``read_uncommitted`` or ``read_committed``.

        Raises:
            InvalidUse: the level does not exist.
        """
        check_choice("isolation", name, [level.name.lower() for level in cls])
        return cls[name.upper()]


async def list_offsets(
    cluster: Cluster,
    timestamps: Mapping[TopicPartition, int],
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    """The first record at or after each time; None where a partition has none.

    A timestamp may be `EARLIEST`, `LATEST` (the end, which is one past the last record) or
    `MAX_TIMESTAMP`; for the first two the answer's own timestamp is -1.

    Raises:
        BrokerRefused: an unknown partition, or no leader within the timeout.
    """
    found: dict[TopicPartition, OffsetAndTimestamp | None] = {}

    async def attempt() -> None:
        rest = [partition for partition in timestamps if partition not in found]
        for node_id, partitions in (await cluster.by_leader(rest)).items():
            wanted = {partition: timestamps[partition] for partition in partitions}
            found.update(await _list_at(cluster, node_id, wanted, isolation))

    await cluster.retrying_at_leaders(timestamps, attempt)
    return found


async def _list_at(
    cluster: Cluster, node_id: int, wanted: Mapping[TopicPartition, int], isolation: Isolation
) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    topics = by_topic(
        wanted,
        lambda tp: ListOffsetsPartition(partition_index=tp.partition, timestamp=wanted[tp]),
    )
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=name, partitions=items) for name, items in topics.items()],
        timeout_ms=cluster.options.request_timeout_ms,
    )
    connection = await cluster.connection(node_id)
    needs_max = MAX_TIMESTAMP in wanted.values()
    response = await connection.call(request, min_version=_MAX_TIMESTAMP_SINCE if needs_max else 1)
    found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
    for topic in response.topics:
        for item in topic.partitions:
            partition = TopicPartition(topic.name, item.partition_index)
            check(f"looking up offsets of {partition}", item, connection.address)
            found[partition] = (
                None
                if item.offset == NO_OFFSET
                else OffsetAndTimestamp(item.offset, item.timestamp, item.leader_epoch)
            )
    return found


async def fetch_committed(
    cluster: Cluster,
    group_id: str,
    partitions: Iterable[TopicPartition] | None = None,
    *,
    require_stable: bool = False,
    member: GroupMetadata | None = None,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """The committed positions of a group; None means all. Partitions without one are left out.

    Raises:
        BrokerRefused: the group's coordinator is not found, or refuses; STALE_MEMBER_EPOCH or
            UNKNOWN_MEMBER_ID if `member`, of the consumer protocol, has another epoch by now.
    """
    topics = None if partitions is None else by_topic(partitions, lambda tp: tp.partition)
    request = _offset_fetch_request(group_id, topics, require_stable)
    if member is not None and member.has_epoch:
        request.groups[0].member_id = member.member_id
        request.groups[0].member_epoch = member.generation

    def judge(response: Any, address: str) -> dict[TopicPartition, OffsetAndMetadata]:
        answer = response.groups[0] if response.groups else response
        what = f"reading the committed offsets of group {group_id}"
        check(what, answer, address)
        committed = {}
        for topic in answer.topics:
            for item in topic.partitions:
                check(what, item, address)
                if item.committed_offset != NO_OFFSET:
                    committed[TopicPartition(topic.name, item.partition_index)] = OffsetAndMetadata(
                        item.committed_offset, item.metadata or "", item.committed_leader_epoch
                    )
        return committed

    return await cluster.ask_group(
        group_id, request, judge, (1 if topics is not None else 2, _OFFSET_FETCH_VERSION)
    )


def _offset_fetch_request(
    group_id: str, topics: dict[str, list[int]] | None, require_stable: bool
) -> OffsetFetchRequest:
    """Both shapes at once: for one group up to version 7, for a list of groups from 8."""
    group = OffsetFetchRequestGroup(group_id=group_id, topics=None)
    old_topics: list[PartitionIndexes] | None = None
    if topics is not None:
        group.topics = [
            OffsetFetchRequestTopics(name=name, partition_indexes=numbers)
            for name, numbers in topics.items()
        ]
        old_topics = [
            PartitionIndexes(name=name, partition_indexes=numbers)
            for name, numbers in topics.items()
        ]
    return OffsetFetchRequest(
        group_id=group_id, topics=old_topics, groups=[group], require_stable=require_stable
    )


def committed_topics(
    offsets: Mapping[TopicPartition, OffsetAndMetadata], topic: Any, part: Any
) -> list[Any]:
    """Positions as the classes of a request that stores them: `topic` and, in it, `part`."""
    topics = by_topic(
        offsets,
        lambda tp: part(
            partition_index=tp.partition,
            committed_offset=offsets[tp].offset,
            committed_leader_epoch=offsets[tp].leader_epoch,
            committed_metadata=offsets[tp].metadata,
        ),
    )
    return [topic(name=name, partitions=parts) for name, parts in topics.items()]


async def commit_offsets(
    cluster: Cluster, group: GroupMetadata, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> None:
    """Store positions of a group, durably.

    Raises:
        BrokerRefused: the group has moved on without this member, or is in use by others; or a
            topic does not exist, then the positions in other topics are stored.
    """
    if not offsets:
        return
    request = OffsetCommitRequest(
        group_id=group.group_id,
        generation_id_or_member_epoch=group.generation,
        member_id=group.member_id,
        group_instance_id=group.instance_id,
        topics=committed_topics(offsets, OffsetCommitRequestTopic, OffsetCommitRequestPartition),
    )

    def judge(response: Any, address: str) -> None:
        for topic in response.topics:
            for item in topic.partitions:
                where = f"{topic.name}-{item.partition_index}"
                what = f"committing {where} for group {group.group_id}"
                if item.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    # A topic that is about to appear is worth a retry; this one is gone.
                    raise BrokerRefused(what, item.error_code, broker=address, is_final=True)
                check(what, item, address)

    await cluster.ask_group(group.group_id, request, judge, (2, _OFFSET_COMMIT_VERSION))

"""Share groups, asked about and changed from outside: this part of the admin client.

Listing and deleting them is as for all groups: `client.core.groups`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from client.checks import check_group, numbers_of
from client.core.cluster import Cluster
from client.core.groups import members_of
from client.core.parts import by_topic, check
from client.descriptions import GroupInfo, SharePosition
from client.types import TopicPartition
from protocol.api.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from protocol.api.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from protocol.api.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from protocol.api.share_group_describe import ShareGroupDescribeRequest

SHARE_TYPE = "share"


class ShareGroupAdmin:
    """The calls of `client.admin.Admin` about share groups."""

    _cluster: Cluster

    async def describe_share_group(self, group_id: str) -> GroupInfo:
        """One share group and its members; several may have the same partition.

        Raises:
            BrokerRefused: GROUP_ID_NOT_FOUND if it does not exist, or is of another type.
            UnsupportedByBroker: the broker has no share groups.
        """
        check_group(group_id)

        def judge(response: Any, address: str) -> GroupInfo:
            group = response.groups[0]
            check(f"describing share group {group_id}", group, address)
            return GroupInfo(
                group_id=group.group_id,
                state=group.group_state,
                protocol_type=SHARE_TYPE,
                assignor=group.assignor_name,
                members=members_of(group),
            )

        request = ShareGroupDescribeRequest(group_ids=[group_id])
        return await self._cluster.ask_group(group_id, request, judge, versions=(1, None))

    async def share_group_offsets(self, group_id: str) -> dict[TopicPartition, SharePosition]:
        """Where a share group stands in all its partitions; nothing if it does not exist.

        Raises:
            BrokerRefused: the broker does not know yet.
        """
        check_group(group_id)

        what = f"reading the offsets of share group {group_id}"
        request = DescribeShareGroupOffsetsRequest(
            groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None)]
        )

        def judge(response: Any, address: str) -> dict[TopicPartition, SharePosition]:
            group = response.groups[0]
            check(what, group, address)
            found = {}
            for topic in group.topics:
                for part in topic.partitions:
                    partition = TopicPartition(topic.topic_name, part.partition_index)
                    check(f"{what}: {partition}", part, address)
                    found[partition] = SharePosition(
                        start_offset=None if part.start_offset < 0 else part.start_offset,
                        lag=None if part.lag < 0 else part.lag,
                    )
            return dict(sorted(found.items()))

        return await self._cluster.ask_group(group_id, request, judge)

    async def alter_share_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int]
    ) -> None:
        """Let a share group without members begin at these offsets; it is made if there is none.

        Raises:
            BrokerRefused: the group has members, or a partition does not exist.
            InvalidUse: `offsets` gives no offsets for partitions.
        """
        check_group(group_id)
        offsets = numbers_of("offsets", offsets, 0)
        topics = by_topic(
            offsets,
            lambda tp: AlterShareGroupOffsetsRequestPartition(
                partition_index=tp.partition, start_offset=offsets[tp]
            ),
        )
        request = AlterShareGroupOffsetsRequest(
            group_id=group_id,
            topics=[
                AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=parts)
                for name, parts in topics.items()
            ],
        )

        def judge(response: Any, address: str) -> None:
            what = f"moving share group {group_id}"
            check(what, response, address)
            for topic in response.responses:
                for part in topic.partitions:
                    check(f"{what}: {topic.topic_name}-{part.partition_index}", part, address)

        await self._cluster.ask_group(group_id, request, judge)

    async def delete_share_group_offsets(self, group_id: str, topics: Iterable[str]) -> None:
        """Let a share group without members forget topics.

        Raises:
            BrokerRefused: the group has members or does not exist, or has not read a topic.
        """
        check_group(group_id)
        request = DeleteShareGroupOffsetsRequest(
            group_id=group_id,
            topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics],
        )

        def judge(response: Any, address: str) -> None:
            what = f"deleting offsets of share group {group_id}"
            check(what, response, address)
            for topic in response.responses:
                check(f"{what}: {topic.topic_name}", topic, address)

        await self._cluster.ask_group(group_id, request, judge)

"""Consumer groups, asked about and changed from outside: this part of the admin client.

The coordinator of a group answers for it; the list of groups is the union of all brokers' lists.
"""

from collections.abc import Iterable, Mapping

from client.checks import check_group, positions_of
from client.core.cluster import Cluster, CoordinatorType
from client.core.offsets import commit_offsets, fetch_committed
from client.core.parts import check
from client.descriptions import GroupInfo, GroupListing, GroupMemberInfo
from client.errors import BrokerRefused, ClientError, UnsupportedByBroker
from client.subscription import PROTOCOL_TYPE, decode_assignment
from client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from protocol.api.consumer_group_describe import ConsumerGroupDescribeRequest
from protocol.api.consumer_group_describe import DescribedGroup as ConsumerGroupInfo
from protocol.api.delete_groups import DeleteGroupsRequest
from protocol.api.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
)
from protocol.api.list_groups import ListGroupsRequest
from protocol.api.share_group_describe import DescribedGroup as ShareGroupInfo
from protocol.error_codes import ErrorCode
from values.words import format_count


class GroupAdmin:
    """The calls of `client.admin.Admin` about groups and their positions."""

    _cluster: Cluster

    async def groups(self) -> list[GroupListing]:
        """All groups of all brokers, by name.

        Raises:
            BrokerRefused: a broker does not know yet.
        """
        await self._cluster.refresh(())
        found: dict[str, GroupListing] = {}
        for node_id in list(self._cluster.brokers):
            connection = await self._cluster.connection(node_id)
            response = await connection.call(ListGroupsRequest())
            check("listing groups", response, connection.address)
            for group in response.groups:
                found[group.group_id] = GroupListing(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type,
                    state=group.group_state,
                    group_type=group.group_type,
                )
        return sorted(found.values(), key=lambda group: group.group_id)

    async def describe_group(self, group_id: str) -> GroupInfo:
        """One group and its members.

        Raises:
            BrokerRefused: GROUP_ID_NOT_FOUND if it does not exist.
        """
        check_group(group_id)

        async def attempt() -> GroupInfo:
            response, address = await self._cluster.call_coordinator(
                CoordinatorType.GROUP, group_id, DescribeGroupsRequest(groups=[group_id])
            )
            group = response.groups[0]
            code = group.error_code
            if code == ErrorCode.NONE and group.group_state == "Dead":
                code = ErrorCode.GROUP_ID_NOT_FOUND
            if code == ErrorCode.GROUP_ID_NOT_FOUND:
                consumers = await _describe_consumers(self._cluster, group_id)
                if consumers is not None:
                    return consumers
            if code != ErrorCode.NONE:
                raise BrokerRefused(f"describing group {group_id}", code, broker=address)
            return _group_info(group)

        return await self._cluster.retrying_at_coordinator(CoordinatorType.GROUP, group_id, attempt)

    async def delete_group(self, group_id: str) -> None:
        """Delete a group without members, with its committed offsets.

        Raises:
            BrokerRefused: it has members, or does not exist.
        """
        check_group(group_id)
        await self._cluster.ask_group(
            group_id,
            DeleteGroupsRequest(groups_names=[group_id]),
            lambda answer, address: check(f"deleting group {group_id}", answer.results[0], address),
        )

    async def group_offsets(self, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """All committed positions of a group, in order of partition."""
        check_group(group_id)
        committed = await fetch_committed(self._cluster, group_id)
        return dict(sorted(committed.items()))

    async def require_no_members(self, group_id: str) -> None:
        """Refuse to move a group that has members, as the broker would.

        Raises:
            BrokerRefused: it has members, or does not exist.
        """
        members = (await self.describe_group(group_id)).members
        if members:
            raise BrokerRefused(
                f"moving group {group_id}, which has {format_count(len(members), 'member')}",
                ErrorCode.NON_EMPTY_GROUP,
            )

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int]
    ) -> None:
        """Set positions of a group that has no members.

        Raises:
            InvalidUse: a key is not a partition, or a value not an offset.
            BrokerRefused: the group has members.
        """
        check_group(group_id)
        group = GroupMetadata(group_id=group_id)
        await commit_offsets(self._cluster, group, positions_of(offsets))


async def _describe_consumers(cluster: Cluster, group_id: str) -> GroupInfo | None:
    """A group of the consumer protocol (KIP-848); None when it is none, or the broker has none."""
    request = ConsumerGroupDescribeRequest(group_ids=[group_id])
    try:
        response, _ = await cluster.call_coordinator(CoordinatorType.GROUP, group_id, request)
    except UnsupportedByBroker:
        return None
    group = response.groups[0]
    if group.error_code != ErrorCode.NONE:
        return None
    return GroupInfo(
        group_id=group.group_id,
        state=group.group_state,
        protocol_type=PROTOCOL_TYPE,
        assignor=group.assignor_name,
        members=members_of(group),
    )


def members_of(group: ConsumerGroupInfo | ShareGroupInfo) -> tuple[GroupMemberInfo, ...]:
    """The members of a group whose coordinator assigns; those of share groups are not static."""
    return tuple(
        GroupMemberInfo(
            member_id=member.member_id,
            instance_id=getattr(member, "instance_id", None),
            client_id=member.client_id,
            client_host=member.client_host,
            partitions=tuple(
                TopicPartition(topic.topic_name, index)
                for topic in member.assignment.topic_partitions
                for index in topic.partitions
            ),
        )
        for member in group.members
    )


def _group_info(group: DescribedGroup) -> GroupInfo:
    return GroupInfo(
        group_id=group.group_id,
        state=group.group_state,
        protocol_type=group.protocol_type,
        assignor=group.protocol_data,
        members=tuple(_member_info(member, group.protocol_type) for member in group.members),
    )


def _member_info(member: DescribedGroupMember, protocol_type: str) -> GroupMemberInfo:
    return GroupMemberInfo(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        partitions=tuple(_share_of(member.member_assignment, protocol_type)),
    )


def _share_of(assignment: bytes, protocol_type: str) -> Iterable[TopicPartition]:
    """The partitions in an assignment; those of other protocols than ours stay opaque."""
    if protocol_type != PROTOCOL_TYPE:
        return ()
    try:
        return decode_assignment(assignment)
    except ClientError:
        return ()

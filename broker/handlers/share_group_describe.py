"""ShareGroupDescribe (key 77, version 1): share groups and their members.

A group that is not a share group is GROUP_ID_NOT_FOUND.

Source: KIP-932; Kafka `ShareGroup.asDescribedGroup`.
"""

from broker.groups.consumer.values import Partitions
from broker.groups.share.assignor import SIMPLE
from broker.groups.share.group import ShareGroup
from broker.groups.share.group_values import ShareMember
from broker.requests.authorized_operations import GROUP_OPERATIONS, NOT_ASKED
from broker.requests.context import Context, RequestContext
from broker.requests.described_groups import absence, named_partitions
from protocol.api import share_group_describe as api
from protocol.error_codes import ErrorCode
from storage.disk.steps import Steps


def handle(
    context: Context, request: RequestContext, message: api.ShareGroupDescribeRequest
) -> Steps[api.ShareGroupDescribeResponse]:
    """Each requested group, in the order of the request."""
    operations = GROUP_OPERATIONS if message.include_authorized_operations else NOT_ASKED
    groups = []
    for group_id in message.group_ids:
        group = context.groups.share_groups.get(group_id)
        if not group_id:
            described = api.DescribedGroup(group_id="", error_code=ErrorCode.INVALID_GROUP_ID)
        elif group is None:
            described = api.DescribedGroup(
                group_id=group_id,
                error_code=ErrorCode.GROUP_ID_NOT_FOUND,
                error_message=absence(context, group_id, "share"),
            )
        else:
            described = _describe(context, group)
            described.authorized_operations = operations
        groups.append(described)
        yield None
    return api.ShareGroupDescribeResponse(groups=groups)


def _describe(context: Context, group: ShareGroup) -> api.DescribedGroup:
    return api.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=SIMPLE,
        members=[_member(context, member) for member in group.members.values()],
    )


def _member(context: Context, member: ShareMember) -> api.Member:
    said = member.subscription
    return api.Member(
        member_id=member.member_id,
        rack_id=said.rack_id,
        member_epoch=member.current.epoch,
        client_id=said.client_id,
        client_host=f"/{said.client_host}",
        subscribed_topic_names=sorted(said.names),
        assignment=_assignment(context, member.current.assigned),
    )


def _assignment(context: Context, partitions: Partitions) -> api.Assignment:
    return api.Assignment(
        topic_partitions=[
            api.TopicPartitions(topic_id=topic_id, topic_name=name, partitions=indexes)
            for topic_id, name, indexes in named_partitions(context, partitions)
        ]
    )

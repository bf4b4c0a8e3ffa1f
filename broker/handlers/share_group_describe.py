"""ShareGroupDescribe (key 77, version 1): share groups and their members.

A group that is not a share group is GROUP_ID_NOT_FOUND.

Source: KIP-932; Kafka `ShareGroup.asDescribedGroup`.
"""

from broker.groups.share.assignor import SIMPLE
from broker.groups.share.group import ShareGroup
from broker.groups.share.group_values import ShareMember
from broker.requests.context import Context
from broker.requests.described_groups import assignment, describing
from protocol.api import share_group_describe as api


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
        assignment=assignment(context, member.current.assigned),
    )


handle = describing(
    api.ShareGroupDescribeResponse,
    api.DescribedGroup,
    lambda context: context.groups.share_groups,
    _describe,
    group_type="share",
)
"""Each requested group, in the order of the request."""

"""ConsumerGroupDescribe (key 69, versions 0-1): groups of the consumer protocol and their members.

A member's assignment is all it may hold, including what it has yet to give up. A group that is not
of this protocol is GROUP_ID_NOT_FOUND; admin clients then send DescribeGroups.

Source: KIP-848, KIP-1099; Kafka `ConsumerGroup.asDescribedGroup`.
"""

from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.values import NO_PARTITIONS, ConsumerMember, Partitions
from broker.requests.context import Context
from broker.requests.described_groups import assignment, describing
from protocol.api import consumer_group_describe as api

_CLASSIC_MEMBER = 0
_CONSUMER_MEMBER = 1


def _describe(context: Context, group: ConsumerGroup) -> api.DescribedGroup:
    return api.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=[
            _member(context, member, group.targets.get(member.member_id, NO_PARTITIONS))
            for member in group.members.values()
        ],
    )


def _member(context: Context, member: ConsumerMember, target: Partitions) -> api.Member:
    subscription = member.subscription
    return api.Member(
        member_id=member.member_id,
        instance_id=subscription.instance_id,
        rack_id=subscription.rack_id,
        member_epoch=member.current.member_epoch,
        client_id=subscription.client_id,
        client_host=f"/{subscription.client_host}",
        subscribed_topic_names=sorted(subscription.names),
        subscribed_topic_regex=subscription.regex or "",
        assignment=assignment(context, member.current.assigned | member.current.pending_revocation),
        target_assignment=assignment(context, target),
        member_type=_CLASSIC_MEMBER if member.is_classic else _CONSUMER_MEMBER,
    )


handle = describing(
    api.ConsumerGroupDescribeResponse,
    api.DescribedGroup,
    lambda context: context.groups.consumer_groups,
    _describe,
    group_type="consumer",
)
"""Each requested group, in the order of the request."""

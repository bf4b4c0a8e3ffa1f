"""Guards of the APIs of share groups.

The group comes before its topics, as for other groups; handlers check each topic themselves.

Source: Kafka `KafkaApis`.
"""

from typing import Any

from broker.replies.forms import then
from broker.requests.access import Check
from broker.requests.context import Context, Handler, Reply, RequestContext
from broker.rights.guards import GROUP_DENIED, GROUP_MESSAGE, TOPIC_DENIED, on_group, parted
from protocol.acl import Operation, ResourceType
from protocol.api import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    describe_share_group_offsets,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
)

_TOPICS_HIDDEN = "The group has described topic(s) that the client is not authorized to describe."


def _refusing(response: type) -> Any:
    return lambda message, request: response(error_code=GROUP_DENIED)


share_fetch_guard = on_group(Operation.READ, _refusing(share_fetch.ShareFetchResponse))
share_acknowledge_guard = on_group(
    Operation.READ, _refusing(share_acknowledge.ShareAcknowledgeResponse)
)
alter_share_group_offsets_guard = on_group(
    Operation.READ, _refusing(alter_share_group_offsets.AlterShareGroupOffsetsResponse)
)
delete_share_group_offsets_guard = on_group(
    Operation.DELETE, _refusing(delete_share_group_offsets.DeleteShareGroupOffsetsResponse)
)


def share_group_heartbeat_guard(
    context: Context,
    request: RequestContext,
    message: share_group_heartbeat.ShareGroupHeartbeatRequest,
    handler: Handler,
) -> Reply:
    """READ on the group, and DESCRIBE on every topic that the member names."""
    check = Check(context, request)
    if not check.group(Operation.READ, message.group_id):
        return share_group_heartbeat.ShareGroupHeartbeatResponse(error_code=GROUP_DENIED)
    names = message.subscribed_topic_names or ()
    if not all(check.topic(Operation.DESCRIBE, name) for name in names):
        return share_group_heartbeat.ShareGroupHeartbeatResponse(error_code=TOPIC_DENIED)
    return handler(context, request, message)


def share_group_describe_guard(
    context: Context,
    request: RequestContext,
    message: share_group_describe.ShareGroupDescribeRequest,
    handler: Handler,
) -> Reply:
    """DESCRIBE on each group, and on every topic that its members have."""
    check = Check(context, request)
    allowed, denied = parted(message.group_ids, lambda name: check.group(Operation.DESCRIBE, name))

    def with_rights(answer: share_group_describe.ShareGroupDescribeResponse) -> object:
        for place, group in enumerate(answer.groups):
            topics = {
                topic.topic_name
                for member in group.members
                for topic in member.assignment.topic_partitions
            }
            if not all(check.topic(Operation.DESCRIBE, name) for name in topics):
                answer.groups[place] = share_group_describe.DescribedGroup(
                    group_id=group.group_id, error_code=TOPIC_DENIED, error_message=_TOPICS_HIDDEN
                )
            elif message.include_authorized_operations and not group.error_code:
                group.authorized_operations = check.bits(ResourceType.GROUP, group.group_id)
        answer.groups.extend(
            share_group_describe.DescribedGroup(
                group_id=name, error_code=GROUP_DENIED, error_message=GROUP_MESSAGE
            )
            for name in denied
        )
        return answer

    if not allowed and denied:
        return with_rights(share_group_describe.ShareGroupDescribeResponse())
    message.group_ids = allowed
    return then(handler(context, request, message), with_rights)


def describe_share_group_offsets_guard(
    context: Context,
    request: RequestContext,
    message: describe_share_group_offsets.DescribeShareGroupOffsetsRequest,
    handler: Handler,
) -> Reply:
    """DESCRIBE on each group, then on each topic; hidden topics are left out when all are asked."""
    check = Check(context, request)
    allowed, denied = parted(
        message.groups, lambda group: check.group(Operation.DESCRIBE, group.group_id)
    )
    asks_all = {group.group_id for group in allowed if group.topics is None}

    def with_rights(answer: describe_share_group_offsets.DescribeShareGroupOffsetsResponse) -> Any:
        for group in answer.groups:
            seen, hidden = parted(
                group.topics, lambda topic: check.topic(Operation.DESCRIBE, topic.topic_name)
            )
            group.topics = seen
            if group.group_id not in asks_all:
                group.topics += [_hidden(topic) for topic in hidden]
        answer.groups.extend(
            describe_share_group_offsets.DescribeShareGroupOffsetsResponseGroup(
                group_id=group.group_id, error_code=GROUP_DENIED, error_message=GROUP_MESSAGE
            )
            for group in denied
        )
        return answer

    message.groups = allowed
    return then(handler(context, request, message), with_rights)


def _hidden(
    topic: describe_share_group_offsets.DescribeShareGroupOffsetsResponseTopic,
) -> describe_share_group_offsets.DescribeShareGroupOffsetsResponseTopic:
    return describe_share_group_offsets.DescribeShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        partitions=[
            describe_share_group_offsets.DescribeShareGroupOffsetsResponsePartition(
                partition_index=each.partition_index, start_offset=-1, error_code=TOPIC_DENIED
            )
            for each in topic.partitions
        ],
    )

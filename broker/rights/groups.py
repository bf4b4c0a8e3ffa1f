"""Guards of the APIs about groups and their offsets.

The group comes before its topics: a client without the right on the group learns nothing of them.

Source: Kafka `KafkaApis`.
"""

from typing import Any

from broker.replies.forms import then
from broker.requests.access import Check
from broker.requests.context import Context, Handler, Reply, RequestContext
from broker.rights.guards import (
    GROUP_DENIED,
    GROUP_MESSAGE,
    TOPIC_DENIED,
    joined,
    on_group,
    on_items,
    parted,
)
from protocol.acl import CLUSTER_NAME, Operation, ResourceType
from protocol.api import (
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from protocol.error_codes import ErrorCode

_GROUP_ERROR_SINCE = 2
_GROUPS_SINCE = 8
_PROTOCOL_SINCE = 5
_NO_PROTOCOL_SINCE = 7
_BITS_SINCE = 3
_COMMIT_BY_ID_SINCE = 10
_TOPICS_HIDDEN = "The group has described topic(s) that the client is not authorized to describe."

join_group_guard = on_group(
    Operation.READ,
    lambda message, request: join_group.JoinGroupResponse(
        error_code=GROUP_DENIED,
        generation_id=-1,
        protocol_name=None if request.api_version >= _NO_PROTOCOL_SINCE else "",
        leader="",
        member_id="",
    ),
)
heartbeat_guard = on_group(
    Operation.READ, lambda message, request: heartbeat.HeartbeatResponse(error_code=GROUP_DENIED)
)
leave_group_guard = on_group(
    Operation.READ,
    lambda message, request: leave_group.LeaveGroupResponse(error_code=GROUP_DENIED),
)


def _refused_sync(message: Any, request: RequestContext) -> sync_group.SyncGroupResponse:
    lacks = None in (message.protocol_type, message.protocol_name)
    if request.api_version >= _PROTOCOL_SINCE and lacks:
        return sync_group.SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return sync_group.SyncGroupResponse(error_code=GROUP_DENIED)


sync_group_guard = on_group(Operation.READ, _refused_sync)

delete_groups_guard = on_items(
    "groups_names",
    lambda check, name: check.group(Operation.DELETE, name),
    "results",
    lambda name: delete_groups.DeletableGroupResult(group_id=name, error_code=GROUP_DENIED),
    delete_groups.DeleteGroupsResponse,
    merge=lambda names: list(dict.fromkeys(names)),
)


def describe_groups_guard(
    context: Context,
    request: RequestContext,
    message: describe_groups.DescribeGroupsRequest,
    handler: Handler,
) -> Reply:
    """DESCRIBE on each group."""
    check = Check(context, request)
    allowed, denied = parted(message.groups, lambda name: check.group(Operation.DESCRIBE, name))

    def with_rights(answer: describe_groups.DescribeGroupsResponse) -> object:
        if message.include_authorized_operations and request.api_version >= _BITS_SINCE:
            for group in answer.groups:
                if not group.error_code:
                    group.authorized_operations = check.bits(ResourceType.GROUP, group.group_id)
        answer.groups.extend(
            describe_groups.DescribedGroup(
                group_id=name, error_code=GROUP_DENIED, error_message=None
            )
            for name in denied
        )
        return answer

    if not allowed and denied:
        return with_rights(describe_groups.DescribeGroupsResponse())
    message.groups = allowed
    return then(handler(context, request, message), with_rights)


def consumer_group_describe_guard(
    context: Context,
    request: RequestContext,
    message: consumer_group_describe.ConsumerGroupDescribeRequest,
    handler: Handler,
) -> Reply:
    """DESCRIBE on each group, and on every topic that its members have."""
    check = Check(context, request)
    allowed, denied = parted(message.group_ids, lambda name: check.group(Operation.DESCRIBE, name))

    def with_rights(answer: consumer_group_describe.ConsumerGroupDescribeResponse) -> object:
        for place, group in enumerate(answer.groups):
            topics = {
                topic.topic_name
                for member in group.members
                for assignment in (member.assignment, member.target_assignment)
                for topic in assignment.topic_partitions
            }
            if not all(check.topic(Operation.DESCRIBE, name) for name in topics):
                answer.groups[place] = consumer_group_describe.DescribedGroup(
                    group_id=group.group_id, error_code=TOPIC_DENIED, error_message=_TOPICS_HIDDEN
                )
            elif message.include_authorized_operations and not group.error_code:
                group.authorized_operations = check.bits(ResourceType.GROUP, group.group_id)
        answer.groups.extend(
            consumer_group_describe.DescribedGroup(
                group_id=name, error_code=GROUP_DENIED, error_message=GROUP_MESSAGE
            )
            for name in denied
        )
        return answer

    if not allowed and denied:
        return with_rights(consumer_group_describe.ConsumerGroupDescribeResponse())
    message.group_ids = allowed
    return then(handler(context, request, message), with_rights)


def list_groups_guard(
    context: Context,
    request: RequestContext,
    message: list_groups.ListGroupsRequest,
    handler: Handler,
) -> Reply:
    """All groups with DESCRIBE on the cluster, else those with DESCRIBE on the group."""
    check = Check(context, request)
    if check.sees(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return handler(context, request, message)

    def filtered(answer: list_groups.ListGroupsResponse) -> object:
        answer.groups = [
            group
            for group in answer.groups
            if check.sees(Operation.DESCRIBE, ResourceType.GROUP, group.group_id)
        ]
        return answer

    return then(handler(context, request, message), filtered)


def consumer_group_heartbeat_guard(
    context: Context,
    request: RequestContext,
    message: consumer_group_heartbeat.ConsumerGroupHeartbeatRequest,
    handler: Handler,
) -> Reply:
    """READ on the group, and DESCRIBE on every topic that the member names."""
    check = Check(context, request)
    code = ErrorCode.NONE
    if not check.group(Operation.READ, message.group_id):
        code = GROUP_DENIED
    elif not all(
        check.topic(Operation.DESCRIBE, name) for name in message.subscribed_topic_names or ()
    ):
        code = TOPIC_DENIED
    if code:
        return consumer_group_heartbeat.ConsumerGroupHeartbeatResponse(error_code=code)
    return handler(context, request, message)


def offset_commit_guard(
    context: Context,
    request: RequestContext,
    message: offset_commit.OffsetCommitRequest,
    handler: Handler,
) -> Reply:
    """READ on the group, then READ on each topic."""
    check = Check(context, request)
    if not check.group(Operation.READ, message.group_id):
        return _refused_commit(offset_commit.OffsetCommitResponse(), message.topics, GROUP_DENIED)

    def is_allowed(topic: offset_commit.OffsetCommitRequestTopic) -> bool:
        name = topic.name
        if request.api_version >= _COMMIT_BY_ID_SINCE:
            found = context.topics.find_by_id(topic.topic_id)
            if found is None:
                return True  # the handler answers that there is no such id
            name = found.name
        return check.topic(Operation.READ, name)

    allowed, denied = parted(message.topics, is_allowed)
    if not denied:
        return handler(context, request, message)
    if not allowed:
        return _refused_commit(offset_commit.OffsetCommitResponse(), joined(denied), TOPIC_DENIED)
    message.topics = allowed
    return then(
        handler(context, request, message),
        lambda answer: _refused_commit(answer, joined(denied), TOPIC_DENIED),
    )


def _refused_commit(
    answer: offset_commit.OffsetCommitResponse,
    topics: list[offset_commit.OffsetCommitRequestTopic],
    code: int,
) -> offset_commit.OffsetCommitResponse:
    answer.topics.extend(
        offset_commit.OffsetCommitResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                offset_commit.OffsetCommitResponsePartition(
                    partition_index=partition.partition_index, error_code=code
                )
                for partition in topic.partitions
            ],
        )
        for topic in topics
    )
    return answer


def offset_delete_guard(
    context: Context,
    request: RequestContext,
    message: offset_delete.OffsetDeleteRequest,
    handler: Handler,
) -> Reply:
    """DELETE on the group, then READ on each topic."""
    check = Check(context, request)
    if not check.group(Operation.DELETE, message.group_id):
        return offset_delete.OffsetDeleteResponse(error_code=GROUP_DENIED)
    allowed, denied = parted(message.topics, lambda t: check.topic(Operation.READ, t.name))
    if not denied:
        return handler(context, request, message)

    def with_refusals(answer: offset_delete.OffsetDeleteResponse) -> object:
        if answer.error_code:
            return answer
        answer.topics.extend(
            offset_delete.OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    offset_delete.OffsetDeleteResponsePartition(
                        partition_index=partition.partition_index, error_code=TOPIC_DENIED
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in joined(denied)
        )
        return answer

    message.topics = allowed
    return then(handler(context, request, message), with_refusals)


def offset_fetch_guard(
    context: Context,
    request: RequestContext,
    message: offset_fetch.OffsetFetchRequest,
    handler: Handler,
) -> Reply:
    """DESCRIBE on the group, then DESCRIBE on each topic; a list of all topics hides some."""
    check = Check(context, request)
    if request.api_version >= _GROUPS_SINCE:
        return _many_groups(context, request, message, handler, check)
    if not check.group(Operation.DESCRIBE, message.group_id):
        if request.api_version >= _GROUP_ERROR_SINCE:
            return offset_fetch.OffsetFetchResponse(error_code=GROUP_DENIED)
        answer = offset_fetch.OffsetFetchResponse()
        answer.topics = [_refused_topic(topic, GROUP_DENIED) for topic in message.topics or ()]
        return answer
    asks_all = message.topics is None
    allowed, denied = parted(
        message.topics or (), lambda t: check.topic(Operation.DESCRIBE, t.name)
    )
    if not asks_all:
        message.topics = allowed

    def with_rights(answer: offset_fetch.OffsetFetchResponse) -> object:
        if asks_all:
            answer.topics = [t for t in answer.topics if _sees_topic(check, t.name)]
        answer.topics.extend(_refused_topic(topic, TOPIC_DENIED) for topic in denied)
        return answer

    return then(handler(context, request, message), with_rights)


def _sees_topic(check: Check, name: str) -> bool:
    return check.sees(Operation.DESCRIBE, ResourceType.TOPIC, name)


def _refused_topic(
    topic: offset_fetch.OffsetFetchRequestTopic, code: int
) -> offset_fetch.OffsetFetchResponseTopic:
    return offset_fetch.OffsetFetchResponseTopic(
        name=topic.name,
        partitions=[
            offset_fetch.OffsetFetchResponsePartition(
                partition_index=index,
                committed_offset=-1,
                committed_leader_epoch=-1,
                metadata="",
                error_code=code,
            )
            for index in topic.partition_indexes
        ],
    )


def _many_groups(
    context: Context,
    request: RequestContext,
    message: offset_fetch.OffsetFetchRequest,
    handler: Handler,
    check: Check,
) -> Reply:
    allowed, denied = parted(
        message.groups, lambda group: check.group(Operation.DESCRIBE, group.group_id)
    )
    refused: dict[str, list[offset_fetch.OffsetFetchRequestTopics]] = {}
    lists_all = set()

    def name_of(topic: offset_fetch.OffsetFetchRequestTopics) -> str | None:
        if topic.name:
            return topic.name
        found = context.topics.find_by_id(topic.topic_id)
        return None if found is None else found.name

    for group in allowed:
        if group.topics is None:
            lists_all.add(group.group_id)
            continue
        kept, hidden = parted(
            group.topics,
            lambda t: (name := name_of(t)) is None or check.topic(Operation.DESCRIBE, name),
        )
        group.topics = kept
        refused.setdefault(group.group_id, []).extend(hidden)

    def with_rights(answer: offset_fetch.OffsetFetchResponse) -> object:
        for group in answer.groups:
            if group.group_id in lists_all:
                group.topics = [
                    topic
                    for topic in group.topics
                    if (name := name_of(topic)) is None or _sees_topic(check, name)  # type: ignore[arg-type]
                ]
            group.topics.extend(
                offset_fetch.OffsetFetchResponseTopics(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        offset_fetch.OffsetFetchResponsePartitions(
                            partition_index=index,
                            committed_offset=-1,
                            committed_leader_epoch=-1,
                            metadata="",
                            error_code=TOPIC_DENIED,
                        )
                        for index in topic.partition_indexes
                    ],
                )
                for topic in refused.get(group.group_id, ())
            )
        answer.groups.extend(
            offset_fetch.OffsetFetchResponseGroup(
                group_id=group.group_id, topics=[], error_code=GROUP_DENIED
            )
            for group in denied
        )
        return answer

    if not allowed and denied:
        return with_rights(offset_fetch.OffsetFetchResponse())
    message.groups = allowed
    return then(handler(context, request, message), with_rights)

"""Guards of the APIs about groups and their offsets.

The group comes before its topics: a client without the right on the group learns nothing of them.

Source: Kafka `KafkaApis`.
"""

from collections.abc import Callable, Collection
from typing import Any

from broker.requests.access import Check
from broker.requests.context import RequestContext
from broker.requests.streams_requests import names_problem, topic_names
from broker.rights.guards import (
    GROUP_DENIED,
    GROUP_MESSAGE,
    TOPIC_DENIED,
    Guard,
    Steps,
    guard,
    joined,
    on_group,
    on_items,
    parted,
    refuse_topics,
    refused_topic,
    refusing,
    whole,
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
    share_group_describe,
    share_group_heartbeat,
    streams_group_describe,
    streams_group_heartbeat,
    sync_group,
)
from protocol.error_codes import ErrorCode
from protocol.structs import TopicErrors

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
    Operation.READ, refusing(heartbeat.HeartbeatResponse, error_code=GROUP_DENIED)
)
leave_group_guard = on_group(
    Operation.READ, refusing(leave_group.LeaveGroupResponse, error_code=GROUP_DENIED)
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


@guard
def describe_groups_guard(check: Check, message: describe_groups.DescribeGroupsRequest) -> Steps:
    """DESCRIBE on each group."""
    message.groups, denied = parted(
        message.groups, lambda name: check.group(Operation.DESCRIBE, name)
    )
    answer = describe_groups.DescribeGroupsResponse()
    if message.groups or not denied:
        answer = yield
    if message.include_authorized_operations and check.request.api_version >= _BITS_SINCE:
        for group in answer.groups:
            if not group.error_code:
                group.authorized_operations = check.bits(ResourceType.GROUP, group.group_id)
    answer.groups.extend(
        describe_groups.DescribedGroup(group_id=name, error_code=GROUP_DENIED, error_message=None)
        for name in denied
    )
    return answer


def _assigned(*assignments: str) -> Callable[[Any], set[str]]:
    """What finds the topics that the members of a group have, in these fields of a member."""
    return lambda group: {
        topic.topic_name
        for member in group.members
        for assignment in assignments
        for topic in getattr(member, assignment).topic_partitions
    }


def _describing(
    response: Any, described: Any, topics_of: Callable[[Any], Collection[str]]
) -> Guard:
    """DESCRIBE on each group, and on every topic of it.

    Args:
        response: the class of the answer.
        described: the class of a group in it.
        topics_of: the topics of such a group: those that its members have, or of its topology.
    """

    @guard
    def describe_guard(check: Check, message: Any) -> Steps:
        message.group_ids, denied = parted(
            message.group_ids, lambda name: check.group(Operation.DESCRIBE, name)
        )
        answer = response()
        if message.group_ids or not denied:
            answer = yield
        for place, group in enumerate(answer.groups):
            if not all(check.topic(Operation.DESCRIBE, name) for name in topics_of(group)):
                answer.groups[place] = described(
                    group_id=group.group_id, error_code=TOPIC_DENIED, error_message=_TOPICS_HIDDEN
                )
            elif message.include_authorized_operations and not group.error_code:
                group.authorized_operations = check.bits(ResourceType.GROUP, group.group_id)
        answer.groups.extend(
            described(group_id=name, error_code=GROUP_DENIED, error_message=GROUP_MESSAGE)
            for name in denied
        )
        return answer

    return describe_guard


consumer_group_describe_guard = _describing(
    consumer_group_describe.ConsumerGroupDescribeResponse,
    consumer_group_describe.DescribedGroup,
    _assigned("assignment", "target_assignment"),
)
share_group_describe_guard = _describing(
    share_group_describe.ShareGroupDescribeResponse,
    share_group_describe.DescribedGroup,
    _assigned("assignment"),
)


streams_group_describe_guard = _describing(
    streams_group_describe.StreamsGroupDescribeResponse,
    streams_group_describe.DescribedGroup,
    lambda group: topic_names(group.topology),
)


@whole
def streams_group_heartbeat_guard(
    check: Check, message: streams_group_heartbeat.StreamsGroupHeartbeatRequest
) -> Any:
    """READ on the group, and DESCRIBE on every topic of a valid topology."""
    if not check.group(Operation.READ, message.group_id):
        return streams_group_heartbeat.StreamsGroupHeartbeatResponse(error_code=GROUP_DENIED)
    names = topic_names(message.topology)
    if names_problem(names) is not None:
        return None  # it is refused as a whole
    if not all(check.topic(Operation.DESCRIBE, name) for name in names):
        return streams_group_heartbeat.StreamsGroupHeartbeatResponse(error_code=TOPIC_DENIED)
    return None


@guard
def list_groups_guard(check: Check, message: list_groups.ListGroupsRequest) -> Steps:
    """All groups with DESCRIBE on the cluster, else those with DESCRIBE on the group."""
    if check.sees(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return None
    answer: list_groups.ListGroupsResponse = yield
    answer.groups = [
        group
        for group in answer.groups
        if check.sees(Operation.DESCRIBE, ResourceType.GROUP, group.group_id)
    ]
    return answer


def _heartbeat(response: Any) -> Guard:
    """READ on the group, and DESCRIBE on every topic that the member names."""

    @whole
    def heartbeat_guard(check: Check, message: Any) -> Any:
        if not check.group(Operation.READ, message.group_id):
            return response(error_code=GROUP_DENIED)
        names = message.subscribed_topic_names or ()
        if not all(check.topic(Operation.DESCRIBE, name) for name in names):
            return response(error_code=TOPIC_DENIED)
        return None

    return heartbeat_guard


consumer_group_heartbeat_guard = _heartbeat(consumer_group_heartbeat.ConsumerGroupHeartbeatResponse)
share_group_heartbeat_guard = _heartbeat(share_group_heartbeat.ShareGroupHeartbeatResponse)


@guard
def offset_commit_guard(check: Check, message: offset_commit.OffsetCommitRequest) -> Steps:
    """READ on the group, then READ on each topic."""
    answer = offset_commit.OffsetCommitResponse()
    if not check.group(Operation.READ, message.group_id):
        return refuse_topics(
            answer, offset_commit.OffsetCommitResponseTopic, message.topics, GROUP_DENIED
        )

    def is_allowed(topic: offset_commit.OffsetCommitRequestTopic) -> bool:
        name = topic.name
        if check.request.api_version >= _COMMIT_BY_ID_SINCE:
            found = check.context.topics.find_by_id(topic.topic_id)
            if found is None:
                return True  # the handler answers that there is no such id
            name = found.name
        return check.topic(Operation.READ, name)

    message.topics, denied = parted(message.topics, is_allowed)
    if not denied:
        return None
    if message.topics:
        answer = yield
    return refuse_topics(
        answer, offset_commit.OffsetCommitResponseTopic, joined(denied), TOPIC_DENIED
    )


@guard
def offset_delete_guard(check: Check, message: offset_delete.OffsetDeleteRequest) -> Steps:
    """DELETE on the group, then READ on each topic."""
    if not check.group(Operation.DELETE, message.group_id):
        return offset_delete.OffsetDeleteResponse(error_code=GROUP_DENIED)
    message.topics, denied = parted(message.topics, lambda t: check.topic(Operation.READ, t.name))
    if not denied:
        return None
    answer: offset_delete.OffsetDeleteResponse = yield
    if answer.error_code:
        return answer
    return refuse_topics(answer, TopicErrors, joined(denied), TOPIC_DENIED)


@guard
def offset_fetch_guard(check: Check, message: offset_fetch.OffsetFetchRequest) -> Steps:
    """DESCRIBE on the group, then DESCRIBE on each topic; a list of all topics hides some."""
    if check.request.api_version >= _GROUPS_SINCE:
        return (yield from _many_groups(check, message))
    answer = offset_fetch.OffsetFetchResponse()
    if not check.group(Operation.DESCRIBE, message.group_id):
        if check.request.api_version >= _GROUP_ERROR_SINCE:
            answer.error_code = GROUP_DENIED
        else:
            answer.topics = [_refused_topic(topic, GROUP_DENIED) for topic in message.topics or ()]
        return answer
    asks_all = message.topics is None
    allowed, denied = parted(
        message.topics or (), lambda t: check.topic(Operation.DESCRIBE, t.name)
    )
    if not asks_all:
        message.topics = allowed
    answer = yield
    if asks_all:
        answer.topics = [t for t in answer.topics if _sees_topic(check, t.name)]
    answer.topics.extend(_refused_topic(topic, TOPIC_DENIED) for topic in denied)
    return answer


def _sees_topic(check: Check, name: str) -> bool:
    return check.sees(Operation.DESCRIBE, ResourceType.TOPIC, name)


def _refused_topic(
    topic: Any, code: int, answers: Any = offset_fetch.OffsetFetchResponseTopic
) -> Any:
    return refused_topic(
        answers,
        topic,
        committed_offset=-1,
        committed_leader_epoch=-1,
        metadata="",
        error_code=code,
    )


def _many_groups(check: Check, message: offset_fetch.OffsetFetchRequest) -> Steps:
    allowed, denied = parted(
        message.groups, lambda group: check.group(Operation.DESCRIBE, group.group_id)
    )
    refused: dict[str, list[offset_fetch.OffsetFetchRequestTopics]] = {}
    lists_all = set()

    def name_of(topic: Any) -> str | None:
        if topic.name:
            return str(topic.name)
        found = check.context.topics.find_by_id(topic.topic_id)
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
    message.groups = allowed
    answer = offset_fetch.OffsetFetchResponse()
    if allowed or not denied:
        answer = yield
    for answered in answer.groups:
        if answered.group_id in lists_all:
            answered.topics = [
                topic
                for topic in answered.topics
                if (name := name_of(topic)) is None or _sees_topic(check, name)
            ]
        answered.topics.extend(
            _refused_topic(topic, TOPIC_DENIED, offset_fetch.OffsetFetchResponseTopics)
            for topic in refused.get(answered.group_id, ())
        )
    answer.groups.extend(
        offset_fetch.OffsetFetchResponseGroup(
            group_id=group.group_id, topics=[], error_code=GROUP_DENIED
        )
        for group in denied
    )
    return answer

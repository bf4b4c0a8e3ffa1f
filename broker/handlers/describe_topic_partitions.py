"""DescribeTopicPartitions (key 75, version 0): topics page by page, in order of their names.

An answer has at most `response_partition_limit` partitions. Its cursor is the start of the next
page and goes into the next request. A request without names means all topics. A request is refused
when its cursor has a partition below 0, or a topic that the request does not name.

Source: KIP-966; Kafka `DescribeTopicPartitionsRequestHandler`.
"""

from broker.requests.authorized_operations import TOPIC_OPERATIONS
from broker.requests.context import Context, RequestContext
from broker.requests.error_mapping import REFUSALS, error_code
from broker.topics.registry import is_internal
from protocol.api import describe_topic_partitions as api
from protocol.error_codes import ErrorCode
from storage.directory.data_dir import Topic
from storage.disk.steps import Steps

PARTITIONS_MAX = 2000
"""`max.request.partition.size.limit` of Kafka."""


def handle(
    context: Context, request: RequestContext, message: api.DescribeTopicPartitionsRequest
) -> Steps[api.DescribeTopicPartitionsResponse]:
    """One page, beginning at the cursor."""
    names = sorted({topic.name for topic in message.topics} or {t.name for t in context.topics})
    asks_for_all = not message.topics
    start = 0
    if message.cursor is not None:
        if not _is_valid(message.cursor, message):
            return _refuse(message)
        names = [name for name in names if name >= message.cursor.topic_name]
        if names and names[0] == message.cursor.topic_name:
            start = message.cursor.partition_index
    left = max(1, min(message.response_partition_limit, PARTITIONS_MAX))
    response = api.DescribeTopicPartitionsResponse()
    for name in names:
        yield None
        topic = context.topics.find(name)
        if topic is None:
            if not asks_for_all:
                response.topics.append(_unknown(context, name))
            continue
        if left == 0:
            response.next_cursor = api.Cursor(topic_name=name, partition_index=0)
            break
        page = _describe(context, topic, start, left)
        response.topics.append(page)
        left -= len(page.partitions)
        end = start + len(page.partitions)
        start = 0
        if end < len(topic.partitions):
            response.next_cursor = api.Cursor(topic_name=name, partition_index=end)
            break
    return response


def _is_valid(cursor: api.Cursor, message: api.DescribeTopicPartitionsRequest) -> bool:
    names = [topic.name for topic in message.topics]
    return cursor.partition_index >= 0 and (not names or cursor.topic_name in names)


def _refuse(message: api.DescribeTopicPartitionsRequest) -> api.DescribeTopicPartitionsResponse:
    """The answer has no error of its own, so each topic gets it."""
    refused = [
        api.DescribeTopicPartitionsResponseTopic(
            error_code=ErrorCode.INVALID_REQUEST, name=topic.name
        )
        for topic in message.topics
    ]
    return api.DescribeTopicPartitionsResponse(topics=refused)


def _unknown(context: Context, name: str) -> api.DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        context.topics.check_asked(name)
    except REFUSALS as error:
        code = error_code(error)
    return api.DescribeTopicPartitionsResponseTopic(error_code=code, name=name)


def _describe(
    context: Context, topic: Topic, start: int, count: int
) -> api.DescribeTopicPartitionsResponseTopic:
    partitions = []
    for number in range(start, min(start + count, len(topic.partitions))):
        leader_id = context.topics.leader_id(topic, number)
        partitions.append(
            api.DescribeTopicPartitionsResponsePartition(
                partition_index=number,
                leader_id=leader_id,
                leader_epoch=context.topics.leader_epoch(topic, number),
                replica_nodes=[leader_id],
                isr_nodes=[leader_id],
                # May be null by the schema, but the Java client streams over it.
                eligible_leader_replicas=[],
                last_known_elr=[],
            )
        )
    return api.DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
        partitions=partitions,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )

"""DescribeShareGroupOffsets (key 90, versions 0-1): where share groups stand.

The offsets are those of the stored state; -1 where no member has fetched yet, which is everywhere
for a group that does not exist.

Versions: v1 lag: records from the start offset to the high watermark that are not done.

Source: KIP-932, KIP-1226; Kafka `GroupCoordinatorService.describeShareGroupOffsets`.
"""

from broker.errors import BrokerError
from broker.groups.share.stored_state import ShareKey
from broker.requests.context import Context, RequestContext
from broker.topics.registry import NO_TOPIC_ID
from protocol.api import describe_share_group_offsets as api
from protocol.error_codes import ErrorCode
from storage.disk.steps import Steps

_Group = api.DescribeShareGroupOffsetsResponseGroup
_Topic = api.DescribeShareGroupOffsetsResponseTopic
_Partition = api.DescribeShareGroupOffsetsResponsePartition


def handle(
    context: Context, request: RequestContext, message: api.DescribeShareGroupOffsetsRequest
) -> Steps[api.DescribeShareGroupOffsetsResponse]:
    """The requested partitions of each group, or all that have a state."""
    response = api.DescribeShareGroupOffsetsResponse()
    for asked in message.groups:
        group = _Group(group_id=asked.group_id)
        response.groups.append(group)
        if not context.groups.is_available(asked.group_id):
            group.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            continue
        wanted = asked.topics
        if wanted is None:
            wanted = _all(context, asked.group_id)
        for topic in {topic.topic_name: topic for topic in wanted}.values():
            group.topics.append(_describe(context, asked.group_id, topic))
            yield None
        yield None
    return response


def _all(context: Context, group_id: str) -> list[api.DescribeShareGroupOffsetsRequestTopic]:
    """The partitions that have a state, by topic; deleted topics are left out."""
    by_topic: dict[str, list[int]] = {}
    for key in sorted(context.groups.shares.states.keys_of(group_id)):
        topic = context.topics.find_by_id(key.topic_id)
        if topic is not None:
            by_topic.setdefault(topic.name, []).append(key.partition)
    return [
        api.DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=indexes)
        for name, indexes in by_topic.items()
    ]


def _describe(
    context: Context, group_id: str, asked: api.DescribeShareGroupOffsetsRequestTopic
) -> _Topic:
    """A partition that does not exist has no state, as one that no member has read."""
    topic = context.topics.find(asked.topic_name)
    topic_id = NO_TOPIC_ID if topic is None else topic.topic_id
    partitions = []
    for index in dict.fromkeys(asked.partitions):
        try:
            end = context.topics.led_log(asked.topic_name, index).high_watermark
        except BrokerError:
            end = 0
        offset = context.groups.shares.offset(ShareKey(group_id, topic_id, index), end)
        partitions.append(
            _Partition(
                partition_index=index,
                start_offset=offset.start_offset,
                leader_epoch=offset.leader_epoch,
                lag=offset.lag,
            )
        )
    return _Topic(topic_name=asked.topic_name, topic_id=topic_id, partitions=partitions)

"""DescribeShareGroupOffsets (key 90, versions 0-1): where share groups stand.

The offsets are those of the stored state; -1 where no member has fetched yet, which is everywhere
for a group that does not exist.

The lag (v1) counts the records from the start offset to the high watermark that are not done.

Source: KIP-932, KIP-1226; Kafka `GroupCoordinatorService.describeShareGroupOffsets`.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from broker.errors import BrokerError
from broker.groups.offsets.lag import ends_elsewhere
from broker.groups.share.stored_state import ShareKey
from broker.replies.pending import Pending
from broker.requests.context import Context, RequestContext
from broker.topics.registry import NO_TOPIC_ID
from protocol.api import describe_share_group_offsets as api
from protocol.error_codes import ErrorCode
from storage.disk.steps import Steps

_Wanted = Sequence[tuple[str, Sequence[api.DescribeShareGroupOffsetsRequestTopic]]]
"""Group and topics."""

_Ends = Mapping[tuple[str, int], int]
"""High watermarks of partitions that other workers lead."""

_Group = api.DescribeShareGroupOffsetsResponseGroup
_Topic = api.DescribeShareGroupOffsetsResponseTopic
_Partition = api.DescribeShareGroupOffsetsResponsePartition


def handle(
    context: Context, request: RequestContext, message: api.DescribeShareGroupOffsetsRequest
) -> Steps[Pending[api.DescribeShareGroupOffsetsResponse]]:
    """The requested partitions of each group, or all that have a state."""
    wanted: list[tuple[str, list[api.DescribeShareGroupOffsetsRequestTopic]]] = []
    partitions: dict[tuple[str, int], None] = {}
    for asked in message.groups:
        topics = _all(context, asked.group_id) if asked.topics is None else asked.topics
        wanted.append((asked.group_id, list({each.topic_name: each for each in topics}.values())))
        for topic in topics:
            partitions.update(((topic.topic_name, index), None) for index in topic.partitions)
        yield None
    pending: Pending[api.DescribeShareGroupOffsetsResponse] = Pending()

    def measured(ends: _Ends) -> None:
        context.turns.begin_or_fail(_answer(context, wanted, ends, pending), pending)

    ends_elsewhere(context.topics, partitions, measured)
    return pending


def _answer(
    context: Context,
    wanted: _Wanted,
    ends: _Ends,
    pending: Pending[api.DescribeShareGroupOffsetsResponse],
) -> Steps[None]:
    """Describe group after group."""
    response = api.DescribeShareGroupOffsetsResponse()
    for group_id, topics in wanted:
        group = _Group(group_id=group_id)
        response.groups.append(group)
        if not context.groups.is_available(group_id):
            group.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            continue
        for topic in topics:
            group.topics.append(_describe(context, group_id, topic, ends))
            yield None
        yield None
    pending.resolve(response)


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
    context: Context,
    group_id: str,
    asked: api.DescribeShareGroupOffsetsRequestTopic,
    ends: _Ends,
) -> _Topic:
    """A partition that does not exist has no state, as one that no member has read."""
    topic = context.topics.find(asked.topic_name)
    topic_id = NO_TOPIC_ID if topic is None else topic.topic_id
    partitions = []
    for index in dict.fromkeys(asked.partitions):
        end = ends.get((asked.topic_name, index))
        if end is None:
            with suppress(BrokerError):
                end = context.topics.led_log(asked.topic_name, index).high_watermark
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

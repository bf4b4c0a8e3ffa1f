"""OffsetFetch (key 9, versions 0-10): the committed offsets of groups.

A partition without an offset is answered with offset -1 and no error, as is an unknown group. Null
topics mean everything the group has committed.

Source: Kafka `KafkaApis.handleOffsetFetchRequest`, `OffsetMetadataManager.fetchOffsets`.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from broker.groups.offsets.records import CommittedOffset
from broker.requests.context import Context, RequestContext
from broker.topics.registry import NO_TOPIC_ID
from protocol.api import offset_fetch as api
from protocol.error_codes import ErrorCode
from protocol.records.layout import NO_LEADER_EPOCH, NO_OFFSET
from storage.disk.steps import Steps

_ALL_TOPICS_SINCE = 2
_MANY_GROUPS_SINCE = 8
_TOPIC_IDS_SINCE = 10

_NO_TIME = 0
_ABSENT = CommittedOffset(NO_OFFSET, NO_LEADER_EPOCH, "", _NO_TIME)


def handle(
    context: Context, request: RequestContext, message: api.OffsetFetchRequest
) -> Steps[api.OffsetFetchResponse]:
    """The requested committed offsets."""
    if request.api_version >= _MANY_GROUPS_SINCE:
        response = api.OffsetFetchResponse()
        for group in message.groups:
            response.groups.append(
                (yield from _group(context, request, group, message.require_stable))
            )
        return response
    asked = None
    if message.topics is not None:
        asked = [(topic.name, topic.partition_indexes) for topic in message.topics]
    elif request.api_version < _ALL_TOPICS_SINCE:
        asked = []
    response = api.OffsetFetchResponse(error_code=_availability(context, message.group_id))
    for name, indexes in _asked_or_all(context, message.group_id, asked):
        found = _look_up(context, message.group_id, name, indexes, message.require_stable)
        partitions = [api.OffsetFetchResponsePartition(**one) for one in found]
        response.topics.append(api.OffsetFetchResponseTopic(name=name, partitions=partitions))
        yield None
    return response


def _group(
    context: Context,
    request: RequestContext,
    group: api.OffsetFetchRequestGroup,
    require_stable: bool,
) -> Steps[api.OffsetFetchResponseGroup]:
    response = api.OffsetFetchResponseGroup(group_id=group.group_id)
    response.error_code = _availability(context, group.group_id) or _member_error(context, group)
    if response.error_code != ErrorCode.NONE:
        return response
    uses_ids = request.api_version >= _TOPIC_IDS_SINCE
    asked = None
    if group.topics is not None:
        asked = []
        for topic in group.topics:
            found = context.topics.find_by_id(topic.topic_id) if uses_ids else None
            if uses_ids and found is None:
                response.topics.append(_unknown_id(topic.topic_id, topic.partition_indexes))
            else:
                name = topic.name if found is None else found.name
                asked.append((name, topic.partition_indexes))
    for name, indexes in _asked_or_all(context, group.group_id, asked):
        yield None
        known = context.topics.find(name)
        if uses_ids and known is None:
            continue
        looked_up = _look_up(context, group.group_id, name, indexes, require_stable)
        response.topics.append(
            api.OffsetFetchResponseTopics(
                name=name,
                topic_id=NO_TOPIC_ID if known is None else known.topic_id,
                partitions=[api.OffsetFetchResponsePartitions(**one) for one in looked_up],
            )
        )
    return response


def _availability(context: Context, group_id: str) -> ErrorCode:
    """An error if the group's offsets were not loaded; offset -1 would make members start over."""
    if context.groups.is_available(group_id):
        return ErrorCode.NONE
    return ErrorCode.COORDINATOR_NOT_AVAILABLE


def _member_error(context: Context, group: api.OffsetFetchRequestGroup) -> ErrorCode:
    """Why this member may not fetch in its epoch; a share group has no offsets."""
    if group.member_id is None and group.member_epoch < 0:
        return ErrorCode.NONE
    if group.group_id in context.groups.share_groups:
        return ErrorCode.GROUP_ID_NOT_FOUND
    found = context.groups.consumer_groups.get(group.group_id)
    found_or_streams = found or context.groups.streams_groups.get(group.group_id)
    if found_or_streams is None:
        return ErrorCode.NONE
    return found_or_streams.offset_error(group.member_id or "", group.member_epoch)


def _unknown_id(topic_id: bytes, indexes: Iterable[int]) -> api.OffsetFetchResponseTopics:
    return api.OffsetFetchResponseTopics(
        topic_id=topic_id,
        partitions=[
            api.OffsetFetchResponsePartitions(
                partition_index=index,
                committed_offset=NO_OFFSET,
                metadata="",
                error_code=ErrorCode.UNKNOWN_TOPIC_ID,
            )
            for index in indexes
        ],
    )


def _asked_or_all(
    context: Context, group_id: str, asked: Sequence[tuple[str, Sequence[int]]] | None
) -> Sequence[tuple[str, Sequence[int]]]:
    """The requested partitions; for None, every partition that the group has committed."""
    if asked is not None:
        return asked
    by_topic: dict[str, list[int]] = {}
    for topic, partition in context.groups.offsets.table.of_group(group_id):
        by_topic.setdefault(topic, []).append(partition)
    return [(topic, sorted(partitions)) for topic, partitions in sorted(by_topic.items())]


def _look_up(
    context: Context, group_id: str, topic: str, indexes: Iterable[int], require_stable: bool
) -> Iterator[dict[str, Any]]:
    """The fields of the answer to each partition, whose classes differ with the version."""
    table = context.groups.offsets.table
    offsets = table.of_group(group_id)
    unavailable = _availability(context, group_id)
    for index in indexes:
        tp = (topic, index)
        found, error = offsets.get(tp, _ABSENT), unavailable
        if not error and require_stable and table.is_unstable(group_id, tp):
            error = ErrorCode.UNSTABLE_OFFSET_COMMIT
        if error:
            found = _ABSENT
        yield {
            "partition_index": index,
            "committed_offset": found.offset,
            "committed_leader_epoch": found.leader_epoch,
            "metadata": found.metadata,
            "error_code": error,
        }

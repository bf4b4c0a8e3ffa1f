"""AlterShareGroupOffsets (key 91, version 0): let an empty share group begin at given offsets.

A group that does not exist is created. What was acknowledged above the new offset is forgotten.
Answered when the new states are on disk.

Differs from Kafka: a topic that the user may not read has no id in the answer.

Source: KIP-932; Kafka `GroupCoordinatorService.alterShareGroupOffsets`.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

from broker.groups.consumer.values import Partition
from broker.requests.access import Check
from broker.requests.context import Context, RequestContext
from broker.topics.registry import NO_TOPIC_ID
from protocol.acl import Operation
from protocol.api import alter_share_group_offsets as api
from protocol.error_codes import ErrorCode

_Response = api.AlterShareGroupOffsetsResponse
_Topic = api.AlterShareGroupOffsetsResponseTopic
_Partition = api.AlterShareGroupOffsetsResponsePartition


async def handle(
    context: Context, request: RequestContext, message: api.AlterShareGroupOffsetsRequest
) -> Any:
    """All partitions that exist, in one change."""
    groups, group_id = context.groups, message.group_id
    if not group_id:
        text = "The name of the group is empty."
        return _Response(error_code=ErrorCode.INVALID_GROUP_ID, error_message=text)
    if group_id in groups.classic_groups or group_id in groups.consumer_groups:
        text = f"Group {group_id} is not a share group."
        return _Response(error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=text)
    error = await groups.shares.open_states()
    if error is not ErrorCode.NONE:
        return _Response(error_code=error)
    check = Check(context, request)
    begins: list[tuple[str, Partition, int]] = []
    response = _Response()
    for asked in _joined(message.topics):
        response.responses.append(_plan(context, check, asked, begins))
    if begins or not message.topics:
        done: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        groups.shares.alter_offsets(group_id, begins, done.set_result)
        error = await done
        if error is ErrorCode.NON_EMPTY_GROUP:
            text = f"Group {group_id} has members; stop them first."
            return _Response(error_code=error, error_message=text)
        if error is not ErrorCode.NONE:
            return _Response(error_code=error)
    if begins:
        names = ", ".join(sorted({name for name, _, _ in begins}))
        what = f"set the start of share group {group_id!r} in topics {names}"
        context.security.audit.changed(request, what)
    return response


def _joined(
    topics: Iterable[api.AlterShareGroupOffsetsRequestTopic],
) -> list[api.AlterShareGroupOffsetsRequestTopic]:
    """The topics of a request with their partitions; one that is there twice once."""
    found: dict[str, api.AlterShareGroupOffsetsRequestTopic] = {}
    for topic in topics:
        if topic.partitions:
            first = found.setdefault(topic.topic_name, topic)
            if first is not topic:
                first.partitions += topic.partitions
    return list(found.values())


def _plan(
    context: Context,
    check: Check,
    asked: api.AlterShareGroupOffsetsRequestTopic,
    begins: list[tuple[str, Partition, int]],
) -> _Topic:
    """Add the partitions of a topic that can be changed to `begins`; the answer for all of them."""
    name = asked.topic_name
    topic = context.topics.find(name)
    error, text = ErrorCode.NONE, None
    if not check.topic(Operation.READ, name):
        error, text = ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."
        topic = None  # its id would show that it exists
    answer = _Topic(topic_name=name, topic_id=NO_TOPIC_ID if topic is None else topic.topic_id)
    for partition in asked.partitions:
        index = partition.partition_index
        outcome = _Partition(partition_index=index, error_code=error, error_message=text)
        if error is ErrorCode.NONE and topic is not None and 0 <= index < len(topic.partitions):
            if partition.start_offset < 0:
                outcome.error_code = ErrorCode.INVALID_REQUEST
                outcome.error_message = f"Start offset {partition.start_offset} is negative."
            else:
                begins.append((name, (topic.topic_id, index), partition.start_offset))
        elif error is ErrorCode.NONE:
            outcome.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            outcome.error_message = f"Partition {name}-{index} does not exist."
        answer.partitions.append(outcome)
    return answer

"""DeleteRecords (key 21, versions 0-2): move a partition's start forward.

-1 means the high watermark. Records before the new start are unreadable at once; the next retention
pass removes their files. A record that was acknowledged before it was durable can be deleted once
it is durable (`broker.requests.commit_wait`); REQUEST_TIMED_OUT when the disk takes too long for
that.

Source: KIP-107; Kafka `ReplicaManager.deleteRecordsOnLocalLog`.
"""

from collections.abc import Collection, Coroutine
from typing import Any, TypeAlias

from broker.errors import InternalTopic
from broker.requests.by_topic import by_key
from broker.requests.commit_wait import committed
from broker.requests.context import Context, RequestContext
from broker.requests.error_mapping import REFUSALS, error_code
from broker.topics.registry import is_internal
from protocol.api import delete_records as api
from protocol.error_codes import ErrorCode
from storage.disk.steps import Steps
from storage.errors import OffsetOutOfRange
from storage.log.log import Log

_Asked: TypeAlias = dict[tuple[str, int], int]

HIGH_WATERMARK = -1
_NO_LOW_WATERMARK = -1


def handle(
    context: Context, request: RequestContext, message: api.DeleteRecordsRequest
) -> Steps[api.DeleteRecordsResponse | Coroutine[Any, Any, api.DeleteRecordsResponse]]:
    """Move every partition's start and answer with its new position.

    A partition that occurs twice in the request gets its last offset.
    """
    named = yield from by_key(
        ((topic.name, partition) for topic in message.topics for partition in topic.partitions),
        lambda each: (each[0], each[1].partition_index),
    )
    asked = {tp: same[-1][1].offset for tp, same in named.items()}
    awaited = yield from _hidden_ends(context, asked)
    if awaited:
        return _delete_when_committed(context, request, asked, awaited)
    return (yield from _delete_all(context, request, asked, ()))


async def _delete_when_committed(
    context: Context, request: RequestContext, asked: _Asked, awaited: dict[Log, int]
) -> api.DeleteRecordsResponse:
    overdue = await committed(context, awaited)
    return await context.turns.side.drive(_delete_all(context, request, asked, overdue))


def _hidden_ends(context: Context, asked: _Asked) -> Steps[dict[Log, int]]:
    """The ends that must be durable first, because they are acknowledged (`commit_wait`)."""
    awaited = {}
    for number, ((name, partition), offset) in enumerate(asked.items()):
        if number:
            yield None
        try:
            log = context.topics.led_log(name, partition)
        except REFUSALS:
            continue
        end = context.group_commit.acknowledged_end(log)
        if end and (offset == HIGH_WATERMARK or log.high_watermark < offset <= end):
            awaited[log] = end
    return awaited


def _delete_all(
    context: Context, request: RequestContext, asked: _Asked, overdue: Collection[Log]
) -> Steps[api.DeleteRecordsResponse]:
    topics: dict[str, api.DeleteRecordsTopicResult] = {}
    for (name, partition), offset in asked.items():
        if topics:
            yield None
        topic = topics.setdefault(name, api.DeleteRecordsTopicResult(name=name))
        result = _delete(context, name, partition, offset, overdue)
        topic.partitions.append(result)
        if result.error_code == ErrorCode.NONE:
            what = f"deleted the records of {name}-{partition} before {result.low_watermark}"
            context.security.audit.changed(request, what)
    return api.DeleteRecordsResponse(topics=list(topics.values()))


def _delete(
    context: Context, name: str, partition: int, offset: int, overdue: Collection[Log]
) -> api.DeleteRecordsPartitionResult:
    result = api.DeleteRecordsPartitionResult(
        partition_index=partition, low_watermark=_NO_LOW_WATERMARK
    )
    try:
        log = context.topics.led_log(name, partition)
        if is_internal(name):
            raise InternalTopic(f"Topic {name!r} belongs to the broker.")
        if log in overdue:
            result.error_code = ErrorCode.REQUEST_TIMED_OUT
            return result
        if offset == HIGH_WATERMARK:
            offset = log.high_watermark
        if not 0 <= offset <= log.high_watermark:
            raise OffsetOutOfRange(offset, start=log.log_start_offset, end=log.high_watermark)
        log.delete_before(offset)
        context.fetch_waiters.log_changed(log)
        result.low_watermark = log.log_start_offset
    except REFUSALS as error:
        result.error_code = error_code(error)
    return result

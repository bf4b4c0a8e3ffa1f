"""DeleteRecords (key 21, versions 0-2): move a partition's start forward.

-1 stands for the high watermark.  What lies before the new start is unreadable at once; its files
go with the next retention pass.

Source: KIP-107; Kafka `ReplicaManager.deleteRecordsOnLocalLog`.
"""

from broker.context import Context, RequestContext
from broker.error_mapping import REFUSALS, error_code
from broker.errors import InternalTopic
from broker.topics import is_internal
from protocol.api.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from storage.errors import OffsetOutOfRange
from storage.steps import Steps

HIGH_WATERMARK = -1
_NO_LOW_WATERMARK = -1


def handle(
    context: Context, request: RequestContext, message: DeleteRecordsRequest
) -> Steps[DeleteRecordsResponse]:
    """Move every partition's start and answer with where it is now."""
    response = DeleteRecordsResponse()
    for topic in message.topics:
        result = DeleteRecordsTopicResult(name=topic.name)
        response.topics.append(result)
        for asked in topic.partitions:
            result.partitions.append(
                _delete(context, topic.name, asked.partition_index, asked.offset)
            )
            yield None
        yield None
    return response


def _delete(
    context: Context, name: str, partition: int, offset: int
) -> DeleteRecordsPartitionResult:
    result = DeleteRecordsPartitionResult(
        partition_index=partition, low_watermark=_NO_LOW_WATERMARK
    )
    try:
        log = context.topics.led_log(name, partition)
        if is_internal(name):
            raise InternalTopic(f"Topic {name!r} belongs to the broker.")
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

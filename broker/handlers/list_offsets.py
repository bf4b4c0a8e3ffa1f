"""ListOffsets (key 2, versions 0-11): offsets by time, and the named ends of a log.

| timestamp | asks for                                             | since |
|-----------|------------------------------------------------------|-------|
| >= 0      | first record at or after this time (ms)              | 0     |
| -1        | the end: high watermark, or last stable offset       | 0     |
| -2        | the start                                            | 0     |
| -3        | the record with the largest timestamp                | 7     |
| -4        | the start of what is stored locally: the start here  | 8     |
| -5        | the end of what is tiered: nothing is, (-1, -1)      | 9     |
| -6        | the start of what waits for tiering: likewise        | 11    |

Found: the record's own timestamp and offset.  Not found: (-1, -1) with no error.  Version 0 answers
with a list of segment base offsets chosen by file age, as brokers before 0.10.1 did.

Versions: v1 one offset with its timestamp, v2 isolation and throttle time, v4 leader epochs, v6
flexible, v7/v8/v9/v11 the special timestamps above, v10 a timeout (nothing here waits).

Source: KIP-79, KIP-734, KIP-405, KIP-1005; Kafka `KafkaApis.handleListOffsetRequest`,
`UnifiedLog.fetchOffsetByTimestamp`.
"""

from collections import Counter
from typing import TYPE_CHECKING

from broker.context import Context, RequestContext
from broker.error_mapping import REFUSALS, error_code
from broker.errors import InvalidRequest, UnsupportedByVersion
from protocol.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from protocol.records.layout import INT64_MAX, NO_TIMESTAMP
from storage.log import Isolation
from storage.steps import Steps

if TYPE_CHECKING:
    from storage.log import Log
    from storage.lookup import TimestampOffset

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

_SINCE = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""First request version in which each special timestamp has its meaning."""

_CONSUMER_ID = -1
_READ_COMMITTED = 1
_UNKNOWN = -1


def handle(
    context: Context, request: RequestContext, message: ListOffsetsRequest
) -> Steps[ListOffsetsResponse]:
    """Look every asked partition up; each has its own error."""
    asked_twice = _asked_twice(message)
    response = ListOffsetsResponse()
    for topic in message.topics:
        if response.topics:
            yield None
        name = topic.name
        partitions: list[ListOffsetsPartitionResponse] = []
        for asked in topic.partitions:
            if partitions:
                yield None
            is_duplicate = (name, asked.partition_index) in asked_twice
            partitions.append(
                _answer(context, request, message, name, asked, is_duplicate=is_duplicate)
            )
        response.topics.append(ListOffsetsTopicResponse(name=name, partitions=partitions))
    return response


def _asked_twice(message: ListOffsetsRequest) -> set[tuple[str, int]]:
    asked = [
        (topic.name, partition.partition_index)
        for topic in message.topics
        for partition in topic.partitions
    ]
    if len(asked) == 1 or len(set(asked)) == len(asked):
        return set()  # which is all that anybody asks, and Spark's connector thousands of times
    return {key for key, count in Counter(asked).items() if count > 1}


def _answer(
    context: Context,
    request: RequestContext,
    message: ListOffsetsRequest,
    name: str,
    asked: ListOffsetsPartition,
    *,
    is_duplicate: bool,
) -> ListOffsetsPartitionResponse:
    answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
    try:
        if is_duplicate and request.api_version > 0:
            raise InvalidRequest("The same partition is asked for twice.")
        log = context.topics.led_log(name, asked.partition_index, asked.current_leader_epoch)
        if request.api_version == 0:
            answer.old_style_offsets = _offsets_by_age(context, message, log, asked)
        else:
            _look_up(request.api_version, message, log, asked.timestamp, answer)
    except REFUSALS as error:
        answer.error_code = error_code(error)
        answer.timestamp = answer.offset = answer.leader_epoch = _UNKNOWN
    return answer


def _offsets_by_age(
    context: Context, message: ListOffsetsRequest, log: "Log", asked: ListOffsetsPartition
) -> list[int]:
    """Version 0: base offsets of the segments last written by that time, newest first.

    A consumer sees the high watermark in place of everything above it.
    """
    timestamp, count = asked.timestamp, asked.max_num_offsets
    if timestamp < EARLIEST:
        raise UnsupportedByVersion(f"Timestamp {timestamp} means nothing in version 0.")
    if count < 0:
        raise InvalidRequest(f"max_num_offsets is {count}; it must not be negative.")
    if timestamp == EARLIEST:
        return [log.log_start_offset][:count]
    if timestamp == LATEST:
        timestamp = INT64_MAX
    offsets = log.offsets_before(timestamp, count, context.clock.wall_ms())
    if message.replica_id == _CONSUMER_ID and offsets and offsets[0] > log.high_watermark:
        offsets = [log.high_watermark, *(o for o in offsets if o < log.high_watermark)]
    return offsets


def _look_up(
    version: int,
    message: ListOffsetsRequest,
    log: "Log",
    timestamp: int,
    answer: ListOffsetsPartitionResponse,
) -> None:
    """Fill `answer` with what `timestamp` asks of `log`."""
    if timestamp < 0 and version < _SINCE.get(timestamp, version + 1):
        raise UnsupportedByVersion(f"Timestamp {timestamp} means nothing in version {version}.")
    is_consumer = message.replica_id == _CONSUMER_ID
    isolation = (
        Isolation.READ_COMMITTED
        if is_consumer and message.isolation_level == _READ_COMMITTED
        else Isolation.READ_UNCOMMITTED
    )
    if timestamp == LATEST:
        answer.offset = _end(log, isolation, is_consumer=is_consumer)
        answer.leader_epoch = log.leader_epoch
    elif timestamp in (EARLIEST, EARLIEST_LOCAL):
        answer.offset = log.log_start_offset
        # Of an empty log it is the epoch in which the first record will be.
        is_empty = log.log_start_offset == log.log_end_offset
        answer.leader_epoch = log.leader_epoch if is_empty else log.epoch_at(log.log_start_offset)
    elif timestamp == MAX_TIMESTAMP:
        _found(answer, log.offset_for_max_timestamp(isolation=isolation))
    elif timestamp >= 0:
        _found(answer, log.offset_for_timestamp(timestamp, isolation=isolation))


def _end(log: "Log", isolation: Isolation, *, is_consumer: bool) -> int:
    if not is_consumer:
        return log.log_end_offset
    if isolation is Isolation.READ_COMMITTED:
        return log.last_stable_offset
    return log.high_watermark


def _found(answer: ListOffsetsPartitionResponse, found: "TimestampOffset | None") -> None:
    if found is None:
        return
    assert found.timestamp > NO_TIMESTAMP, "a found record has a timestamp; Java insists on it"
    answer.timestamp = found.timestamp
    answer.offset = found.offset
    answer.leader_epoch = found.leader_epoch

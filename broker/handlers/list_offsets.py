"""ListOffsets (key 2, versions 0-11): offsets by time, and the named ends of a log.

| timestamp | result                                               | since |
|-----------|------------------------------------------------------|-------|
| >= 0      | first record at or after this time (ms)              | 0     |
| -1        | the end: high watermark, or last stable offset       | 0     |
| -2        | the start                                            | 0     |
| -3        | the record with the largest timestamp                | 7     |
| -4        | the start of what is on this machine                 | 8     |
| -5        | the last offset in the object store, -1 for none     | 9     |
| -6        | the first offset that waits for its upload           | 11    |

The last two are (-1, -1) for a topic without remote.storage.enable.

A consumer's answer waits when it would lie below acknowledged records: the end, or "none" for a
time that an acknowledged record may have reached (`broker.requests.commit_wait`). When the disk
takes too long for that, OFFSET_NOT_AVAILABLE makes the client try again.

A lookup whose answer is in the object store waits for one ranged GET (`broker.remote.reads`).

A lookup that ends in a batch that decompresses to much searches it in the side thread.

A time window (`broker.topics.windows`) has its own start, end and times.

Found: the record's own timestamp and offset. Not found: (-1, -1) with no error. Version 0 answers
with a list of segment base offsets chosen by file age, as brokers before 0.10.1 did.

Source: KIP-79, KIP-734, KIP-405, KIP-1005; Kafka `KafkaApis.handleListOffsetRequest`,
`UnifiedLog.fetchOffsetByTimestamp`.
"""

from collections.abc import Collection, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from broker.errors import InvalidRequest, ReadOnlyWindow, UnsupportedByVersion
from broker.fetch.failed_reads import note_failed_read
from broker.requests.by_topic import by_key, by_topic
from broker.requests.commit_wait import committed
from broker.requests.context import Context, RequestContext
from broker.requests.error_mapping import REFUSALS, error_code
from protocol.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from protocol.error_codes import ErrorCode
from protocol.records.layout import INT64_MAX, NO_TIMESTAMP
from storage.disk.steps import Steps, off_loop
from storage.errors import TooMuchAtOnce
from storage.log.log import Log
from storage.log.lookup import LargeEntries, TimestampOffset
from storage.log.values import Isolation
from storage.segment.remote.log import RemoteBytesNeeded
from storage.window.log_window import LogWindow

if TYPE_CHECKING:
    from broker.remote.reads import RemoteReads

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

SEARCHES_MAX = 16
"""How often one answer may wait for a large entry or for the object store."""

REMOTE_READS_MAX = 64
"""Partitions of a topic whose ranges are asked for at once."""

_CONSUMER_ID = -1
_READ_COMMITTED = 1
_ISOLATION_LEVELS = (0, _READ_COMMITTED)
_STARTS = (EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD)
_OFFSET_NOT_AVAILABLE_SINCE = 5
_UNKNOWN = -1


def handle(context: Context, request: RequestContext, message: ListOffsetsRequest) -> Any:
    """Look up every requested partition; each has its own error."""
    if message.isolation_level not in _ISOLATION_LEVELS:
        return _refuse_all(message, ErrorCode.UNKNOWN_SERVER_ERROR)
    answers = _Answers(context, request, message)
    topics = message.topics
    if len(topics) == 1 and len(topics[0].partitions) == 1:
        # Spark's connector sends thousands of them.
        answer = answers.try_at_once(topics[0].name, topics[0].partitions[0], LargeEntries())
        if answer is not None:
            topic = ListOffsetsTopicResponse(name=topics[0].name, partitions=[answer])
            return answers.settle(ListOffsetsResponse(topics=[topic]))
    return answers.in_steps()


class _Answers:
    """One request; its answers are looked up again when the ends it waits for are on disk."""

    __slots__ = ("_awaited", "_context", "_message", "_need", "_overdue", "_request")

    def __init__(
        self, context: Context, request: RequestContext, message: ListOffsetsRequest
    ) -> None:
        self._context = context
        self._request = request
        self._message = message
        self._need: RemoteBytesNeeded | None = None
        self._overdue: Collection[Log] = ()
        # The acknowledged ends that answers would have hidden.
        self._awaited: dict[Log, int] = {}

    def settle(
        self, response: ListOffsetsResponse
    ) -> ListOffsetsResponse | Coroutine[Any, Any, ListOffsetsResponse]:
        """`response`, or a better one once every end acknowledged before it may be shown."""
        return self._when_committed() if self._awaited else response

    def in_steps(
        self,
    ) -> Steps[ListOffsetsResponse | Coroutine[Any, Any, ListOffsetsResponse]]:
        """The answers, one after the other."""
        return self.settle((yield from self._response()))

    async def _when_committed(self) -> ListOffsetsResponse:
        self._overdue = await committed(self._context, self._awaited)
        return await self._context.turns.side.drive(self._response())

    def _response(self) -> Steps[ListOffsetsResponse]:
        """The answers of this moment; topics without partitions are left out."""
        twice: dict[tuple[str, int], bool] = {}
        if self._request.api_version > 0:
            twice = yield from _asked_twice(self._message)
        if self._context.remote is not None:
            yield from self._begin_remote(self._context.remote)
        topics: list[ListOffsetsTopicResponse] = []
        for topic in self._message.topics:
            partitions: list[ListOffsetsPartitionResponse] = []
            for asked in topic.partitions:
                key = (topic.name, asked.partition_index)
                if key not in twice:
                    partitions.append((yield from self._answer(topic.name, asked)))
                elif twice[key]:
                    twice[key] = False
                    partitions.append(_refusal(asked, ErrorCode.INVALID_REQUEST))
                yield None
            if partitions:
                topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
        return ListOffsetsResponse(topics=topics)

    def _begin_remote(self, remote: "RemoteReads") -> Steps[None]:
        """Ask the store for what the answers need, all at once; each answer then waits for its own.

        Spark asks for the same time in every partition.
        """
        for topic in self._message.topics:
            for asked in topic.partitions[:REMOTE_READS_MAX] if len(topic.partitions) > 1 else ():
                with suppress(*REFUSALS):
                    log = self._context.topics.led_log(
                        topic.name, asked.partition_index, asked.current_leader_epoch
                    )
                    if asked.timestamp >= 0 and log.segments.first.remote is not None:
                        self.try_at_once(topic.name, asked, LargeEntries())
                need, self._need = self._need, None
                if need is not None and remote.failure_of(need) is None:
                    remote.begin(need, lambda _, __: None)
                yield None

    def _answer(
        self, name: str, asked: ListOffsetsPartition
    ) -> Steps[ListOffsetsPartitionResponse]:
        large = LargeEntries()
        for _ in range(SEARCHES_MAX):
            answer = self.try_at_once(name, asked, large)
            if answer is not None:
                return answer
            need, self._need = self._need, None
            try:
                window = self._context.topics.led_window(
                    name, asked.partition_index, asked.current_leader_epoch
                )
                if window is not None:
                    try:
                        return (yield from self._in_window(window, asked))
                    except RemoteBytesNeeded as more:
                        need = more
                if need is None:
                    yield from off_loop(large.search)
                elif self._context.remote is None:
                    raise need
                else:
                    yield from self._context.remote.steps(need)
            except REFUSALS as error:
                note_failed_read(self._context.metrics, error)
                return _refusal(asked, error_code(error))
        return _refusal(asked, ErrorCode.KAFKA_STORAGE_ERROR)

    def try_at_once(
        self, name: str, asked: ListOffsetsPartition, large: LargeEntries
    ) -> ListOffsetsPartitionResponse | None:
        """The answer for one partition; None when `large` or the store have to be asked first."""
        answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
        version, message = self._request.api_version, self._message
        try:
            log = self._context.topics.led_log(
                name, asked.partition_index, asked.current_leader_epoch
            )
            if version == 0:
                answer.old_style_offsets = _offsets_by_age(self._context, message, log, asked)
            else:
                _look_up(version, message, log, asked.timestamp, answer, large)
            hidden_end = self._hidden_end(log, asked.timestamp, answer)
        except (TooMuchAtOnce, ReadOnlyWindow):
            return None
        except RemoteBytesNeeded as need:
            self._need = need
            return None
        except REFUSALS as error:
            note_failed_read(self._context.metrics, error)
            return _refusal(asked, error_code(error))
        return self._settled(log, asked, answer, hidden_end)

    def _in_window(
        self, window: LogWindow, asked: ListOffsetsPartition
    ) -> Steps[ListOffsetsPartitionResponse]:
        """The answer for a partition of a time window."""
        version, timestamp, log = self._request.api_version, asked.timestamp, window.log
        if version == 0 and timestamp not in (LATEST, EARLIEST):
            raise UnsupportedByVersion("Version 0 of ListOffsets finds segments, and not times.")
        _check_timestamp(version, timestamp)
        answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
        isolation = _isolation(self._message)
        if timestamp in (LATEST, EARLIEST, EARLIEST_LOCAL):
            log.check_end()
            answer.offset = yield from window.start_offset()
            answer.leader_epoch = log.epoch_at(answer.offset)
            if timestamp == LATEST:
                answer.offset = window.end_offset(isolation, answer.offset)
                answer.leader_epoch = log.leader_epoch
        elif timestamp == MAX_TIMESTAMP:
            _found(answer, (yield from window.find_max(isolation)))
        elif timestamp >= 0:
            _found(answer, (yield from window.find(timestamp, isolation)))
        if version == 0:
            answer.old_style_offsets = [answer.offset][: max(0, asked.max_num_offsets)]
        hidden_end = 0
        if window.end_offset(Isolation.READ_UNCOMMITTED, 0) >= log.high_watermark:
            hidden_end = self._hidden_end(log, timestamp, answer)
        return self._settled(log, asked, answer, hidden_end)

    def _settled(
        self,
        log: Log,
        asked: ListOffsetsPartition,
        answer: ListOffsetsPartitionResponse,
        hidden_end: int,
    ) -> ListOffsetsPartitionResponse:
        """`answer`, after noting the end to wait for; a refusal if that has taken too long."""
        if hidden_end:
            if log in self._overdue:
                is_named = self._request.api_version >= _OFFSET_NOT_AVAILABLE_SINCE
                return _refusal(
                    asked,
                    ErrorCode.OFFSET_NOT_AVAILABLE if is_named else ErrorCode.LEADER_NOT_AVAILABLE,
                )
            self._awaited[log] = hidden_end
        return answer

    def _hidden_end(self, log: Log, timestamp: int, answer: ListOffsetsPartitionResponse) -> int:
        """The end that must be durable for a better answer; 0 if this one will not get better.

        The largest timestamp is "none" while a record that is not visible yet has it, acknowledged
        or not. Then the answer waits for the whole log.
        """
        if timestamp in _STARTS or not _is_consumer(self._message):
            return 0
        if timestamp != LATEST and answer.offset != _UNKNOWN:
            return 0
        if timestamp == MAX_TIMESTAMP and log.offline_reason is None:
            end = log.log_end_offset
            return end if end > log.high_watermark else 0
        return self._context.group_commit.acknowledged_end(log)


def _is_consumer(message: ListOffsetsRequest) -> bool:
    return message.replica_id == _CONSUMER_ID


def _asked_twice(message: ListOffsetsRequest) -> Steps[dict[tuple[str, int], bool]]:
    """The partitions that occur more than once in the request, each with True."""
    keys = (
        (topic.name, asked.partition_index)
        for topic in message.topics
        for asked in topic.partitions
    )
    named = yield from by_key(keys, lambda key: key)
    return {key: True for key, same in named.items() if len(same) > 1}


def _refusal(asked: ListOffsetsPartition, error: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        error_code=error,
        timestamp=_UNKNOWN,
        offset=_UNKNOWN,
        leader_epoch=_UNKNOWN,
    )


def _refuse_all(message: ListOffsetsRequest, error: ErrorCode) -> Steps[ListOffsetsResponse]:
    topics = yield from by_topic(
        message.topics,
        lambda _, asked: _refusal(asked, error),
        lambda topic, answers: ListOffsetsTopicResponse(name=topic.name, partitions=answers),
    )
    return ListOffsetsResponse(topics=topics)


def _offsets_by_age(
    context: Context, message: ListOffsetsRequest, log: Log, asked: ListOffsetsPartition
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
    log.check_end()
    if timestamp == LATEST:
        timestamp = INT64_MAX
    offsets = log.offsets_before(timestamp, count, context.clock.wall_ms())
    if _is_consumer(message) and offsets and offsets[0] > log.high_watermark:
        offsets = [log.high_watermark, *(o for o in offsets if o < log.high_watermark)]
    return offsets


def _look_up(
    version: int,
    message: ListOffsetsRequest,
    log: Log,
    timestamp: int,
    answer: ListOffsetsPartitionResponse,
    large: LargeEntries,
) -> None:
    """Fill `answer` with the result of `timestamp` in `log`."""
    _check_timestamp(version, timestamp)
    is_consumer, isolation = _is_consumer(message), _isolation(message)
    if timestamp == LATEST:
        log.check_end()
        answer.offset = _end(log, isolation, is_consumer=is_consumer)
        answer.leader_epoch = log.leader_epoch
    elif timestamp in _STARTS:
        offset = _boundary(log, timestamp)
        if offset != _UNKNOWN:
            answer.offset = offset
            # At the end it is the epoch of the first record to come.
            is_end = offset == log.log_end_offset
            answer.leader_epoch = log.leader_epoch if is_end else log.epoch_at(offset)
    elif timestamp == MAX_TIMESTAMP:
        _found(answer, log.offset_for_max_timestamp(isolation=isolation, large=large))
    elif timestamp >= 0:
        _found(answer, log.offset_for_timestamp(timestamp, isolation=isolation, large=large))


def _check_timestamp(version: int, timestamp: int) -> None:
    if timestamp < 0 and version < _SINCE.get(timestamp, version + 1):
        raise UnsupportedByVersion(f"Timestamp {timestamp} means nothing in version {version}.")


def _isolation(message: ListOffsetsRequest) -> Isolation:
    if _is_consumer(message) and message.isolation_level == _READ_COMMITTED:
        return Isolation.READ_COMMITTED
    return Isolation.READ_UNCOMMITTED


def _boundary(log: Log, timestamp: int) -> int:
    """One of the starts, or _UNKNOWN where the topic is not tiered or nothing is.

    Source: Kafka `UnifiedLog.fetchOffsetByTimestamp`; the end of what is tiered is inclusive.
    """
    start, segments = log.log_start_offset, log.segments
    if timestamp == EARLIEST:
        return start
    if timestamp == EARLIEST_LOCAL:
        return max(start, segments.first_local.base_offset)
    if not log.config.remote_storage_enable:
        return _UNKNOWN
    end = segments.remote_end
    if timestamp == LATEST_TIERED:
        return _UNKNOWN if end is None else end - 1
    return start if end is None else max(start, end)


def _end(log: Log, isolation: Isolation, *, is_consumer: bool) -> int:
    if not is_consumer:
        return log.log_end_offset
    if isolation is Isolation.READ_COMMITTED:
        return log.last_stable_offset
    return log.high_watermark


def _found(answer: ListOffsetsPartitionResponse, found: TimestampOffset | None) -> None:
    if found is None:
        return
    assert found.timestamp > NO_TIMESTAMP, "a found record has a timestamp; Java insists on it"
    answer.timestamp = found.timestamp
    answer.offset = found.offset
    answer.leader_epoch = found.leader_epoch

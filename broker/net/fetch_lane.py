# cython: language_level=3
# mypy: disable-error-code="untyped-decorator,valid-type,no-any-return"
"""The lane of Fetch: from the bytes of a read to the answer of a reader.

`FetchLane.serve` serves one request of the buffer that a read has filled, if it is usual. Anything
else goes the general way (`broker.net.dispatch`, `broker.handlers.fetch`), with nothing changed:
that way is the reference, and a property test sends the same requests both ways.

Usual is a request that

* has a version from 4 on and no tagged fields, and comes from a consumer;
* names existing partitions, each once, or belongs to a session that has all; none is offline;
* finds at once, and in the records of local segments, as many bytes as it waits for, or nothing:
  then it does not wait, or is served when records come (`broker.net.waiting_fetch`);
* needs no conversion, and no wait for records that are acknowledged and not yet visible;
* sees no open and no aborted transaction, if it reads committed records only.

There are no usual requests of clients that a quota may limit, with an authorizer, or when the round
of the loop has read much already. `PARTITIONS_AT_ONCE` and `ENOUGH_BYTES` bound the work: a slice.

The limits of bytes are those of `broker.requests.fetch_read`, and the values of the answer those of
`Log.read`. A session moves on when the answer is complete. The lane runs compiled and plain.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from broker.fetch import sessions
from broker.net.request_fields import HEADER_BYTES_MIN
from broker.requests import fetch_read
from protocol import registry
from protocol.api.fetch import FetchPartition
from protocol.api_keys import ApiKey
from protocol.records.layout import Codec
from storage.log.values import Isolation

try:
    import cython
except ImportError:  # A wheel built without a compiler, on a machine without Cython.
    from protocol.records import cython_shim as cython

if cython.compiled:
    from cython.cimports.broker.net.request_fields import (
        body_at,
        int16,
        int32,
        int64,
        size_at,
        tags_end,
        text_end,
        topic_end,
    )
    from cython.cimports.protocol.records.record_loops import RecordWalk
    from cython.cimports.storage.append.plain import store
    from cython.cimports.storage.log.lane import LogEnd
else:
    from broker.net.request_fields import (
        body_at,
        int16,
        int32,
        int64,
        size_at,
        tags_end,
        text_end,
        topic_end,
    )
    from protocol.records.record_loops import RecordWalk
    from storage.append.plain import store
    from storage.log.lane import LogEnd

if TYPE_CHECKING:
    from broker.fetch.sessions import FetchSession, FetchTarget
    from broker.requests.context import Context
    from broker.security.session import Session
    from protocol.declare.primitives import Buffer

COMPILED: bool = bool(cython.compiled)
"""Whether this module was compiled to machine code."""

PARTITIONS_AT_ONCE: Final = 64

_now_ns: Final = time.perf_counter_ns

# Numbers of C when they are compiled, by the .pxd.
_FETCH: Final = int(ApiKey.FETCH)
_FIRST_VERSION: Final = 4
_LAST_VERSION: Final = 18
_LOG_START_SINCE: Final = 5
_SESSIONS_SINCE: Final = 7
_LEADER_EPOCH_SINCE: Final = 9
_ZSTD_SINCE: Final = fetch_read.ZSTD_SINCE
_RACK_SINCE: Final = 11
_FLEXIBLE_SINCE: Final = 12
_TOPIC_IDS_SINCE: Final = sessions.TOPIC_IDS_SINCE
_REPLICA_STATE_SINCE: Final = 15
_HEADER_BYTES_MIN: Final = HEADER_BYTES_MIN
_ZSTD: Final = int(Codec.ZSTD)
_CONSUMER_ID: Final = -1
_NO_EPOCH: Final = -1
_FINAL_EPOCH: Final = sessions.FINAL_EPOCH
_PREFIX_BYTES: Final = 8
"""The size of an answer and its correlation id."""
_FULL_SHARE: Final = fetch_read.FULL_SHARE
_SCATTER_FROM_BYTES: Final = registry.SCATTER_FROM_BYTES
_PARTITIONS_AT_ONCE: Final = PARTITIONS_AT_ONCE
_ENOUGH_BYTES: Final = fetch_read.ENOUGH_BYTES
_STEP_BYTES: Final = fetch_read.STEP_BYTES

_ISOLATIONS: Final = (Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED)
_NOTHING: Final = b""
_THROTTLE_TIME: Final = bytes(4)
_SESSION: Final = bytes(6)
_PARTITION: Final = bytes(22)
"""Index, error code, high watermark, last stable offset."""


class Part:
    """One partition of a request, and what was read of it.

    Attributes:
        topic: its name, or its id in versions that have ids.
        target: its entry in the session; `is_asked` if the request changes that.
    """

    def __init__(self, topic: bytes, index: cython.longlong) -> None:
        """Nothing is known yet."""
        self.topic = topic
        self.index = index
        self.offset = self.max_bytes = 0
        self.epoch = self.log_start = _NO_EPOCH
        self.log: Any = None
        self.target: FetchTarget | None = None
        self.is_asked = False
        self.high_watermark = self.stable = self.start = 0
        self.records: Buffer = _NOTHING
        self.records_size = 0


class FetchLane:
    """The lane of one listener. Loop thread only.

    Attributes:
        parts: the answer to the last request that was served, for the transport.
        awaited: the logs of the last one, if it has to wait for records of them; else None.
        awaited_bytes: how many bytes it waits for, above 0.
        max_wait_at: where the frame, without its size, has the milliseconds that it waits.
    """

    def __init__(self, context: Context, scratch: memoryview) -> None:
        """Serve requests out of `scratch`, the buffer that all connections share."""
        self._context = context
        self._security, self._topics = context.security, context.topics
        self._metrics, self._commit = context.metrics, context.group_commit
        self._latency = context.metrics.api(ApiKey.FETCH).latency_ns
        self._sessions, self._turns = context.fetch_sessions, context.turns
        self._answers = context.answers
        self._scratch = scratch
        self._walk = RecordWalk(scratch)
        self._by_name: dict[tuple[bytes, int], LogEnd] = {}
        self._by_id: dict[tuple[bytes, int], LogEnd] = {}
        self._revision = -1
        self._session: FetchSession | None = None
        self._parts: list[Part] = []
        self._is_serving = self._has_waited = self._is_late = self._is_cut = False
        self.parts: list[Buffer] = []
        self.awaited: list[Any] | None = None
        self.awaited_bytes = self.max_wait_at = 0

    def serve(
        self,
        start: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        max_frame_bytes: cython.longlong,
        session: Session,
    ) -> cython.Py_ssize_t:
        """Serve the request at `start` of the first `end` bytes; returns where the next one begins.

        That is `start` if it is not usual, or has to wait. Each begins with its size.
        """
        self.awaited = None
        data: cython.p_const_uchar = self._walk.data if cython.compiled else self._scratch
        if end - start < 4 + _HEADER_BYTES_MIN or int16(data, start + 4) != _FETCH:
            return start
        size: cython.longlong = int32(data, start)
        is_whole: cython.bint = _HEADER_BYTES_MIN <= size <= end - start - 4
        if not is_whole or size > max_frame_bytes or not self._is_open(session):
            return start
        started_ns: cython.longlong = _now_ns()
        self._is_serving = True
        try:
            if not self._serve_frame(start + 4, start + 4 + size, session):
                return start
        finally:
            self._parts, self._session = [], None
            self._is_serving = False
        self._latency.observe(_now_ns() - started_ns)
        return start + 4 + size

    def serve_waiting(self, frame: bytearray, session: Session, is_late: bool) -> bool:
        """Serve a request that has waited, given without its size; whether it is usual.

        With `is_late` it waits no longer. Records that were acknowledged since it came do not hold
        it up. Its latency is the caller's to count.
        """
        if self._is_serving or not self._is_open(session):
            return False
        view: memoryview = memoryview(frame)
        walk, scratch = self._walk, self._scratch
        self._walk, self._scratch = RecordWalk(view), view
        self._is_serving, self._has_waited, self._is_late = True, True, is_late
        try:
            return self._serve_frame(0, len(frame), session)
        finally:
            self._walk, self._scratch = walk, scratch
            self._is_serving = self._has_waited = self._is_late = False
            self._parts, self._session = [], None

    def _is_open(self, session: Session) -> bool:
        """Whether there are usual requests of the client now."""
        security = self._security
        if security.access is not None or self._turns.is_round_full:
            return False
        throttle = security.throttle
        return throttle is None or not throttle.may_limit_requests(session.user)

    def _serve_frame(
        self, start: cython.Py_ssize_t, end: cython.Py_ssize_t, session: Session
    ) -> bool:
        data: cython.p_const_uchar = self._walk.data if cython.compiled else self._scratch
        try:
            if not self._examine(start, end, session) or not self._read():
                return False
        except Exception:  # noqa: BLE001
            # The general way meets it again: it answers a refusal, and reports a defect.
            return False
        self._answer(int32(data, start + 4), self._news())
        self._metrics.bytes_fetched += self._bytes_read
        return True

    # --- the request ----------------------------------------------------------------------------

    def _examine(self, start: cython.Py_ssize_t, end: cython.Py_ssize_t, session: Session) -> bool:
        """Whether the frame in `[start, end)` may be usual; its partitions are then in `_parts`.

        Raises BrokerError.
        """
        data: cython.p_const_uchar = self._walk.data if cython.compiled else self._scratch
        position: cython.Py_ssize_t = self._examine_limits(start, end)
        if position < 0:
            return False
        if self._version >= _SESSIONS_SINCE:
            if not self._choose_session(int32(data, position), int32(data, position + 4), session):
                return False
            position += 8
        asked: dict[Any, Part] = {}
        if not self._examine_topics(position, end, asked):
            return False
        if self._session is None:
            self._parts = list(asked.values())
        elif not self._join_session(asked):
            return False
        return self._find_logs()

    def _examine_limits(
        self, start: cython.Py_ssize_t, end: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Note the version and the limits; where they end, or -1 if they are not usual."""
        data: cython.p_const_uchar = self._walk.data if cython.compiled else self._scratch
        version: cython.int = int16(data, start + 2)
        if version < _FIRST_VERSION or version > _LAST_VERSION:
            return -1
        self._version, self._is_cut = version, False
        size: cython.int = 13
        size += 4 * (version < _REPLICA_STATE_SINCE) + 8 * (version >= _SESSIONS_SINCE)
        position: cython.Py_ssize_t = body_at(data, start, end, version >= _FLEXIBLE_SINCE)
        if position < 0 or end - position < size:
            return -1
        if version < _REPLICA_STATE_SINCE:
            if int32(data, position) != _CONSUMER_ID:
                return -1
            position += 4
        most = self._context.config.fetch_max_bytes
        max_bytes: cython.longlong = int32(data, position + 8)
        self._waits = int32(data, position) > 0 and not self._is_late
        self.max_wait_at = position - start
        self._min_bytes = min(int32(data, position + 4), max_bytes, most)
        self._max_bytes = max_bytes
        self._isolation = data[position + 12]
        if max_bytes <= 0 or self._min_bytes > _ENOUGH_BYTES // 2 or self._isolation > 1:
            return -1
        return position + 13

    def _choose_session(
        self, session_id: cython.longlong, epoch: cython.longlong, session: Session
    ) -> bool:
        """Let `_session` be that of the request, if it has one; whether that is usual."""
        if epoch <= 0:
            return bool(epoch == _FINAL_EPOCH and session_id == 0)
        self._session = self._sessions.expecting(
            session_id,
            epoch,
            uses_topic_ids=self._version >= _TOPIC_IDS_SINCE,
            owner=session.principal,
        )
        return self._session is not None and len(self._session) <= _PARTITIONS_AT_ONCE

    def _examine_topics(
        self, position: cython.Py_ssize_t, end: cython.Py_ssize_t, asked: dict[Any, Part]
    ) -> bool:
        """Add the partitions at `position` to `asked`; whether all to the end is usual."""
        data: cython.p_const_uchar = self._walk.data if cython.compiled else self._scratch
        is_flexible: cython.bint = self._version >= _FLEXIBLE_SINCE
        has_ids: cython.bint = self._version >= _TOPIC_IDS_SINCE
        packed: cython.longlong = size_at(data, position, end, is_flexible)
        topics: cython.longlong = packed >> 3
        partitions: cython.longlong
        if packed < 0 or topics < 0 or topics > _PARTITIONS_AT_ONCE:
            return False
        position += packed & 7
        while topics > 0:
            topics -= 1
            packed = topic_end(data, position, end, has_ids, is_flexible)
            if packed < 0:
                return False
            topic: bytes = bytes(data[position + (packed & 7) : packed >> 3])
            position = packed >> 3
            packed = size_at(data, position, end, is_flexible)
            partitions = packed >> 3
            if packed < 0 or partitions < 1 or partitions > _PARTITIONS_AT_ONCE - len(asked):
                return False
            position += packed & 7
            while partitions > 0:
                partitions -= 1
                position = self._examine_one(position, end, topic, asked)
                if position < 0:
                    return False
            position = tags_end(data, position, end, is_flexible)
            if position < 0:
                return False
        return self._ends_as_usual(position, end)

    def _ends_as_usual(self, position: cython.Py_ssize_t, end: cython.Py_ssize_t) -> bool:
        """Whether what comes after the topics is usual."""
        data: cython.p_const_uchar = self._walk.data if cython.compiled else self._scratch
        is_flexible: cython.bint = self._version >= _FLEXIBLE_SINCE
        packed: cython.longlong
        if self._version >= _SESSIONS_SINCE:
            packed = size_at(data, position, end, is_flexible)
            if packed < 0 or packed >> 3 != 0:
                return False  # the session loses partitions
            position += packed & 7
        if self._version >= _RACK_SINCE:
            # A text has a length like an array in flexible versions, like the name of a topic else.
            packed = topic_end(data, position, end, False, is_flexible)
            if packed < 0:
                return False
            position = text_end(
                data, position + (packed & 7), end, (packed >> 3) - position - (packed & 7)
            )
            if position < 0:
                return False
        return tags_end(data, position, end, is_flexible) >= 0

    def _examine_one(
        self,
        position: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        topic: bytes,
        asked: dict[Any, Part],
    ) -> cython.Py_ssize_t:
        """Add the partition at `position` to `asked`; where it ends, or -1 if it is not usual."""
        data: cython.p_const_uchar = self._walk.data if cython.compiled else self._scratch
        version: cython.int = self._version
        size: cython.int = 16
        size += 8 * (version >= _LOG_START_SINCE) + 4 * (version >= _LEADER_EPOCH_SINCE)
        size += 4 * (version >= _FLEXIBLE_SINCE)
        if end - position < size:
            return -1
        index = int32(data, position)
        part: Part = Part(topic, index)
        position += 4
        if version >= _LEADER_EPOCH_SINCE:
            part.epoch = int32(data, position)
            position += 4
        part.offset = int64(data, position)
        position += 8
        if version >= _FLEXIBLE_SINCE:
            if int32(data, position) != _NO_EPOCH:
                return -1  # the epoch of the reader's last record
            position += 4
        if version >= _LOG_START_SINCE:
            part.log_start = int64(data, position)
            position += 8
        part.max_bytes = int32(data, position)
        if part.max_bytes < 0:
            return -1
        part.is_asked = True
        key = (topic, index)
        if key in asked:
            return -1
        asked[key] = part
        return tags_end(data, position + 4, end, version >= _FLEXIBLE_SINCE)

    def _join_session(self, asked: dict[Any, Part]) -> bool:
        """Let `_parts` be the partitions of the session; whether it has all of `asked`."""
        part: Part
        known: cython.Py_ssize_t = 0
        session: Any = self._session
        for target in session:
            topic = target.topic_id if self._version >= _TOPIC_IDS_SINCE else target.topic.encode()
            found = asked.get((topic, target.partition))
            if found is None:
                part = Part(topic, target.partition)
                request = target.asked
                if request.last_fetched_epoch != _NO_EPOCH:
                    return False
                part.epoch, part.offset = request.current_leader_epoch, request.fetch_offset
                part.max_bytes = request.partition_max_bytes
                if part.max_bytes < 0:
                    return False
            else:
                part = found
                known += 1
            part.target = target
            self._parts.append(part)
        return known == len(asked)

    def _find_logs(self) -> bool:
        """Find the logs of the parts; whether one has news, if it waits for some.

        Raises BrokerError.
        """
        part: Part
        has_news: cython.bint = not self._waits
        if self._revision != self._topics.revision:
            self._revision = self._topics.revision
            self._by_name.clear()
            self._by_id.clear()
        for part in self._parts:
            if not self._find(part):
                return False
            if part.offset < part.log.high_watermark:
                has_news = True
        if not has_news and self._min_bytes > 0:
            self._await_all()
        return has_news

    def _await_all(self) -> None:
        """Wait for the logs, if all is read of each and nothing is about to be visible."""
        part: Part
        logs: list[LogEnd] = []
        for part in self._parts:
            if part.offset != part.log.high_watermark or self._commit.acknowledged_end(part.log):
                return
            logs.append(part.log)
        self.awaited, self.awaited_bytes = logs or None, self._min_bytes

    def _find(self, part: Part) -> bool:
        """Find the log of `part`; whether it is online and has the epoch the reader expects."""
        key = (part.topic, part.index)
        has_id: cython.bint = self._version >= _TOPIC_IDS_SINCE
        logs = self._by_id if has_id else self._by_name
        log = logs.get(key)
        if log is None or log.offline is not None:
            try:
                name = self._topics.get_by_id(part.topic).name if has_id else part.topic.decode()
            except UnicodeDecodeError:
                return False
            log = logs[key] = self._topics.led_log(name, part.index)
        part.log = log
        return log.offline is None and bool(part.epoch < 0 or part.epoch == part.log.leader_epoch)

    def _read(self) -> bool:
        """Read the parts as `broker.requests.fetch_read` does; whether the answer is complete.

        Raises StorageError.
        """
        part: Part
        count: cython.Py_ssize_t = len(self._parts)
        limit: cython.longlong = self._context.config.fetch_max_bytes
        portion: cython.longlong = min(self._max_bytes, _ENOUGH_BYTES)
        allowed: cython.longlong = self._answers.fetch_bytes(min(limit, portion))
        left: cython.longlong = allowed
        max_bytes: cython.longlong
        total: cython.longlong = 0
        first: cython.Py_ssize_t = 0
        number: cython.Py_ssize_t
        is_full: cython.bint
        if portion < self._max_bytes and self._session is None and count > 1:
            first = self._context.random.randrange(count)
        for number in range(count):
            part = self._parts[(first + number) % count]
            max_bytes = min(part.max_bytes, left)
            is_full = not self._read_one(part, max(0, min(max_bytes, _ENOUGH_BYTES)), total == 0)
            if part.log is None:
                return False
            if (
                is_full
                and max_bytes < part.max_bytes
                and left - part.records_size <= allowed // _FULL_SHARE
            ):
                left = part.records_size
            left -= part.records_size
            total += part.records_size
        if total < max(1, self._min_bytes) and (self._waits or self._is_cut):
            return False
        self._bytes_read = total
        for part in self._parts:
            if part.records_size >= _STEP_BYTES:
                self._turns.count_read(part.records_size)
        return True

    def _read_one(self, part: Part, max_bytes: cython.longlong, needs_one: cython.bint) -> bool:
        """Read `part`; whether that reaches the end. It loses its log if it is not usual."""
        log: LogEnd = part.log
        result = log.read(part.offset, max_bytes, _ISOLATIONS[self._isolation], needs_one)
        part.records, part.high_watermark, part.stable = result[0], result[2], result[3]
        part.start = result[4]
        part.records_size = len(part.records)
        next_offset: cython.longlong = result[1]
        is_unusual: cython.bint = False
        is_end: cython.bint = True
        if self._isolation and part.stable != part.high_watermark:
            is_unusual = True
        elif next_offset < part.high_watermark:
            is_end, self._is_cut = False, True
        elif not self._has_waited and self._commit.acknowledged_end(log):
            is_unusual = True
        if result[5]:
            is_unusual = True
        if (
            part.records_size
            and self._version < _ZSTD_SINCE
            and RecordWalk(part.records).has_codec(_ZSTD, part.records_size)
        ):
            is_unusual = True
        if is_unusual:
            part.log = None
        return is_end

    def _news(self) -> list[Part]:
        """The parts that the answer has; the session moves on, and remembers them as reported."""
        session = self._session
        part: Part
        if session is None:
            return self._parts
        self._sessions.advance(session)
        news: list[Part] = []
        for part in self._parts:
            target: Any = part.target
            if part.is_asked:
                target.asked = FetchPartition(
                    partition=part.index,
                    current_leader_epoch=part.epoch,
                    fetch_offset=part.offset,
                    log_start_offset=part.log_start,
                    partition_max_bytes=part.max_bytes,
                )
            if (
                part.records_size
                or part.high_watermark != target.reported_high_watermark
                or part.start != target.reported_log_start_offset
            ):
                news.append(part)
            target.reported_high_watermark = part.high_watermark
            target.reported_log_start_offset = part.start
            if part.records_size:
                session.move_to_end(target)
        return news

    def _answer(self, correlation_id: cython.longlong, news: list[Any]) -> int:
        """Let `parts` be the answer that has `news`; returns 0."""
        version: cython.int = self._version
        is_flexible: cython.bint = version >= _FLEXIBLE_SINCE
        parts: list[Buffer] = []
        answer: bytearray = bytearray(_PREFIX_BYTES)
        first: bytearray = answer
        size: cython.longlong = 0
        part: Part
        number: cython.Py_ssize_t
        following: cython.Py_ssize_t = 0
        store(answer, 4, correlation_id, 4)
        self._add_head(answer, news)
        for number in range(len(news)):
            part = news[number]
            if number == following:
                following = _topic_end(news, number)
                _add_topic(answer, part.topic, following - number, version)
            _add_partition(answer, part, version, self._isolation == 1)
            if part.records_size >= _SCATTER_FROM_BYTES:
                parts.append(answer)
                parts.append(part.records)
                size += len(answer) + part.records_size
                answer = bytearray()
            elif part.records_size:
                answer += part.records
            if is_flexible:
                answer.append(0)  # the tags of the partition
                if number + 1 == following:
                    answer.append(0)  # the tags of the topic
        if is_flexible:
            answer.append(0)
        if answer:
            parts.append(answer)
            size += len(answer)
        store(first, 0, size - 4, 4)
        self.parts = parts
        return 0

    def _add_head(self, answer: bytearray, news: list[Any]) -> int:
        """Add what comes before the topics, and their number; returns 0."""
        is_flexible: cython.bint = self._version >= _FLEXIBLE_SINCE
        topics: cython.longlong = 0
        number: cython.Py_ssize_t = 0
        if is_flexible:
            answer.append(0)  # the tags of the header
        answer += _THROTTLE_TIME
        if self._version >= _SESSIONS_SINCE:
            answer += _SESSION
            if self._session is not None:
                store(answer, len(answer) - 4, self._session.id, 4)
        while number < len(news):
            number = _topic_end(news, number)
            topics += 1
        _add_size(answer, topics, is_flexible)
        return 0


@cython.cfunc
def _topic_end(news: list[Any], start: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Where the parts end that follow `start` and are of its topic."""
    end: cython.Py_ssize_t = start + 1
    part: Part = news[start]
    other: Part
    while end < len(news):
        other = news[end]
        if other.topic != part.topic:
            break
        end += 1
    return end


@cython.cfunc
def _add_number(answer: bytearray, value: cython.longlong, size: cython.int) -> None:
    at: cython.Py_ssize_t = len(answer)
    answer += _PARTITION[:size]
    store(answer, at, value, size)


@cython.cfunc
def _add_size(answer: bytearray, size: cython.longlong, is_flexible: cython.bint) -> None:
    """Add the size of an array or of bytes."""
    if not is_flexible:
        _add_number(answer, size, 4)
        return
    size += 1
    while size >= 0x80:
        answer.append(size & 0x7F | 0x80)
        size >>= 7
    answer.append(size)


@cython.cfunc
def _add_topic(
    answer: bytearray, topic: bytes, partitions: cython.longlong, version: cython.int
) -> None:
    is_flexible: cython.bint = version >= _FLEXIBLE_SINCE
    if version < _TOPIC_IDS_SINCE:
        if is_flexible:
            _add_size(answer, len(topic), True)
        else:
            _add_number(answer, len(topic), 2)
    answer += topic
    _add_size(answer, partitions, is_flexible)


@cython.cfunc
def _add_partition(
    answer: bytearray, part: Part, version: cython.int, is_committed: cython.bint
) -> None:
    """Add a partition up to the size of its records."""
    at: cython.Py_ssize_t = len(answer)
    is_flexible: cython.bint = version >= _FLEXIBLE_SINCE
    answer += _PARTITION
    store(answer, at, part.index, 4)
    store(answer, at + 6, part.high_watermark, 8)
    store(answer, at + 14, part.stable, 8)
    if version >= _LOG_START_SINCE:
        _add_number(answer, part.start, 8)
    # The list of aborted transactions: empty, or null for readers of all records.
    if is_flexible:
        answer.append(1 if is_committed else 0)
    else:
        _add_number(answer, 0 if is_committed else -1, 4)
    if version >= _RACK_SINCE:
        _add_number(answer, -1, 4)  # no replica is preferred
    _add_size(answer, part.records_size, is_flexible)

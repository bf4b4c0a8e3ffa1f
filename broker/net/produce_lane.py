# cython: language_level=3
# mypy: disable-error-code="untyped-decorator,valid-type,no-any-return"
"""The lane of Produce: from the bytes of a read to the log and to the answer, in one compiled call.

`ProduceLane.serve` takes the buffer that a read has filled, whatever number of frames it holds. It
serves the frames at its beginning that are usual Produce requests, in place: nothing is copied out
of the buffer, and no object is made per request but its answer. The first frame that is anything
else, or incomplete, ends the call with nothing of it changed; it and all after it go the general
way (`broker.net.dispatch`, `broker.handlers.produce`), which is the reference. A property test
sends the same requests both ways and compares answers, files, state and metrics.

Usual is a request that

* has a version from 3 on, no transactional id, no tagged fields, `acks` -1, 0 or 1;
* names existing partitions of topics that are not internal, each once;
* comes from a client that may write to them;
* has one plain batch for each of them that its log accepts as it is (`storage.log.lane`);
* finds disk space, and is not too long for one step.

There are no usual requests of clients that a quota may limit. With an authorizer a request is usual
if it is known that the client may write to its topics: the general way decides, and logs refusals.
It also decides about the records of a producer that belongs to a transactional id.

Order within a call: each frame is examined as a whole, then written, then answered. What its
records cause elsewhere, the group commit and fetches that wait, comes once at the end of the call:
it may run other requests. Like `protocol.records.record_loops` it runs compiled and plain.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from broker.errors import BrokerError, ConnectionMustClose
from broker.metrics import AHEAD_MS, BEHIND_MS
from broker.net.durable_answer import DurableAnswer, Wait
from broker.net.request_fields import HEADER_BYTES_MIN
from broker.requests.commit_wait import ACKS_DURABLE, ACKS_NONE, ACKS_WRITTEN
from broker.requests.error_mapping import error_code
from broker.space import LOW_CREDIT_BYTES
from broker.topics.registry import is_internal
from protocol.acl import Operation, ResourceType
from protocol.api_keys import ApiKey
from protocol.error_codes import ErrorCode
from protocol.records.layout import BATCH_OVERHEAD, Codec
from storage.append.opening import Opening
from storage.errors import MessageTooLarge, StorageError, StorageFailed, TooMuchAtOnce

try:
    import cython
except ImportError:  # A wheel built without a compiler, on a machine without Cython.
    from protocol.records import cython_shim as cython

if cython.compiled:
    from cython.cimports.broker.net.request_fields import (
        body_at,
        int16,
        int32,
        size_at,
        tags_end,
        topic_end,
    )
    from cython.cimports.protocol.records.record_loops import RecordWalk
    from cython.cimports.storage.append.plain import store
    from cython.cimports.storage.log.lane import LogLane
else:
    from broker.net.request_fields import body_at, int16, int32, size_at, tags_end, topic_end
    from protocol.records.record_loops import RecordWalk
    from storage.append.plain import store
    from storage.log.lane import LogLane

if TYPE_CHECKING:
    from broker.requests.context import Context
    from broker.security.acls import Decided
    from broker.security.session import Session
    from storage.log.log import Log

    Appended = tuple[LogLane, int, int]

COMPILED: bool = bool(cython.compiled)
"""Whether this module was compiled to machine code."""

PARTITIONS_AT_ONCE: Final = 64
BYTES_AT_ONCE: Final = 1024 * 1024
"""Larger requests with several partitions are served in steps."""

_now_ns: Final = time.perf_counter_ns

# Numbers of C when they are compiled, by the .pxd.
_FIRST_VERSION: Final = 3
_LAST_VERSION: Final = 13
_FLEXIBLE_SINCE: Final = 9
_TOPIC_IDS_SINCE: Final = 13
_LOG_START_SINCE: Final = 5
_ZSTD_SINCE: Final = 7
_RECORD_ERRORS_SINCE: Final = 8
_HEADER_BYTES_MIN: Final = HEADER_BYTES_MIN
_BATCH_OVERHEAD: Final = BATCH_OVERHEAD
_NO_OFFSET: Final = -1
_AHEAD_MS, _BEHIND_MS = AHEAD_MS, BEHIND_MS
_LOW_CREDIT_BYTES: Final = LOW_CREDIT_BYTES
_PRODUCE: Final = int(ApiKey.PRODUCE)
_WRITE: Final = int(Operation.WRITE)
_TOPIC: Final = int(ResourceType.TOPIC)
_ZSTD: Final = int(Codec.ZSTD)
_CODECS_END: Final = len(Codec)
_DURABLE: Final = ACKS_DURABLE
_NONE: Final = ACKS_NONE
_WRITTEN: Final = ACKS_WRITTEN

# The outcomes of serving a frame.
_NOT_USUAL: Final = 0
_ANSWERED: Final = 1
_WAITS: Final = 2

_PREFIX_BYTES: Final = 8
"""The size of an answer and its correlation id."""

_END: Final = bytes(4)
_FLEXIBLE_END: Final = bytes(6)
"""The throttle time after the topics; in flexible versions between tags."""

_ERROR_AT: Final = 4
"""Where the error code is in a partition's answer, between index and base offset."""


_BASE_OFFSET_AT: Final = 6
_LOG_START_AT: Final = 22
_NEW_ANSWER: Final = bytearray(_PREFIX_BYTES)


def _partition_of(version: int) -> bytes:
    """A partition's answer: index, error code, base offset, no log append time.

    Since v5 the start of the log, then that no record has an error.
    """
    log_start = bytes(8 * (version >= _LOG_START_SINCE))
    errors = b""
    if version >= _FLEXIBLE_SINCE:
        errors = b"\x01\0\0"
    elif version >= _RECORD_ERRORS_SINCE:
        errors = bytes(4) + b"\xff\xff"
    return bytes(14) + b"\xff" * 8 + log_start + errors


_PARTITIONS: Final = tuple(_partition_of(version) for version in range(_LAST_VERSION + 1))


@cython.cfunc
@cython.exceptval(check=False)
def _acks_at(
    data: cython.p_const_uchar,
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    is_flexible: cython.bint,
) -> cython.Py_ssize_t:
    """Where the acks of the request in `[start, end)` are; -1 if what is before them is odd.

    That is an odd header, or a transactional id.
    """
    # A batch is still to come, so what comes before it is in the frame.
    position: cython.Py_ssize_t = body_at(data, start, end - _BATCH_OVERHEAD, is_flexible)
    if position < 0:
        return -1
    if is_flexible:
        return position + 1 if data[position] == 0 else -1
    return position + 2 if int16(data, position) == -1 else -1


# --- answers ------------------------------------------------------------------------------------


@cython.cfunc
def _add_partition(
    answer: bytearray,
    version: cython.int,
    index: cython.longlong,
    code: cython.int,
    first_offset: cython.longlong,
    log_start_offset: cython.longlong,
) -> None:
    """Add a partition to `answer`: no record in it has an error, and none was stamped."""
    at: cython.Py_ssize_t = len(answer)
    answer += _PARTITIONS[version]
    store(answer, at, index, 4)
    store(answer, at + _ERROR_AT, code, 2)
    store(answer, at + _BASE_OFFSET_AT, first_offset, 8)
    if version >= _LOG_START_SINCE:
        store(answer, at + _LOG_START_AT, log_start_offset, 8)


# --- requests -----------------------------------------------------------------------------------


class ProduceLane:
    """The lane of one broker. Loop thread only.

    Attributes:
        slice_is_over: whether the last `serve` ended because it had used up its slice.
        has_waits: whether an answer of the last call waits for the disk.
        answer_bytes: the size of the answers of the last call that do not.
    """

    def __init__(self, context: Context, scratch: memoryview) -> None:
        """Serve requests out of `scratch`, the buffer that all connections share, and others."""
        self._context = context
        self._security, self._topics = context.security, context.topics
        self._clock, self._space = context.clock, context.space
        self._metrics, self._commit = context.metrics, context.group_commit
        self._parked, self._failing = self._commit.parked, self._commit.failing
        self._access = context.security.access
        self._decided: Decided | None = None
        self._latency = context.metrics.api(ApiKey.PRODUCE).latency_ns
        self._low_max_ns = self._latency.bounds[0]
        self._low_count = self._low_ns = self._client_at = 0
        self._opening = Opening(context.config.queued_max_decompressed_bytes)
        self._scratch = scratch
        self._scratch_walk = RecordWalk(scratch)
        self._by_name: dict[bytes, dict[int, LogLane]] = {}
        self._by_id: dict[bytes, dict[int, LogLane]] = {}
        self._lanes: dict[Log, LogLane] = {}
        self._revision = -1
        self._parts: list[LogLane] = []
        self._open: list[LogLane] = []
        self._credit = self._now_ms = self._batches = self._records = self._bytes = 0
        self.slice_is_over = self.has_waits = False
        self.answer_bytes = 0

    def serve(
        self,
        view: memoryview,
        end: cython.Py_ssize_t,
        room: cython.int,
        max_frame_bytes: cython.longlong,
        answers: list[bytearray | DurableAnswer],
        session: Session,
    ) -> cython.Py_ssize_t:
        """Serve the usual requests at the beginning of the first `end` bytes of `view`.

        Their client is that of `session`. Returns where the first frame begins that was not
        served, with its size in front. At most `room` requests are served. Their answers are added
        to `answers`.

        Raises:
            ConnectionMustClose: with acks=0 an error can be reported in no other way.
        """
        position: cython.Py_ssize_t = 0
        size: cython.longlong
        end_ns: cython.longlong = 0
        now_ns: cython.longlong
        data: cython.p_const_uchar
        walk: RecordWalk = self._scratch_walk if view is self._scratch else RecordWalk(view)
        data = walk.data if cython.compiled else view
        is_produce: cython.bint = end >= 6 and int16(data, 4) == _PRODUCE
        if not self._begin(session, is_produce):
            return 0
        started_ns: cython.longlong = _now_ns()
        outcome: cython.int
        try:
            while end - position >= 4 and room > 0:
                size = int32(data, position)
                if size > end - position - 4 or size > max_frame_bytes:
                    break
                outcome = self._serve_frame(
                    walk, view, position + 4, position + 4 + size, started_ns, answers
                )
                if outcome == _NOT_USUAL:
                    break
                position += 4 + size
                room -= 1
                now_ns = _now_ns()
                if outcome == _ANSWERED:
                    self._observe(now_ns - started_ns)
                started_ns = now_ns
                if position < end:
                    if end_ns == 0:
                        end_ns = self._context.turns.slice_end_ns()
                    elif now_ns >= end_ns:
                        self.slice_is_over = True
                        break
        finally:
            self._end()
        return position

    def serve_frame(
        self, frame: memoryview, answers: list[bytearray | DurableAnswer], session: Session
    ) -> cython.bint:
        """Serve one frame without its size; False, with nothing changed, if it is not usual."""
        if not self._begin(session, True):
            return False
        started_ns = _now_ns()
        try:
            walk = RecordWalk(frame)
            outcome = self._serve_frame(walk, frame, 0, len(frame), started_ns, answers)
            if outcome == _ANSWERED:
                self._observe(_now_ns() - started_ns)
        finally:
            self._end()
        return bool(outcome != _NOT_USUAL)

    def _begin(self, session: Session, is_produce: cython.bint) -> bool:
        """Begin a call for the client of `session`; whether its first request may be usual.

        What was decided about the client is asked for once: a change of the rules comes with
        another call, and drops all decisions.
        """
        self.slice_is_over = self.has_waits = False
        self.answer_bytes = 0
        if not is_produce:
            return False
        throttle = self._security.throttle
        if throttle is not None and throttle.may_limit_requests(session.user):
            return False
        self._credit = self._space.credit
        if self._credit < _LOW_CREDIT_BYTES:
            self._space.renew()
            self._credit = self._space.credit
        self._now_ms = self._clock.wall_ms()
        if self._access is not None:
            self._decided = self._access.decided(session.principal, session.peer_host)
        revision = self._topics.revision
        if revision != self._revision:
            self._revision = revision
            self._by_name.clear()
            self._by_id.clear()
            self._lanes.clear()
        return True

    def _observe(self, elapsed_ns: cython.longlong) -> cython.int:
        """Note how long a request took; returns 0. `_end` passes short times on together."""
        if elapsed_ns <= self._low_max_ns:
            self._low_count += 1
            self._low_ns += elapsed_ns
        else:
            self._latency.observe(elapsed_ns)
        return 0

    def _end(self) -> None:
        """Close the logs and pass on what was appended; this may run other requests."""
        if self._low_count:
            self._latency.observe_low(self._low_count, self._low_ns)
            self._low_count = self._low_ns = 0
        if not self._open:
            return
        opened, self._open = self._open, []
        appended: list[Appended] = []
        lane: LogLane
        closed: cython.Py_ssize_t = 0
        try:
            for lane in opened:
                closed += 1
                lane.close()
                if lane.appended_bytes:
                    appended.append((lane, lane.appended_bytes, lane.acknowledged))
                    lane.forget()
        except BaseException:
            # It costs this log, and this connection; the other logs get their numbers back.
            opened[closed - 1].forget()
            self._open = opened[closed:]
            self._end()
            raise
        finally:
            self._pass_on(appended)

    def _pass_on(self, appended: list[Appended]) -> None:
        """Count what was appended, and let the group commit and those who wait know.

        `appended` has the lanes, their bytes, and the acknowledged ends or 0.
        """
        metrics, commit = self._metrics, self._commit
        lane: LogLane
        self._space.credit = self._credit
        if self._access is not None:
            self._access.allowed += self._batches
        metrics.batches_appended += self._batches
        metrics.records_appended += self._records
        metrics.bytes_appended += self._bytes
        self._batches = self._records = self._bytes = 0
        # A fetch that was waiting may let a Produce after it run, which is a call of its own.
        is_over: cython.bint = self.slice_is_over
        has_waits: cython.bint = self.has_waits
        answer_bytes: cython.longlong = self.answer_bytes
        for lane, size_bytes, _ in appended:
            if lane.log.wants_commit() or self._parked or self._failing:
                commit.appended(lane.log, size_bytes)
        self.slice_is_over, self.has_waits, self.answer_bytes = is_over, has_waits, answer_bytes
        for lane, _, next_offset in appended:
            if next_offset:
                commit.acknowledge(lane.log, next_offset)

    def _serve_frame(
        self,
        walk: RecordWalk,
        view: memoryview,
        start: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        started_ns: cython.longlong,
        answers: list[bytearray | DurableAnswer],
    ) -> int:
        """Serve the frame in `[start, end)` of `view`: one of the outcomes above."""
        data: cython.p_const_uchar = walk.data if cython.compiled else view
        position: cython.Py_ssize_t
        version: cython.int
        acks: cython.int
        if end - start < _HEADER_BYTES_MIN + _BATCH_OVERHEAD or int16(data, start) != _PRODUCE:
            return _NOT_USUAL
        version = int16(data, start + 2)
        if version < _FIRST_VERSION or version > _LAST_VERSION:
            return _NOT_USUAL
        position = _acks_at(data, start, end, version >= _FLEXIBLE_SINCE)
        if position < 0:
            return _NOT_USUAL
        acks = int16(data, position)
        if acks < _DURABLE or acks > _WRITTEN:
            return _NOT_USUAL
        lane: LogLane
        if end - start > self._credit:
            return _NOT_USUAL  # before the records are examined: it happens again and again
        now_ms: cython.longlong = self._now_ms
        try:
            self._client_at = start + _HEADER_BYTES_MIN
            if not self._examine(walk, view, position + 6, end, version, now_ms):
                return _NOT_USUAL
            for lane in self._parts:
                self._credit -= lane.batch.size
            answer = _NEW_ANSWER.copy()
            store(answer, 4, int32(data, start + 4), 4)
            durable = self._write(walk, view, version, acks, now_ms, answer)
            if acks == _NONE:
                return _ANSWERED
            if not durable:
                self.answer_bytes += len(answer)
                answers.append(answer)
                return _ANSWERED
            self.has_waits = True
            timeout_ms = int32(data, position + 2)
            answers.append(
                DurableAnswer(answer, durable, timeout_ms, started_ns, self._latency.observe)
            )
            return _WAITS
        finally:
            self._end_request()

    def _end_request(self) -> None:
        lane: LogLane
        for lane in self._parts:
            lane.release()
        self._parts.clear()
        if self._opening.is_used:
            self._opening.renew()

    def _examine(
        self,
        walk: RecordWalk,
        view: memoryview,
        position: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        version: cython.int,
        now_ms: cython.longlong,
    ) -> bool:
        """Whether the topics at `position` are usual; their batches are then in `_parts`.

        A part is a lane, with the index of the partition, and the start and end of bytes of the
        request that come before its answer in the response: the topic and the number of its
        partitions.
        """
        data: cython.p_const_uchar = walk.data if cython.compiled else view
        is_flexible: cython.bint = version >= _FLEXIBLE_SINCE
        packed: cython.longlong = size_at(data, position, end, is_flexible)
        topics: cython.longlong = packed >> 3
        partitions: cython.longlong
        head: cython.Py_ssize_t = position
        name_at: cython.Py_ssize_t
        room: cython.longlong = 1 if end - position > BYTES_AT_ONCE else PARTITIONS_AT_ONCE
        if packed < 0 or topics < 1 or topics > room:
            return False
        position += packed & 7
        while topics > 0:
            packed = topic_end(data, position, end, version >= _TOPIC_IDS_SINCE, is_flexible)
            if packed < 0:
                return False
            name_at = position + (packed & 7)
            position = packed >> 3
            topic: bytes = bytes(data[name_at:position])
            packed = size_at(data, position, end, is_flexible)
            partitions = packed >> 3
            if packed < 0 or partitions < 1 or partitions > room:
                return False
            position += packed & 7
            room -= partitions
            while partitions > 0:
                position = self._examine_one(
                    walk, view, position, end, version, now_ms, topic, head
                )
                if position < 0:
                    return False
                head = 0
                partitions -= 1
            position = tags_end(data, position, end, is_flexible)
            if position < 0:
                return False
            head = position
            topics -= 1
        # What comes after the tags of the request is ignored.
        return tags_end(data, position, end, is_flexible) >= 0

    def _examine_one(
        self,
        walk: RecordWalk,
        view: memoryview,
        position: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        version: cython.int,
        now_ms: cython.longlong,
        topic: bytes,
        head: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """Examine the partition at `position`; where it ends, or -1 if it is not usual."""
        data: cython.p_const_uchar = walk.data if cython.compiled else view
        is_flexible: cython.bint = version >= _FLEXIBLE_SINCE
        packed: cython.longlong
        size: cython.longlong
        head_end: cython.Py_ssize_t = position
        lane: LogLane
        if end - position < 4:
            return -1
        index = int32(data, position)
        packed = size_at(data, position + 4, end, is_flexible)
        size = packed >> 3
        position += 4 + (packed & 7)
        if packed < 0 or size > end - position:
            return -1
        known = self._lane_of(topic, index, version)
        if known is None:
            return -1
        lane = known
        if self._decided is not None and not self._decided.get((_WRITE, _TOPIC, lane.log.topic)):
            return -1
        codecs_end = _CODECS_END if version >= _ZSTD_SINCE else _ZSTD
        if not lane.is_open:
            lane.open()
            self._open.append(lane)
        try:
            if not lane.examine(walk, view, position, size, now_ms, self._opening, codecs_end):
                return -1
        except (MessageTooLarge, TooMuchAtOnce):
            return -1
        lane.index, lane.head, lane.head_end = index, head, head_end
        self._parts.append(lane)
        if (
            self._decided is not None
            and lane.batch.producer_id >= 0
            and self._context.transactions.transactional_id_of(lane.batch.producer_id) is not None
        ):
            return -1  # it needs a right on the transactional id, too
        return tags_end(data, position + size, end, is_flexible)

    def _lane_of(self, topic: bytes, index: cython.longlong, version: cython.int) -> LogLane | None:
        """The lane into a partition that may be written; `topic` is a name or an id."""
        by_topic = self._by_id if version >= _TOPIC_IDS_SINCE else self._by_name
        lanes = by_topic.get(topic)
        lane = None if lanes is None else lanes.get(index)
        return lane if lane is not None else self._find(by_topic, topic, index)

    def _find(
        self, by_topic: dict[bytes, dict[int, LogLane]], topic: bytes, index: int
    ) -> LogLane | None:
        topics = self._topics
        try:
            name = topics.get_by_id(topic).name if by_topic is self._by_id else topic.decode()
            log = None if is_internal(name) else topics.led_log(name, index)
        except (BrokerError, UnicodeDecodeError):
            return None
        if log is None:
            return None
        # One for a log, whether it is named or has its id: it holds the numbers of the log.
        lane = self._lanes.get(log)
        if lane is None:
            lane = self._lanes[log] = LogLane(log)
        by_topic.setdefault(topic, {})[index] = lane
        return lane

    def _write(
        self,
        walk: RecordWalk,
        view: memoryview,
        version: cython.int,
        acks: cython.int,
        now_ms: cython.longlong,
        answer: bytearray,
    ) -> list[Wait] | None:
        """Append the examined batches and complete `answer`; what it has to wait for, if anything.

        Raises ConnectionMustClose.
        """
        data: cython.p_const_uchar = walk.data if cython.compiled else view
        is_flexible: cython.bint = version >= _FLEXIBLE_SINCE
        failure: str | None = None
        waits: list[Wait] | None = None
        first_offset: cython.longlong
        log_start_offset: cython.longlong
        lane: LogLane
        if is_flexible:
            answer.append(0)  # the tags of the header
        for lane in self._parts:
            log = lane.log
            if lane.head:
                if is_flexible and len(answer) > _PREFIX_BYTES + 1:
                    answer.append(0)  # the tags of the topic before
                answer += data[lane.head : lane.head_end]
            first_offset, log_start_offset = lane.end_offset, lane.start_offset
            code = self._append(lane, walk, view, now_ms)
            if code is not None:
                first_offset = log_start_offset = _NO_OFFSET
                failure = failure or f"{log.topic}-{log.partition}: {code.name}"
            elif lane.waits_for_disk:
                if acks == _DURABLE:
                    waits = waits or []
                    waits.append((log, lane.end_offset, len(answer) + _ERROR_AT))
                else:
                    lane.acknowledged = lane.end_offset
            number = 0 if code is None else code
            _add_partition(answer, version, lane.index, number, first_offset, log_start_offset)
        if acks == _NONE and failure is not None:
            raise ConnectionMustClose(f"Produce with acks=0 failed for {failure}")
        answer += _FLEXIBLE_END if is_flexible else _END
        store(answer, 0, len(answer) - 4, 4)
        return waits

    def _append(
        self, lane: LogLane, walk: RecordWalk, view: memoryview, now_ms: cython.longlong
    ) -> ErrorCode | None:
        """Write and count the examined batch; None, or the error when the disk has refused it."""
        try:
            lane.write(walk, view, now_ms)
        except StorageError as error:
            code = error_code(error)
            self._metrics.appends_rejected[code.name.lower()] += 1
            if isinstance(error, StorageFailed):
                self._commit.append_failed(lane.log, error)
            return code
        self._batches += 1
        self._records += lane.batch.records_count
        self._bytes += lane.batch.size
        ahead_ms: cython.longlong = lane.batch.max_timestamp - now_ms
        if ahead_ms > _AHEAD_MS or now_ms - lane.batch.min_timestamp > _BEHIND_MS:
            self._metrics.client_times.appended_by_lane(lane, view, self._client_at, now_ms)
        return None

# cython: language_level=3
# mypy: disable-error-code="untyped-decorator,valid-type,no-any-return"
"""The lane into one log: `Log.append` for what nearly every append is, in two compiled steps.

`LogLane.examine` changes nothing. It accepts a plain batch (`storage.append.plain`) of a producer
without a transaction that neither starts a segment, nor repeats or skips a sequence, nor comes from
a producer that the log does not know. Everything else is for `Log.append`. `write` then does what
`Log.append` would have done: the same bytes in the files, the same state in memory, the same
errors of the disk. A property test compares the two.

`LogEnd` has what appends move of a log, in fields of C where extensions were built, and reads of
what they wrote. The end of the log moves at `close` only: until then nothing else may use the log,
and the caller does not give up control.

Like `protocol.records.record_loops` it runs compiled and plain.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from protocol.records import layout
from protocol.records.layout import NO_OFFSET
from storage.append.rules import AppendRules
from storage.errors import (
    LogOffline,
    LogQuarantined,
    OffsetOutOfRange,
    StorageError,
    storage_failure,
)
from storage.log.reader import NOTHING, LogPosition
from storage.log.values import Isolation, ReadResult
from storage.producers.state import CACHED_BATCHES_MAX, SEQUENCE_MAX, CachedBatch
from storage.segment.remote.log import RemoteBytesNeeded
from storage.segment.rolling import RollRules

try:
    import cython
except ImportError:  # A wheel built without a compiler, on a machine without Cython.
    from protocol.records import cython_shim as cython

if cython.compiled:
    from cython.cimports.protocol.records.record_loops import RecordWalk
    from cython.cimports.storage.append.plain import PlainBatch
    from cython.cimports.storage.log.reader import LogReader
    from cython.cimports.storage.segment.feed import SegmentEnd
else:
    from protocol.records.record_loops import RecordWalk
    from storage.append.plain import PlainBatch
    from storage.log.reader import LogReader
    from storage.segment.feed import SegmentEnd

if TYPE_CHECKING:
    from config import TopicConfig
    from storage.append.opening import Opening
    from storage.log.flush import Unsynced
    from storage.log.producers import LogProducers
    from storage.producers.state import ProducerEntry, ProducerState
    from storage.segment.segment_list import SegmentList
    from storage.segment.txn_index import AbortedTxn

COMPILED: bool = bool(cython.compiled)
"""Whether this module was compiled to machine code."""


FLUSH_POLICY_OS: Final = "os"

_COMMITTED: Final = Isolation.READ_COMMITTED
_LOG_END: Final = Isolation.LOG_END

# Numbers of C when they are compiled, by the .pxd.
_TRANSACTIONAL_BIT: Final = layout.TRANSACTIONAL_BIT
_NO_PRODUCER_ID: Final = layout.NO_PRODUCER_ID
_SEQUENCE_MAX: Final = SEQUENCE_MAX


class LogEnd:
    """What appends move of a log, and reads; the base of `Log`, which describes the attributes."""

    def __init__(
        self,
        path: str,
        segments: SegmentList,
        producers: LogProducers,
        unsynced: Unsynced,
        leader_epoch: int,
        log_start_offset: int,
        quarantine: LogQuarantined | None,
    ) -> None:
        """Everything in `segments` is durable and visible."""
        self.path = path
        self.reader = LogReader(segments, index_interval=0)
        self.quarantine = quarantine
        self.segments = segments
        self.producers = producers
        self.leader_epoch = leader_epoch
        self.unsynced = unsynced
        self.offline: LogOffline | None = quarantine
        self.refusal: StorageError | None = quarantine
        self.log_start_offset = log_start_offset
        self.log_end_offset = max(segments.active.next_offset, log_start_offset)
        self.durable_offset = self.high_watermark = self.log_end_offset
        self._shown_base = self._shown_size = 0

    def _set_config(self, config: TopicConfig) -> None:
        self.config = config
        self.append_rules = AppendRules.from_config(config)
        self.roll_rules = RollRules.from_config(config)
        self.waits_for_disk = config.flush_policy != FLUSH_POLICY_OS
        self.index_interval = config.index_interval_bytes
        self._flush_messages = config.flush_messages

    def wants_commit(self) -> cython.bint:
        """Whether the group commit has something to do for the log, whatever anybody waits for."""
        return self.waits_for_disk or self.has_flush_messages() or self.unsynced.is_dirty

    def has_flush_messages(self) -> cython.bint:
        """Whether as many records are not durable as `flush.messages` allows."""
        return self.log_end_offset - self.durable_offset >= self._flush_messages

    def show_end(self) -> cython.int:
        """Move the high watermark to the end of the log; returns 0."""
        active: SegmentEnd = self.segments.active
        assert self.log_end_offset >= self.high_watermark, "the high watermark is above the end"
        self.high_watermark = self.log_end_offset
        self._shown_base = active.base_offset
        self._shown_size = active.log.size
        state = self.producers.state
        if state.completed:
            state.advance_high_watermark(self.log_end_offset)
        return 0

    @property
    def last_stable_offset(self) -> int:
        """Exclusive end for readers of committed records."""
        unstable = self.producers.state.first_unstable_offset()
        if unstable is None:
            return self.high_watermark
        return max(self.log_start_offset, min(unstable, self.high_watermark))

    def end_position(self) -> LogPosition:
        """The position of the next batch."""
        active = self.segments.active
        return LogPosition(self.log_end_offset, active.base_offset, active.size)

    @property
    def shown_position(self) -> LogPosition:
        """Where the visible records end; made when it is asked for, since appends move it."""
        return LogPosition(self.high_watermark, self._shown_base, self._shown_size)

    @shown_position.setter
    def shown_position(self, end: LogPosition) -> None:
        self.high_watermark, self._shown_base, self._shown_size = end

    def read(
        self,
        offset: cython.longlong,
        max_bytes: cython.longlong,
        isolation: Isolation,
        min_one: cython.bint = True,
    ) -> ReadResult:
        """Whole batches from the one that holds `offset` on, bounded by what `isolation` may see.

        The first batch may begin below `offset`. At least one batch is returned if there is a
        visible one and `min_one` is set, else at most `max_bytes`.

        Raises:
            OffsetOutOfRange: `offset` is below the log's start or above its end.
            CorruptLog, StorageFailed: the bytes could not be read, or differ from what was written.
            LogQuarantined: `offset` is damaged or gone, or lies after an offset that is.
            RemoteBytesNeeded: the bytes are in an object store.
        """
        if self.quarantine is not None and offset >= self.quarantine.good_until:
            raise self.quarantine
        if offset < self.log_start_offset or offset > self.log_end_offset:
            raise OffsetOutOfRange(offset, start=self.log_start_offset, end=self.log_end_offset)
        reader: LogReader = self.reader
        state = self.producers.state
        stable: cython.longlong = self.high_watermark
        if state.open_transactions or state.completed:
            stable = self.last_stable_offset
        is_committed: cython.bint = isolation is _COMMITTED
        end_offset: cython.longlong = self.high_watermark
        end_base: cython.longlong = self._shown_base
        end_position: cython.longlong = self._shown_size
        next_offset: cython.longlong = offset
        records = NOTHING
        aborted: list[AbortedTxn] | None = [] if is_committed else None
        try:
            if is_committed and stable != end_offset:
                end_offset, end_base, end_position = reader.position_of(stable)
            elif isolation is _LOG_END and self.offline is None:
                end_offset, end_base, end_position = self.end_position()
            if offset < end_offset and (max_bytes > 0 or min_one):
                records = reader.read(
                    offset, max_bytes, end_offset, end_base, end_position, min_one
                )
                next_offset = reader.next_offset
            if is_committed and self.producers.has_aborts and records:
                aborted = reader.aborted_transactions(offset, next_offset)
        except RemoteBytesNeeded as need:
            raise need.widened(max_bytes) from None
        except OSError as error:
            raise storage_failure("read", self.path, error) from error
        # The tuple itself: the constructor of a named tuple is another call.
        found = (
            records,
            next_offset,
            self.high_watermark,
            stable,
            self.log_start_offset,
            aborted,
        )
        return tuple.__new__(ReadResult, found)


class LogLane:
    """The lane into `log`. Same thread as the log.

    Attributes:
        log: the log.
        batch: the numbers of the batch that `examine` has accepted.
        is_open: whether a call appends to the log.
        is_taken: whether a batch is accepted and not yet written.
        waits_for_disk: as the log's.
        end_offset: of the next record, and `start_offset` the start of the log.
        appended_bytes: how many bytes were written since `forget`.
        acknowledged: a note of the caller, 0 since `forget`.
        index, head, head_end: notes of the caller.
    """

    def __init__(self, log: Any) -> None:
        """Nothing is open."""
        self.log = log
        self.batch = PlainBatch()
        self.is_open = self.is_taken = False
        self.appended_bytes = self.acknowledged = 0
        self._producer: ProducerEntry | None = None
        self._has_begun = False

    def open(self) -> cython.int:
        """Note what appends to the log begin with; returns 0."""
        log: LogEnd = self.log
        self.is_open = True
        self._wants_writing = False
        if not self._has_begun:
            self._has_begun = self.log.leader_epochs.latest_epoch >= log.leader_epoch
        self._is_usable = self._has_begun and log.refusal is None
        self._segment = log.segments.active
        self._file = self._segment.log
        self.end_offset = log.log_end_offset
        self.start_offset = log.log_start_offset
        self.waits_for_disk = log.waits_for_disk
        return 0

    def close(self) -> cython.int:
        """Write the numbers back, and show the end of the log if nothing waits; returns 0.

        Any error puts the log offline: it may be half written back, and no offset of a record that
        is in the file may be given to another.
        """
        if not self.is_open:
            return 0
        self.is_open = False
        if self.appended_bytes == 0:
            return 0
        log: LogEnd = self.log
        try:
            log.log_end_offset = self.end_offset
            if self._wants_writing:
                segment = log.segments.active
                if segment.offset_index.wants_writing:
                    with suppress(OSError):
                        segment.write_out()
            log.producers.state.map_end_offset = self.end_offset
            if not self.waits_for_disk:
                log.show_end()
        except BaseException as error:
            log.offline = log.refusal = LogOffline(self.log.path, repr(error))
            raise
        return 0

    def forget(self) -> cython.int:
        """The caller has passed on what was appended; returns 0."""
        self.appended_bytes = self.acknowledged = 0
        return 0

    def examine(
        self,
        walk: RecordWalk,
        view: memoryview,
        start: cython.Py_ssize_t,
        size: cython.Py_ssize_t,
        now_ms: cython.longlong,
        opening: Opening,
        codecs_end: cython.int,
    ) -> cython.bint:
        """Whether `write` can append the `size` bytes at `start` of `view`; `walk` walks in it.

        At most one batch can be accepted before `write` or `release`. The lane is open. Raises the
        errors of `opening`.
        """
        batch: PlainBatch = self.batch
        rules = self.log.append_rules
        if self.is_taken or not self._is_usable:
            return False
        if not batch.accepts(walk, view, start, size, rules, now_ms, opening, codecs_end):
            return False
        if batch.attributes & _TRANSACTIONAL_BIT or not self._segment.surely_takes(
            size,
            self.end_offset + batch.records_count - 1,
            batch.max_timestamp,
            self.log.roll_rules,
        ):
            return False
        if batch.producer_id <= _NO_PRODUCER_ID:
            self._producer = None
        else:
            producer = self.log.producers.state.find(batch.producer_id)
            if producer is None or not _follows(producer, batch):
                return False
            self._producer = producer
        self.is_taken = True
        return True

    def release(self) -> cython.int:
        """The accepted batch will not be written; returns 0."""
        self.is_taken = False
        return 0

    def write(self, walk: RecordWalk, view: memoryview, now_ms: cython.longlong) -> cython.int:
        """Append the accepted batch, which is stamped in `view`; returns 0.

        `walk` is that of `examine`. Raises as `Log.append` does when the disk fails; the lane is
        closed then.
        """
        batch: PlainBatch = self.batch
        segment: SegmentEnd = self._segment
        position: cython.longlong = self._file.size
        self.is_taken = False
        batch.stamp(walk, view, self.end_offset, self.log.leader_epoch)
        try:
            self._file.append(view[batch.start : batch.start + batch.size])
        except OSError as error:
            self.close()
            self.log.append_failed(self._segment, position, error)
        self.end_offset = batch.last_offset + 1
        self.appended_bytes += batch.size
        segment.appended_ms = now_ms
        if batch.min_timestamp < segment.min_timestamp:
            segment.min_timestamp = batch.min_timestamp
        if batch.max_timestamp > segment.data_max_timestamp:
            segment.data_max_timestamp = batch.max_timestamp
        if segment.feed(
            position,
            batch.size,
            batch.last_offset,
            batch.max_timestamp,
            batch.records_count,
            self.log.index_interval,
            batch,
            batch.min_timestamp,
        ):
            self._wants_writing = True
        if self._producer is not None:
            _remember(self.log.producers.state, self._producer, batch)
        return 0


@cython.cfunc
def _follows(producer: ProducerEntry, batch: PlainBatch) -> cython.bint:
    """Whether the batch of a known producer is its next one; see `storage.producers.state`."""
    if producer.producer_epoch != batch.producer_epoch or producer.txn_first_offset != NO_OFFSET:
        return False
    batches: list[CachedBatch] = producer.batches
    if not batches:
        return False
    last_sequence: cython.longlong = batches[-1][0]
    return (last_sequence + 1) & _SEQUENCE_MAX == batch.base_sequence


@cython.cfunc
def _remember(state: ProducerState, producer: ProducerEntry, batch: PlainBatch) -> cython.int:
    """What `ProducerState.update` does with a batch that follows the producer's last one."""
    producers: dict[int, ProducerEntry] = state.producers
    batches: list[CachedBatch] = producer.batches
    delta: cython.longlong = batch.records_count - 1
    last_sequence: cython.longlong = (batch.base_sequence + delta) & _SEQUENCE_MAX
    del producers[batch.producer_id]
    producers[batch.producer_id] = producer
    if len(batches) == CACHED_BATCHES_MAX:
        del batches[0]
    # The tuple itself: the constructor of a named tuple is another call.
    cached = (last_sequence, batch.last_offset, delta, batch.max_timestamp)
    batches.append(tuple.__new__(CachedBatch, cached))
    producer.last_timestamp = batch.max_timestamp
    return 0

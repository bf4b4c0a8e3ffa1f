# cython: language_level=3
# mypy: disable-error-code="untyped-decorator,valid-type,no-any-return"
"""The lane into one log: `Log.append` for what nearly every append is, in two compiled steps.

`LogLane.examine` changes nothing. It accepts a plain batch (`storage.append.plain`) of a producer
without a transaction that neither starts a segment, nor repeats or skips a sequence, nor comes from
a producer that the log does not know. Everything else is for `Log.append`. `write` then does what
`Log.append` would have done: the same bytes in the files, the same state in memory, the same
errors of the disk. A property test compares the two.

The numbers of the log are taken over by `open` and written back by `close`, so that batches in
between cost no access to objects. Until `close` the log's own are out of date, and nothing else may
use the log: the caller does not give up control.

Like `protocol.records.record_loops` it runs compiled and plain.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from protocol.records import layout
from protocol.records.entry import advance_sequence
from protocol.records.layout import NO_OFFSET
from storage.producers.state import CACHED_BATCHES_MAX, SEQUENCE_MAX, CachedBatch

try:
    import cython
except ImportError:  # A wheel built without a compiler, on a machine without Cython.
    from protocol.records import cython_shim as cython

if cython.compiled:
    from cython.cimports.protocol.records.record_loops import RecordWalk
    from cython.cimports.storage.append.plain import PlainBatch
    from cython.cimports.storage.segment.feed import SegmentEnd
else:
    from protocol.records.record_loops import RecordWalk
    from storage.append.plain import PlainBatch
    from storage.segment.feed import SegmentEnd

if TYPE_CHECKING:
    from storage.append.opening import Opening
    from storage.log.log import Log
    from storage.producers.state import ProducerEntry, ProducerState

COMPILED: bool = bool(cython.compiled)
"""Whether this module was compiled to machine code."""


# Numbers of C when they are compiled, by the .pxd.
_TRANSACTIONAL_BIT: Final = layout.TRANSACTIONAL_BIT
_NO_PRODUCER_ID: Final = layout.NO_PRODUCER_ID


class LogLane:
    """The lane into `log`. Same thread as the log.

    Attributes:
        log: the log.
        batch: the numbers of the batch that `examine` has accepted.
        is_open: whether the numbers of the log are here.
        is_taken: whether a batch is accepted and not yet written.
        waits_for_disk: as the log's.
        end_offset: of the next record, and `start_offset` the start of the log.
        appended_bytes: how many bytes were written since `forget`.
        acknowledged: a note of the caller, 0 since `forget`.
        index, head, head_end: notes of the caller.
    """

    def __init__(self, log: Log) -> None:
        """Nothing is open."""
        self.log = log
        self.batch = PlainBatch()
        self.is_open = self.is_taken = False
        self.appended_bytes = self.acknowledged = 0
        self._end = SegmentEnd()
        self._producer: ProducerEntry | None = None

    def open(self) -> cython.int:
        """Take over the numbers of the log; returns 0."""
        log = self.log
        self.is_open = True
        self._wants_writing = False
        self._is_usable = log.refusal is None and log.leader_epochs.latest_epoch >= log.leader_epoch
        if not self._is_usable:
            return 0
        self._rules = log.append_rules
        self._index_interval = log.config.index_interval_bytes
        self._leader_epoch = log.leader_epoch
        self._producers = log.producers.state
        self._segment = segment = log.segments.active
        self._file = segment.log
        self._end.begin(segment)
        self._end.set_limits(log.roll_rules)
        self.waits_for_disk = log.waits_for_disk
        self.end_offset = log.log_end_offset
        self.start_offset = log.log_start_offset
        return 0

    def close(self) -> cython.int:
        """Write the numbers back, and show the end of the log if nothing waits; returns 0."""
        if not self.is_open:
            return 0
        self.is_open = False
        if self.appended_bytes == 0:
            return 0
        log, segment = self.log, self._segment
        self._end.end()
        segment.appended_ms = self._appended_ms
        log.log_end_offset = self.end_offset
        if self._wants_writing and segment.offset_index.wants_writing:
            with suppress(OSError):
                segment.write_out()
        self._producers.map_end_offset = self.end_offset
        if not self.waits_for_disk:
            log.show_end()
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
        if self.is_taken or not self._is_usable:
            return False
        if not batch.accepts(walk, view, start, size, self._rules, now_ms, opening, codecs_end):
            return False
        if batch.attributes & _TRANSACTIONAL_BIT or not self._end.fits(
            size, self.end_offset + batch.records_count - 1, batch.max_timestamp
        ):
            return False
        if batch.producer_id == _NO_PRODUCER_ID:
            self._producer = None
        else:
            producer = self._producers.find(batch.producer_id)
            if producer is None or not _follows(producer, batch):
                return False
            self._producer = producer
        self.is_taken = True
        return True

    def release(self) -> cython.int:
        """The accepted batch will not be written; returns 0."""
        self.is_taken = False
        return 0

    def write(self, view: memoryview, now_ms: cython.longlong) -> cython.int:
        """Append the accepted batch, which is stamped in `view`; returns 0.

        Raises as `Log.append` does when the disk fails; the lane is closed then.
        """
        batch: PlainBatch = self.batch
        end: SegmentEnd = self._end
        position: cython.longlong = end.size
        self.is_taken = False
        batch.stamp(view, self.end_offset, self._leader_epoch)
        try:
            self._file.append(view[batch.start : batch.start + batch.size])
        except OSError as error:
            self.close()
            self.log.append_failed(self._segment, position, error)
        self.end_offset = batch.last_offset + 1
        self.appended_bytes += batch.size
        self._appended_ms = now_ms
        end.size = position + batch.size
        if batch.min_timestamp < end.min_timestamp:
            end.min_timestamp = batch.min_timestamp
        if batch.max_timestamp > end.data_max_timestamp:
            end.data_max_timestamp = batch.max_timestamp
        if end.feed(
            position,
            batch.size,
            batch.last_offset,
            batch.max_timestamp,
            batch.records_count,
            self._index_interval,
            batch,
            batch.min_timestamp,
        ):
            self._wants_writing = True
        if self._producer is not None:
            _remember(self._producers, self._producer, batch, batch.last_offset)
        return 0


def _follows(producer: ProducerEntry, batch: PlainBatch) -> bool:
    """Whether the batch of a known producer is its next one; see `storage.producers.state`."""
    return (
        producer.producer_epoch == batch.producer_epoch
        and producer.txn_first_offset == NO_OFFSET
        and bool(producer.batches)
        and (producer.batches[-1].last_sequence + 1) & SEQUENCE_MAX == batch.base_sequence
    )


def _remember(
    state: ProducerState, producer: ProducerEntry, batch: PlainBatch, last_offset: int
) -> None:
    """What `ProducerState.update` does with a batch that follows the producer's last one."""
    producers = state.producers
    del producers[batch.producer_id]
    producers[batch.producer_id] = producer
    if len(producer.batches) == CACHED_BATCHES_MAX:
        del producer.batches[0]
    delta = batch.records_count - 1
    producer.batches.append(
        CachedBatch(
            advance_sequence(batch.base_sequence, delta), last_offset, delta, batch.max_timestamp
        )
    )
    producer.last_timestamp = batch.max_timestamp

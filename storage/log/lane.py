# cython: language_level=3
# mypy: disable-error-code="untyped-decorator,valid-type,no-any-return"
"""The lane into one log: `Log.append` for what nearly every append is, in two compiled steps.

`LogLane.examine` changes nothing. It accepts a plain batch (`storage.append.plain`) of a producer
without a transaction that neither starts a segment, nor repeats or skips a sequence, nor comes from
a producer that the log does not know. Everything else is for `Log.append`. `write` then does what
`Log.append` would have done: the same bytes in the files, the same state in memory, the same
errors of the disk. A property test compares the two.

A request with several partitions is examined as a whole before its first batch is written. Between
the two steps nothing else may use the log, so both run without giving up control.

Like `protocol.records.record_loops` it runs compiled and plain.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from protocol.records.entry import advance_sequence
from protocol.records.layout import (
    NO_OFFSET,
    NO_PRODUCER_ID,
    TRANSACTIONAL_BIT,
)
from storage.append.plain import PlainBatch
from storage.producers.state import CACHED_BATCHES_MAX, SEQUENCE_MAX, CachedBatch
from storage.segment.feed import feed_batch, surely_fits

try:
    import cython
except ImportError:  # A wheel built without a compiler, on a machine without Cython.
    from protocol.records import cython_shim as cython

if TYPE_CHECKING:
    from protocol.records.record_loops import RecordWalk
    from storage.append.opening import Opening
    from storage.log.log import Log
    from storage.producers.state import ProducerEntry, ProducerState

COMPILED: bool = bool(cython.compiled)
"""Whether this module was compiled to machine code."""


class LogLane:
    """The lane into `log`. Same thread as the log.

    Attributes:
        log: the log.
        batch: the numbers of the batch that `examine` has accepted.
        is_taken: whether a batch is accepted and not yet written.
    """

    __slots__ = ("_producer", "batch", "is_taken", "log")

    def __init__(self, log: Log) -> None:
        """Nothing is examined."""
        self.log = log
        self.batch = PlainBatch()
        self.is_taken = False
        self._producer: ProducerEntry | None = None

    def examine(
        self,
        walk: RecordWalk,
        view: memoryview,
        start: int,
        size: int,
        now_ms: int,
        opening: Opening,
        codecs_end: int,
    ) -> bool:
        """Whether `write` can append the `size` bytes at `start` of `view`; `walk` walks in it.

        At most one batch can be accepted before `write` or `release`. Raises the errors of
        `opening`.
        """
        log = self.log
        if (
            self.is_taken
            or log.offline is not None
            or log.leader_epochs.latest_epoch < log.leader_epoch
        ):
            return False
        batch = self.batch
        if not batch.accepts(
            walk, view, start, size, log.append_rules, now_ms, opening, codecs_end
        ):
            return False
        last_offset = log.log_end_offset + batch.records_count - 1
        if batch.attributes & TRANSACTIONAL_BIT or not surely_fits(
            log.segments.active, log.roll_rules, size, last_offset, batch.max_timestamp
        ):
            return False
        if batch.producer_id == NO_PRODUCER_ID:
            self._producer = None
        else:
            producer = log.producers.state.find(batch.producer_id)
            if producer is None or not _follows(producer, batch):
                return False
            self._producer = producer
        self.is_taken = True
        return True

    def release(self) -> None:
        """The accepted batch will not be written."""
        self.is_taken = False

    def write(self, view: memoryview, now_ms: int) -> int:
        """Append the accepted batch, which is stamped in `view`; the offset of its first record.

        Raises as `Log.append` does when the disk fails.
        """
        self.is_taken = False
        log, batch = self.log, self.batch
        first_offset = log.log_end_offset
        count, size = batch.records_count, batch.size
        last_offset = first_offset + count - 1
        batch.stamp(view, first_offset, log.leader_epoch)
        segment = log.segments.active
        position = segment.log.size
        try:
            segment.log.append(view[batch.start : batch.start + size])
        except OSError as error:
            log.append_failed(segment, position, error)
        max_timestamp = batch.max_timestamp
        is_indexed = feed_batch(
            segment,
            position,
            size,
            last_offset,
            max_timestamp,
            count,
            log.config.index_interval_bytes,
            batch,
            batch.min_timestamp,
        )
        if batch.min_timestamp < segment.min_timestamp:
            segment.min_timestamp = batch.min_timestamp
        if max_timestamp > segment.data_max_timestamp:
            segment.data_max_timestamp = max_timestamp
        segment.appended_ms = now_ms
        log.log_end_offset = segment.next_offset
        if is_indexed and segment.offset_index.wants_writing:
            with suppress(OSError):
                segment.write_out()
        state = log.producers.state
        if self._producer is not None:
            _remember(state, self._producer, batch, last_offset)
        state.map_end_offset = last_offset + 1
        if not log.waits_for_disk:
            log.show_end()
        return first_offset


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

"""The read side of a log: its offsets, records by offset, offsets by time.

Owns the offsets of one partition and their order, asserted whenever one of them moves:

    log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset
                        durable_offset <= log_end_offset

| offset              | meaning (all but the first are exclusive ends)                          |
|---------------------|-------------------------------------------------------------------------|
| `log_start_offset`  | earliest record that may be read; below it is what retention removes    |
| `last_stable_offset`| end for readers of committed records: no open transaction below it      |
| `high_watermark`    | end for all other consumers                                             |
| `durable_offset`    | everything below is synced: also the recovery point                     |
| `log_end_offset`    | offset of the next record                                               |

Nothing here changes the log; its subclass in `storage.log.log` does, and callers use that one.

Source: Kafka `UnifiedLog`. Read next: `storage.log.reader`, `storage.log.lookup`.
"""

from storage.errors import LogOffline, OffsetOutOfRange, storage_failure
from storage.log.leader_epochs import EpochEnd
from storage.log.lookup import LargeEntries, LookupExplanation, TimestampOffset, offsets_before
from storage.log.reader import NOTHING, LogPosition
from storage.log.segmented_log import SegmentedLog
from storage.log.values import Isolation, LogParts, ReadResult
from storage.segment.segment_list import SegmentList
from storage.segment.txn_index import AbortedTxn


class ReadableLog:
    """The queries that a log answers. Base of `Log`; same thread as its writer.

    Attributes:
        topic, partition, path: which log this is, and its directory.
        local: its files.
        leader_epochs: where each leader epoch began.
        producers: producers and transactions.
        recovery_report: the findings of opening it.
        quarantine: why it was opened read-only, or None; a quarantined log ends too early.
    """

    def __init__(self, parts: LogParts, *, topic: str, partition: int) -> None:
        """Take over loaded parts, all of whose bytes are durable."""
        self.topic = topic
        self.partition = partition
        self.path = parts.path
        self.leader_epochs = parts.leader_epochs
        self.producers = parts.producers
        self.recovery_report = parts.report
        self.local = SegmentedLog(
            parts.files, parts.path, parts.segments, parts.manifest, parts.random
        )
        self.local.end_offset = max(self.local.end_offset, parts.log_start_offset)
        self.log_start_offset = parts.log_start_offset
        self.durable_offset = self.high_watermark = self.local.end_offset
        self._visible_end = self.local.end()._replace(position=parts.end_position)
        self.quarantine = parts.quarantine
        self._offline: LogOffline | None = parts.quarantine

    @property
    def last_stable_offset(self) -> int:
        """Exclusive end for readers of committed records."""
        unstable = self.producers.state.first_unstable_offset()
        if unstable is None:
            return self.high_watermark
        return max(self.log_start_offset, min(unstable, self.high_watermark))

    @property
    def size_bytes(self) -> int:
        """Bytes in all `.log` files."""
        return self.local.size_bytes

    @property
    def log_end_offset(self) -> int:
        """Offset of the next record."""
        return self.local.end_offset

    @property
    def segments(self) -> SegmentList:
        """The segments, oldest first; the caller must not change them."""
        return self.local.segments

    @property
    def recovery_point(self) -> int:
        """Everything below it is durable: recovery after a crash starts reading here."""
        return self.durable_offset

    @property
    def offline_reason(self) -> str | None:
        """Why the log stopped for good, or None while it is online."""
        return None if self._offline is None else self._offline.reason

    @property
    def offline_kind(self) -> str | None:
        """`offline_reason` in one word: the quarantine's kind, or "failed" for a later error."""
        if self._offline is None:
            return None
        return "failed" if self.quarantine is None else self.quarantine.kind.value

    def check_end(self) -> None:
        """Refuse to give the end of a log that had more records than can be read now.

        Raises LogQuarantined.
        """
        if self.quarantine is not None:
            raise self.quarantine

    @property
    def first_base_offset(self) -> int:
        """Base offset of the oldest segment; the log's start is at or above it."""
        return self.segments.first.base_offset

    def end_offset(self, isolation: Isolation) -> int:
        """The exclusive end of what a reader of this isolation level sees."""
        if isolation is Isolation.READ_UNCOMMITTED:
            return self.high_watermark
        if isolation is Isolation.READ_COMMITTED:
            return self.last_stable_offset
        return self.log_end_offset

    # --- read -----------------------------------------------------------------------------------

    def read(
        self, offset: int, *, max_bytes: int, isolation: Isolation, min_one: bool = True
    ) -> ReadResult:
        """Whole batches from the one that holds `offset` on, bounded by what `isolation` may see.

        The first batch may begin below `offset`. At least one batch is returned if there is a
        visible one and `min_one` is set, else at most `max_bytes`.

        Raises:
            OffsetOutOfRange: `offset` is below the log's start or above its end.
            CorruptLog, StorageFailed: the bytes could not be read, or differ from what was written.
            LogQuarantined: `offset` is damaged or gone, or lies after an offset that is.
        """
        if self.quarantine is not None and offset >= self.quarantine.good_until:
            raise self.quarantine
        if not self.log_start_offset <= offset <= self.local.end_offset:
            raise OffsetOutOfRange(offset, start=self.log_start_offset, end=self.log_end_offset)
        stable = self.last_stable_offset
        committed = isolation is Isolation.READ_COMMITTED
        records, next_offset = NOTHING, offset
        try:
            end = self._end_for(isolation, stable)
            if offset < end.offset:
                records, next_offset = self.local.reader.read(
                    offset, max_bytes=max_bytes, end=end, min_one=min_one
                )
            aborted: list[AbortedTxn] | None = [] if committed else None
            if committed and self.producers.has_aborts and records:
                aborted = self.local.reader.aborted_transactions(offset, next_offset)
        except OSError as error:
            raise storage_failure("read", self.path, error) from error
        return ReadResult(
            records, next_offset, self.high_watermark, stable, self.log_start_offset, aborted
        )

    def _end_for(self, isolation: Isolation, stable: int) -> LogPosition:
        if isolation is Isolation.LOG_END:
            return self.local.end() if self._offline is None else self._visible_end
        if isolation is Isolation.READ_UNCOMMITTED or stable == self.high_watermark:
            return self._visible_end
        return self.local.reader.position_of(stable)

    # --- time -----------------------------------------------------------------------------------

    def offset_for_timestamp(
        self,
        timestamp: int,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        large: LargeEntries | None = None,
    ) -> TimestampOffset | None:
        """The first record at or after `timestamp` (ms, >= 0), or None if none is visible yet.

        Raises StorageFailed; LogQuarantined when the answer may be among the lost records;
        TooMuchAtOnce when there are `large` entries to search in another thread.
        """
        try:
            found = self.local.lookup.find(timestamp, self.log_start_offset, None, large)
        except OSError as error:
            raise storage_failure("lookup", self.path, error) from error
        if found is not None and found.offset < self.end_offset(isolation):
            return found
        self.check_end()
        return None

    def offset_for_max_timestamp(
        self,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        large: LargeEntries | None = None,
    ) -> TimestampOffset | None:
        """The first record that has the largest timestamp of the log; None when none has any,
        or when it is not visible yet.

        Raises StorageFailed; LogQuarantined, because the answer may be among the lost records;
        TooMuchAtOnce as above.
        """
        self.check_end()
        try:
            found = self.local.lookup.find_max(self.log_start_offset, large)
        except OSError as error:
            raise storage_failure("lookup", self.path, error) from error
        return found if found is not None and found.offset < self.end_offset(isolation) else None

    def explain_offset_for_timestamp(self, timestamp: int) -> LookupExplanation:
        """`offset_for_timestamp` with its cost and the records before and after the answer.

        Raises StorageFailed.
        """
        try:
            return self.local.lookup.explain(timestamp, self.log_start_offset, self.high_watermark)
        except OSError as error:
            raise storage_failure("lookup", self.path, error) from error

    def offsets_before(self, timestamp: int, max_offsets: int, now_ms: int) -> list[int]:
        """The answer to ListOffsets version 0: at most `max_offsets` starts of segments last
        written at or before `timestamp` (ms), newest first; see `lookup.offsets_before`.
        """
        return offsets_before(
            self.segments,
            timestamp,
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
            now_ms=now_ms,
        )[:max_offsets]

    def epoch_at(self, offset: int) -> int:
        """The leader epoch in which the record at `offset` was written, or NO_LEADER_EPOCH."""
        return self.leader_epochs.epoch_for_offset(offset)

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        """The end of a leader epoch; see `LeaderEpochs.end_offset_for`. Raises LogQuarantined."""
        self.check_end()
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    def _check_offsets(self) -> None:
        stable = self.last_stable_offset
        assert self.log_start_offset <= stable <= self.high_watermark <= self.log_end_offset, (
            f"{self.path}: start {self.log_start_offset}, stable {stable}, "
            f"high watermark {self.high_watermark}, end {self.log_end_offset}"
        )
        assert self.durable_offset <= self.log_end_offset

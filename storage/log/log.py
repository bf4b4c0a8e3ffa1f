"""One partition: an append-only log of record batches.

Owns the segments, the offsets of the partition and the order of steps that changes them:

    log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset
                        durable_offset     <= high_watermark

| offset              | meaning (all but the first are exclusive ends)                          |
|---------------------|-------------------------------------------------------------------------|
| `log_start_offset`  | earliest record that may be read; below it is what retention removes    |
| `last_stable_offset`| end for readers of committed records: no open transaction below it      |
| `high_watermark`    | end for all other consumers                                             |
| `durable_offset`    | everything below is synced: also the recovery point                     |
| `log_end_offset`    | offset of the next record                                               |

An append: validate and stamp (`storage.append.plan`), leader epoch, roll if due, producer state and
duplicates, one write, indexes, offsets, producer map. Each step that refuses leaves the log
untouched. A flush: begin, run in another thread, complete. A removal: the start of the log moves
durably, then files are renamed, later unlinked.

A write that fails half-way is cut back to the last whole batch. If the cut fails too, or a sync
fails, the log is offline until a restart: it accepts no append and serves only what is durable.

Under `flush.policy=batch` the high watermark waits for the disk: it is the durable offset, so that
a power cut cannot remove what a consumer has seen. Under `os` it is the log's end, as in a Kafka
with one replica.

Concurrency: one thread calls everything here. Only `FlushTicket.run` may run in another thread.
Source: Kafka `UnifiedLog`.
"""

from contextlib import suppress
from random import Random
from typing import Final, NoReturn

from config import TopicConfig
from protocol.records.layout import NO_TIMESTAMP
from storage.append.opening import Opening
from storage.append.plan import AppendPlan, Examined, Origin, place_append, plan_append
from storage.disk.files import Files
from storage.disk.steps import Steps
from storage.errors import (
    LogOffline,
    LogQuarantined,
    OffsetOutOfRange,
    PolicyViolation,
    StorageFailed,
    storage_failure,
)
from storage.log.auxiliary_indexes import AuxiliaryIndexes
from storage.log.flush import FlushTicket, Unsynced
from storage.log.lane import LogEnd
from storage.log.leader_epochs import EpochEnd, LeaderEpochs
from storage.log.lookup import (
    LargeEntries,
    LookupExplanation,
    TimeLookup,
    TimestampOffset,
    offsets_before,
)
from storage.log.producers import LogProducers
from storage.log.reader import LogPosition
from storage.log.segment_changes import SegmentChanges
from storage.log.values import (
    NOTHING_FOUND,
    AppendResult,
    Isolation,
    RecoveryReport,
    appended,
    appended_before,
)
from storage.segment.manifest import Manifest
from storage.segment.rolling import find_roll_reason
from storage.segment.segment import Segment
from storage.segment.segment_list import SegmentList

STAMP_SLACK_MS: Final = 60_000
"""How far the clock may fall behind the last LogAppendTime stamp before stamps fall with it."""


class Log(LogEnd):
    """The log of one partition. Opened by `storage.recovery.recovery`, closed by `close`.

    Attributes:
        topic, partition, path: which log this is, and its directory.
        segments: oldest first, the last one is appended to; only the log changes them.
        manifest: the stored facts about closed segments.
        unsynced: the files that are not durable yet, apart from the growth of the active segment.
        reader, lookup: reads by offset and by time.
        leader_epochs: where each leader epoch began.
        producers: producers and transactions.
        changes: rolls, removals and replacements of segments.
        waits_for_disk: whether the high watermark waits for it.
        durable_position: where the durable records end in their file.
        held_by_future: base offset of the segment that only a timestamp ahead of the clock keeps.
        is_closed: whether the log was closed; steps that are under way then write nothing more.
        recovery_report: the findings of opening it.
        quarantine: why it was opened read-only, or None; a quarantined log ends too early.
        offline, refusal: why the log has stopped for good, and what every append raises; or None.
    """

    def __init__(
        self,
        *,
        files: Files,
        path: str,
        topic: str,
        partition: int,
        config: TopicConfig,
        segments: list[Segment],
        manifest: Manifest,
        producers: LogProducers,
        leader_epochs: LeaderEpochs,
        leader_epoch: int,
        log_start_offset: int,
        end_position: int,
        last_stamp_ms: int,
        is_new: bool,
        random: Random,
        report: RecoveryReport,
        quarantine: LogQuarantined | None = None,
    ) -> None:
        """Take over loaded segments, all of whose bytes are synced. Raises OSError.

        The log ends at `end_position` of the last segment; batches appended from now on carry
        `leader_epoch`. `last_stamp_ms` is the newest LogAppendTime stamp in the log, or
        NO_TIMESTAMP. `is_new` says that the directory has entries which are not synced yet.
        """
        segments[-1].time_index.load_last()
        self.topic = topic
        self.partition = partition
        unsynced = Unsynced(files, path)
        listed = SegmentList(segments)
        super().__init__(
            path, listed, producers, unsynced, leader_epoch, log_start_offset, quarantine
        )
        self.manifest = manifest
        self._auxiliary = AuxiliaryIndexes(files, self.unsynced)
        self.lookup = TimeLookup(self.segments, self._auxiliary, index_interval=0)
        self.changes = SegmentChanges(
            files,
            path,
            self.segments,
            manifest=manifest,
            unsynced=self.unsynced,
            auxiliary=self._auxiliary,
            readers=(self.reader, self.lookup),
        )
        self.leader_epochs = leader_epochs
        self.recovery_report = NOTHING_FOUND if report == NOTHING_FOUND else report
        self.held_by_future: int | None = None
        self.is_closed = False
        end = self.end_position()._replace(position=end_position)
        self.shown_position = self.durable_position = end
        self._random = random
        self._last_stamp_ms = last_stamp_ms
        if is_new:
            self.unsynced.add_created()
        producers.state.advance_high_watermark(self.high_watermark)
        self.reconfigure(config)
        self._check_offsets()

    def reconfigure(self, config: TopicConfig) -> None:
        """Apply another configuration, starting with the next operation."""
        self._set_config(config)
        self.reader.index_interval = config.index_interval_bytes
        self.lookup.index_interval = config.index_interval_bytes
        self._draw_jitter(self.segments.active)
        self._auxiliary.configure(config, self.segments)
        if not self.waits_for_disk and self.offline is None:
            self.show_end()

    # --- offsets and state ----------------------------------------------------------------------

    @property
    def cleaned_offset(self) -> int:
        """The offset below which the log is compacted; the log's start if nothing was compacted."""
        cleaned = self.manifest.cleaned_offset
        known = cleaned if cleaned <= self.segments.active.base_offset else 0
        return max(known, self.log_start_offset)

    def end_offset(self, isolation: Isolation) -> int:
        """The exclusive end of what a reader of this isolation level sees."""
        if isolation is Isolation.READ_UNCOMMITTED:
            return self.high_watermark
        if isolation is Isolation.READ_COMMITTED:
            return self.last_stable_offset
        return self.log_end_offset

    @property
    def size_bytes(self) -> int:
        """Bytes in all `.log` files on this machine."""
        return sum(segment.size for segment in self.segments if not segment.is_remote)

    @property
    def newest_append_ms(self) -> int:
        """The broker's clock at the newest append, as far as it is known, or NO_TIMESTAMP."""
        appended_ms = (s.appended_ms for s in reversed(list(self.segments)) if not s.is_empty)
        return max(self._last_stamp_ms, next(appended_ms, NO_TIMESTAMP))

    @property
    def offline_reason(self) -> str | None:
        """Why the log stopped for good, or None while it is online."""
        return None if self.offline is None else self.offline.reason

    @property
    def offline_kind(self) -> str | None:
        """`offline_reason` in one word: the quarantine's kind, or "failed" for a later error."""
        if self.offline is None:
            return None
        return "failed" if self.quarantine is None else self.quarantine.kind.value

    def check_end(self) -> None:
        """Refuse to give the end of a log that had more records than can be read now.

        Raises LogQuarantined.
        """
        if self.quarantine is not None:
            raise self.quarantine

    def go_offline(self, error: OSError) -> NoReturn:
        """Stop for good: what is on disk is unknown from now on. Raises LogOffline."""
        self.offline = self.refusal = LogOffline(self.path, str(error))
        raise self.offline from error

    def _advance_high_watermark(self, end: LogPosition) -> None:
        if end.offset >= self.high_watermark:
            assert end.offset <= self.log_end_offset, "the high watermark is above the log's end"
            # When a flush completes after a roll, its end is the end of a closed segment.
            self.shown_position = self.reader.at_segment_start(end)
            self.producers.state.advance_high_watermark(end.offset)

    def _check_offsets(self) -> None:
        stable = self.last_stable_offset
        assert self.log_start_offset <= stable <= self.high_watermark <= self.log_end_offset, (
            f"{self.path}: start {self.log_start_offset}, stable {stable}, "
            f"high watermark {self.high_watermark}, end {self.log_end_offset}"
        )
        assert self.durable_offset <= self.high_watermark, (
            f"{self.path}: durable {self.durable_offset}, high watermark {self.high_watermark}"
        )
        assert self.segments.first.base_offset <= self.log_start_offset

    # --- append ---------------------------------------------------------------------------------

    def append(
        self,
        records: memoryview,
        *,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        produce_version: int | None = None,
        stamp_slack_ms: int = STAMP_SLACK_MS,
        opening: Opening | None = None,
    ) -> AppendResult:
        """Append whole batches; `records` is stamped in place and not kept.

        `opening` is the decompression budget of the request that carried the records. Under
        LogAppendTime the stamp is `now_ms`. The stamp stays at the last one, also over a restart,
        while the clock is at most `stamp_slack_ms` behind it (differs from Kafka, where every
        backward step shows in the log). If the clock is further behind, one of the two was wrong,
        and the stamps follow the clock.

        Raises:
            AppendRejected: the records are refused; see its subclasses. Nothing was written.
            DiskFull, StorageFailed: nothing was written; the caller may retry the append.
            LogOffline, FollowsBucket: the log has stopped for good, or another broker owns it.
            TooMuchAtOnce: nothing was changed; call `examine_append` in another thread, then
                `append_examined`.
        """
        if self.refusal is not None:
            raise self.refusal
        plan = plan_append(
            records,
            rules=self.append_rules,
            now_ms=self._stamp_ms(now_ms, stamp_slack_ms),
            next_offset=self.log_end_offset,
            leader_epoch=self.leader_epoch,
            origin=origin,
            produce_version=produce_version,
            opening=opening,
        )
        return self._append_plan(plan, now_ms, origin)

    def append_examined(
        self, examined: Examined, *, now_ms: int, stamp_slack_ms: int = STAMP_SLACK_MS
    ) -> AppendResult | None:
        """Append examined records; None if the rules have changed since. Raises as `append`."""
        if self.refusal is not None:
            raise self.refusal
        if examined.rules != self.append_rules:
            return None
        plan = place_append(
            examined,
            now_ms=self._stamp_ms(now_ms, stamp_slack_ms),
            next_offset=self.log_end_offset,
            leader_epoch=self.leader_epoch,
        )
        return self._append_plan(plan, now_ms, Origin.CLIENT)

    def _stamp_ms(self, now_ms: int, slack_ms: int) -> int:
        """The clock reading by which an append at `now_ms` is judged and stamped."""
        if 0 < self._last_stamp_ms - now_ms <= slack_ms and self.append_rules.stamps:
            return self._last_stamp_ms
        return now_ms

    def _append_plan(self, plan: AppendPlan, now_ms: int, origin: Origin) -> AppendResult:
        if not plan.batches:
            return appended(plan, self.log_start_offset)
        try:
            if self.leader_epochs.latest_epoch < self.leader_epoch:
                begun = self.leader_epochs.assign_unsynced(self.leader_epoch, plan.first_offset)
                self.unsynced.add_complete(begun)
            reason = find_roll_reason(
                self.segments.active,
                self.roll_rules,
                size_bytes=len(plan.buffer),
                last_offset=plan.last_offset,
                max_timestamp=plan.max_timestamp,
                now_ms=now_ms,
            )
            if reason is not None:
                self._start_segment(now_ms)
        except OSError as error:
            raise storage_failure("append", self.path, error) from error
        duplicate = self.producers.check(plan.buffer, plan.batches, origin)
        if duplicate is not None:
            return appended_before(duplicate, self.log_start_offset)
        self._write(plan, now_ms)
        if plan.log_append_time_ms != NO_TIMESTAMP:
            self._last_stamp_ms = plan.log_append_time_ms
        return appended(plan, self.log_start_offset)

    def _write(self, plan: AppendPlan, now_ms: int) -> None:
        """Write bytes, indexes and offsets: from here on the append has happened."""
        segment = self.segments.active
        size_before = segment.size
        try:
            segment.append(
                plan.buffer,
                plan.batches,
                now_ms=now_ms,
                index_interval=self.config.index_interval_bytes,
                min_timestamp=plan.min_timestamp,
                data_max_timestamp=NO_TIMESTAMP if plan.is_marker else plan.max_timestamp,
            )
        except OSError as error:
            self.append_failed(segment, size_before, error)
        assert segment.next_offset == plan.last_offset + 1 > self.log_end_offset
        self.log_end_offset = segment.next_offset
        if segment.offset_index.wants_writing:
            # A failure costs nothing: the entries stay in memory, and `seal` tries again.
            with suppress(OSError):
                segment.write_out()
        try:
            self.producers.update(plan.buffer, plan.batches, segment)
        except OSError as error:
            # The marker is in the log but not in the index: readers would get wrong results.
            self.go_offline(error)
        self.producers.state.map_end_offset = self.log_end_offset
        if not self.waits_for_disk:
            self.show_end()

    def append_failed(self, segment: Segment, size_before: int, error: OSError) -> NoReturn:
        """A write to `segment` failed: cut off what it left, or stop. Raises StorageError."""
        try:
            segment.log.truncate(size_before)
        except OSError:
            self.go_offline(error)
        raise storage_failure("append", self.path, error) from error

    # --- roll -----------------------------------------------------------------------------------

    def roll(self, now_ms: int) -> None:
        """Close the active segment and start a new one at the log's end.

        An empty active segment stays. Raises StorageFailed, with the log as it was.
        """
        if self.offline is not None:
            raise self.offline
        try:
            self._start_segment(now_ms)
        except OSError as error:
            raise storage_failure("roll", self.path, error) from error

    def _start_segment(self, now_ms: int) -> None:
        # Before the roll, which must not have happened when this fails. Even without producers: an
        # unclean start would otherwise search the whole log for them.
        snapshot = self.producers.snapshots.take_unsynced(self.producers.state)
        try:
            if self.segments.active.base_offset < self.log_end_offset:
                segment = self.changes.roll(
                    log_end_offset=self.log_end_offset,
                    durable_offset=self.durable_offset,
                    now_ms=now_ms,
                )
                self._draw_jitter(segment)
        finally:
            # After the files of the closed segment: they are synced in this order.
            self.unsynced.add_complete(snapshot)
        assert self.segments.active.is_empty, "a segment with data begins at the log's end"
        assert self.segments.active.base_offset == self.log_end_offset, "a gap before the segment"
        # The high watermark stays, but its position may lie in the new segment now.
        self.shown_position = self.reader.at_segment_start(self.shown_position)

    def _draw_jitter(self, segment: Segment) -> None:
        jitter_ms = min(self.config.segment_jitter_ms, self.config.segment_ms)
        segment.roll_jitter_ms = self._random.randrange(jitter_ms) if jitter_ms else 0

    # --- time -----------------------------------------------------------------------------------

    def offset_for_timestamp(
        self,
        timestamp: int,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        large: LargeEntries | None = None,
    ) -> TimestampOffset | None:
        """The first record at or after `timestamp` (ms, >= 0), or None if none is visible yet.

        Raises StorageFailed, RemoteBytesNeeded; LogQuarantined when the answer may be among the
        lost records; TooMuchAtOnce when there are `large` entries to search in another thread.
        """
        try:
            found = self.lookup.find(timestamp, self.log_start_offset, None, large)
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

        Raises as above; LogQuarantined, because the answer may be among the lost records.
        """
        self.check_end()
        try:
            found = self.lookup.find_max(self.log_start_offset, large)
        except OSError as error:
            raise storage_failure("lookup", self.path, error) from error
        return found if found is not None and found.offset < self.end_offset(isolation) else None

    def explain_offset_for_timestamp(self, timestamp: int) -> LookupExplanation:
        """`offset_for_timestamp` with its cost and the records before and after the answer.

        Raises StorageFailed.
        """
        try:
            return self.lookup.explain(timestamp, self.log_start_offset, self.high_watermark)
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

    # --- durability -----------------------------------------------------------------------------

    @property
    def needs_flush(self) -> bool:
        """Whether some data is not durable yet and no flush is under way."""
        if self.offline is not None or self.unsynced.ticket is not None:
            return False
        return self.durable_offset < self.log_end_offset or self.unsynced.is_dirty

    @property
    def has_unsynced_files(self) -> bool:
        """Whether closed segments or new names wait for a sync.

        These need a sync soon, whatever the flush policy. Until then their descriptors stay open,
        and recovery after a crash would have to read them again.
        """
        return self.unsynced.is_dirty

    def begin_flush(self) -> FlushTicket | None:
        """A ticket for everything appended until now; None when all of it is already durable.

        Also None while a ticket is out: the caller must return that one by `complete_flush` first,
        whether it succeeded or not. Raises LogOffline, or StorageFailed when a file cannot be
        opened.
        """
        if self.offline is not None:
            raise self.offline
        if not self.needs_flush:
            return None
        try:
            return self.unsynced.begin(self.segments.active, self.end_position())
        except OSError as error:
            raise storage_failure("flush", self.path, error) from error

    def complete_flush(self, ticket: FlushTicket) -> None:
        """Take back a ticket that has run; the durable offset moves, and all that depends on it.

        Raises LogOffline when the sync failed: the log has stopped for good.
        """
        self.unsynced.end(ticket)
        if ticket.error is not None and self.offline is None:
            self.go_offline(ticket.error)
        if self.offline is not None:
            raise self.offline
        assert self.durable_offset <= ticket.end.offset <= self.log_end_offset, "a late flush"
        self.durable_position, self.durable_offset = ticket.end, ticket.end.offset
        if self.waits_for_disk:
            self._advance_high_watermark(ticket.end)
        self._check_offsets()

    def flush(self) -> None:
        """Make everything durable before returning. Raises LogOffline, StorageFailed."""
        self._run(self.begin_flush())

    def _run(self, ticket: FlushTicket | None) -> None:
        if ticket is not None:
            ticket.run()
            self.complete_flush(ticket)

    # --- removing -------------------------------------------------------------------------------

    def delete_before(self, offset: int) -> None:
        """Move the log's start to `offset`; retention removes the files later.

        Raises:
            PolicyViolation: the cleanup policy does not contain delete.
            OffsetOutOfRange: `offset` is negative or above the high watermark.
            StorageFailed: the new start could not be stored.
        """
        if self.refusal is not None:
            raise self.refusal
        if not self.config.is_deleted_by_retention:
            raise PolicyViolation(f"cleanup.policy of {self.topic} does not contain delete")
        if not 0 <= offset <= self.high_watermark:
            raise OffsetOutOfRange(offset, start=0, end=self.high_watermark)
        self.advance_log_start(offset)

    def delete_pending_files(self, now_ms: int) -> Steps[int]:
        """Unlink the renamed files that are due; returns their number. Raises StorageFailed."""
        return self.changes.unlink_due(now_ms, self.config.file_delete_delay_ms)

    def advance_log_start(self, offset: int) -> None:
        """Move the start durably: neither a crash nor a copy may bring deleted records back.

        An offset below the start changes nothing. Raises StorageFailed.
        """
        if offset <= self.log_start_offset:
            return
        assert offset <= self.high_watermark, f"{self.path}: a start at {offset}, not visible yet"
        try:
            self.changes.store_log_start(offset)
        except OSError as error:
            raise storage_failure("delete", self.path, error) from error
        self.log_start_offset = offset
        self.leader_epochs.truncate_from_start(offset)
        self.producers.state.advance_log_start(offset)
        self._check_offsets()

    def close(self, now_ms: int) -> None:
        """Make everything durable, so that the next start need not scan, and close all files.

        Raises StorageFailed or LogOffline on failure. The files are closed anyway, and the caller
        must not report a clean stop.
        """
        if self.is_closed:
            return
        try:
            self._run(self.begin_close(now_ms))
        finally:
            self.abandon()

    def begin_close(self, now_ms: int) -> FlushTicket | None:
        """The first half of `close`, for callers that close many logs: the last ticket, or None.

        After `complete_flush` of the ticket, `abandon` completes the close. Costs nothing if
        nothing was appended since the log was opened or made. Raises StorageFailed, LogOffline.
        """
        if self.offline is not None:
            raise self.offline
        if self.unsynced.ticket is not None:
            raise StorageFailed("close", self.path, "a sync is still under way")
        try:
            self.changes.seal_active(now_ms=now_ms)
            if len(self.segments) > 1 or self.producers.has_any:
                snapshot = self.producers.snapshots.take_unsynced(self.producers.state)
                if snapshot is not None:
                    self.unsynced.add_complete(snapshot)
        except OSError as error:
            raise storage_failure("close", self.path, error) from error
        return None if self.changes.is_untouched else self.begin_flush()

    def abandon(self) -> None:
        """Close all files and write nothing, as in a crash."""
        self.is_closed = True
        if self.offline is None:
            self.offline = self.refusal = LogOffline(self.path, "the log was closed")
        for segment in self.segments:
            segment.close()
        self.manifest.close()
        self.unsynced.close()

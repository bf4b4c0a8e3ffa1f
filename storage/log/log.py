"""One partition: an append-only log of record batches, and every operation that changes it.

Owns the order of steps. An append: validate and stamp (`storage.append.plan`), leader epoch, roll
if due, producer state and duplicates, one write, indexes, offsets, producer map. Each step that
refuses leaves the log untouched. A flush: begin, run in another thread, complete. A removal: the
start of the log moves durably, then files are renamed, later unlinked.

A write that fails half-way is cut back to the last whole batch. If the cut fails too, or a sync
fails, the log goes offline. From then until a restart recovers it, the log accepts no append and
serves only what is durable.

Under `flush.policy=batch` the high watermark is the durable offset, so that a power cut cannot
remove what a consumer has seen. Under `os` it is the log's end, as in a Kafka with one replica.

Concurrency: one thread calls everything here. Only `FlushTicket.run` may run in another thread.

Source: Kafka `UnifiedLog`. Read next: `storage.log.readable_log` (offsets and queries),
`storage.log.segmented_log` (the files), `storage.log.flush`, `storage.recovery.recovery` (which
makes `Log`s).
"""

from typing import Final, NoReturn

from config import TopicConfig
from protocol.errors import ProtocolError
from protocol.records.layout import NO_TIMESTAMP
from storage.append.opening import Opening
from storage.append.plan import AppendPlan, AppendRules, Examined, Origin, place_append, plan_append
from storage.disk.steps import Steps, run_steps
from storage.errors import (
    LogOffline,
    OffsetOutOfRange,
    PolicyViolation,
    StorageFailed,
    storage_failure,
)
from storage.log.compaction import Compaction, CompactionResult
from storage.log.compaction_plan import Cleanable, find_cleanable
from storage.log.flush import FlushTicket
from storage.log.lookup import LookupExplanation, TimestampOffset
from storage.log.readable_log import ReadableLog
from storage.log.reader import LogPosition
from storage.log.retention import RetentionRules, plan_retention
from storage.log.segmented_log import RollbackFailed
from storage.log.values import (
    AppendResult,
    DeletedSegment,
    Isolation,
    LogParts,
    ReadResult,
    appended,
    appended_before,
)
from storage.segment.rolling import RollRules, find_roll_reason
from storage.segment.swap import SwapFailed

__all__ = [
    "AppendResult",
    "DeletedSegment",
    "FlushTicket",
    "Isolation",
    "Log",
    "LookupExplanation",
    "Origin",
    "ReadResult",
    "TimestampOffset",
]

FLUSH_POLICY_OS: Final = "os"

STAMP_SLACK_MS: Final = 60_000
"""How far the clock may fall behind the last LogAppendTime stamp before stamps fall with it."""


class Log(ReadableLog):
    """The log of one partition. Opened by `storage.recovery.recovery`, closed by `close`."""

    def __init__(
        self,
        parts: LogParts,
        *,
        topic: str,
        partition: int,
        config: TopicConfig,
        leader_epoch: int,
    ) -> None:
        """Take over loaded parts; batches appended from now on carry `leader_epoch`."""
        super().__init__(parts, topic=topic, partition=partition)
        self.leader_epoch = leader_epoch
        self.held_by_future: int | None = None
        self._last_stamp_ms = parts.last_stamp_ms
        self._is_closed = False
        if parts.is_new:
            self.local.unsynced.add_created()
        self.producers.state.advance_high_watermark(self.high_watermark)
        self.reconfigure(config)
        self._check_offsets()

    @property
    def needs_flush(self) -> bool:
        """Whether some data is not durable yet and no flush is under way."""
        unsynced = self.local.unsynced
        if self._offline is not None or unsynced.ticket is not None:
            return False
        return self.durable_offset < self.local.end_offset or unsynced.is_dirty

    @property
    def has_unsynced_files(self) -> bool:
        """Whether closed segments or new names wait for a sync.

        These need a sync soon, whatever the flush policy. Until then their descriptors stay open,
        and recovery after a crash would have to read them again.
        """
        return self.local.unsynced.is_dirty

    @property
    def newest_append_ms(self) -> int:
        """The broker's clock at the newest append, as far as it is known, or NO_TIMESTAMP."""
        appended_ms = (s.appended_ms for s in reversed(list(self.segments)) if not s.is_empty)
        return max(self._last_stamp_ms, next(appended_ms, NO_TIMESTAMP))

    def reconfigure(self, config: TopicConfig) -> None:
        """Apply another configuration, starting with the next operation."""
        self.config = config
        self.append_rules = AppendRules.from_config(config)
        self._roll_rules = RollRules.from_config(config)
        self.local.configure(config)
        self._sees_log_end = config.flush_policy == FLUSH_POLICY_OS
        if self._sees_log_end and self._offline is None:
            self._advance_visible_end(self.local.end())

    def bump_leader_epoch(self) -> None:
        """Write the next batches in a new epoch, so that clients can detect a cut tail."""
        self.leader_epoch += 1

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
            LogOffline: the log has stopped for good.
            TooMuchAtOnce: nothing was changed; call `examine_append` in another thread, then
                `append_examined`.
        """
        if self._offline is not None:
            raise self._offline
        plan = plan_append(
            records,
            rules=self.append_rules,
            now_ms=self._stamp_ms(now_ms, stamp_slack_ms),
            next_offset=self.local.end_offset,
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
        if self._offline is not None:
            raise self._offline
        if examined.rules != self.append_rules:
            return None
        plan = place_append(
            examined,
            now_ms=self._stamp_ms(now_ms, stamp_slack_ms),
            next_offset=self.local.end_offset,
            leader_epoch=self.leader_epoch,
        )
        return self._append_plan(plan, now_ms, Origin.CLIENT)

    def _stamp_ms(self, now_ms: int, slack_ms: int) -> int:
        """The clock reading by which an append at `now_ms` is judged and stamped."""
        if self.append_rules.stamps and 0 < self._last_stamp_ms - now_ms <= slack_ms:
            return self._last_stamp_ms
        return now_ms

    def _append_plan(self, plan: AppendPlan, now_ms: int, origin: Origin) -> AppendResult:
        if not plan.batches:
            return appended(plan, self.log_start_offset)
        try:
            if self.leader_epochs.latest_epoch < self.leader_epoch:
                begun = self.leader_epochs.assign_unsynced(self.leader_epoch, plan.first_offset)
                self.local.unsynced.add_complete(begun)
            self._roll_if_due(plan, now_ms)
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
        try:
            self.local.append(plan, now_ms=now_ms)
        except RollbackFailed as error:
            self._go_offline(error)
        except OSError as error:
            raise storage_failure("append", self.path, error) from error
        try:
            self.producers.update(plan.buffer, plan.batches, self.local.segments.active)
        except OSError as error:
            # The marker is in the log but not in the index: readers would get wrong results.
            self._go_offline(error)
        self.producers.state.map_end_offset = self.local.end_offset
        if self._sees_log_end:
            self._advance_visible_end(self.local.end())

    # --- roll -----------------------------------------------------------------------------------

    def _roll_if_due(self, plan: AppendPlan, now_ms: int) -> None:
        reason = find_roll_reason(
            self.local.segments.active,
            self._roll_rules,
            size_bytes=len(plan.buffer),
            last_offset=plan.last_offset,
            max_timestamp=plan.max_timestamp,
            now_ms=now_ms,
        )
        if reason is not None:
            self._start_segment(now_ms)

    def roll(self, now_ms: int) -> None:
        """Close the active segment and start a new one at the log's end.

        An empty active segment stays. Raises StorageFailed, with the log as it was.
        """
        if self._offline is not None:
            raise self._offline
        try:
            self._start_segment(now_ms)
        except OSError as error:
            raise storage_failure("roll", self.path, error) from error

    def _start_segment(self, now_ms: int) -> None:
        self.local.roll(now_ms=now_ms, durable_offset=self.durable_offset)
        # No visible offset has changed, but the end may lie in the new segment now.
        self._visible_end = self.local.lasting(self._visible_end)
        # Even without producers: an unclean start would otherwise search the whole log for them.
        snapshot = self.producers.snapshots.take_unsynced(self.producers.state)
        self.local.unsynced.add_complete(snapshot)

    # --- durability -----------------------------------------------------------------------------

    def begin_flush(self) -> FlushTicket | None:
        """A ticket for everything appended until now; None when all of it is already durable.

        Also None while a ticket is out: the caller must return that one by `complete_flush` first,
        whether it succeeded or not. Raises LogOffline, or StorageFailed when a file cannot be
        opened.
        """
        if self._offline is not None:
            raise self._offline
        if not self.needs_flush:
            return None
        try:
            return self.local.begin_flush()
        except OSError as error:
            raise storage_failure("flush", self.path, error) from error

    def complete_flush(self, ticket: FlushTicket) -> None:
        """Take back a ticket that has run; the durable offset moves, and all that depends on it.

        Raises LogOffline when the sync failed: the log has stopped for good.
        """
        self.local.unsynced.end(ticket)
        if ticket.error is not None and self._offline is None:
            self._go_offline(ticket.error)
        if self._offline is not None:
            raise self._offline
        self.durable_offset = max(self.durable_offset, ticket.end.offset)
        if not self._sees_log_end:
            self._advance_visible_end(ticket.end)
        self._check_offsets()

    def flush(self) -> None:
        """Make everything durable before returning. Raises LogOffline, StorageFailed."""
        ticket = self.begin_flush()
        if ticket is not None:
            ticket.run()
            self.complete_flush(ticket)

    def _advance_visible_end(self, end: LogPosition) -> None:
        if end.offset >= self.high_watermark:
            self.high_watermark = end.offset
            # A flush may complete after a roll: the log's end of then is the end of a closed
            # segment now.
            self._visible_end = self.local.lasting(end)
            self.producers.state.advance_high_watermark(end.offset)

    # --- removing -------------------------------------------------------------------------------

    def delete_before(self, offset: int) -> None:
        """Move the log's start to `offset`; the next `delete_expired` removes the files.

        Raises:
            PolicyViolation: the cleanup policy does not contain delete.
            OffsetOutOfRange: `offset` is negative or above the high watermark.
            StorageFailed: the new start could not be stored.
        """
        if self._offline is not None:
            raise self._offline
        if not self.config.is_deleted_by_retention:
            raise PolicyViolation(f"cleanup.policy of {self.topic} does not contain delete")
        if not 0 <= offset <= self.high_watermark:
            raise OffsetOutOfRange(offset, start=0, end=self.high_watermark)
        self._advance_log_start(offset)

    def delete_expired(self, now_ms: int) -> list[DeletedSegment]:
        """Remove the segments that retention selects, oldest first, each with its reason.

        Their files are renamed at once and unlinked by `delete_pending_files` later. When only a
        timestamp ahead of the clock keeps the oldest segment, `held_by_future` is its base offset.
        Raises StorageFailed.
        """
        if self._offline is not None:
            return []
        try:
            # The plan below counts the segments as they are; a swap that is under way would change
            # them.
            self.local.settle()
        except SwapFailed as error:
            self._go_offline(error)
        except OSError as error:
            raise storage_failure("delete", self.path, error) from error
        ages = self.local.ages()
        plan = plan_retention(
            ages,
            RetentionRules(
                retention_ms=self.config.retention_ms,
                retention_bytes=self.config.retention_bytes,
                deletes=self.config.is_deleted_by_retention,
                clamps_future=self.config.retention_clamp_future,
                stamps=self.append_rules.stamps,
            ),
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
            now_ms=now_ms,
        )
        self.held_by_future = plan.held_by_future
        if not plan.reasons:
            return []
        if len(plan.reasons) == len(ages):
            self.roll(now_ms)
        # The start is durable before any file goes: a crash in between leaves no gap in the log.
        self._advance_log_start(self.segments[len(plan.reasons)].base_offset)
        try:
            self.local.remove_first(len(plan.reasons), due_ms=self._unlink_due_ms(now_ms))
            self.producers.snapshots.delete_before(self.segments.first.base_offset)
        except OSError as error:
            raise storage_failure("delete", self.path, error) from error
        return [
            DeletedSegment(age.base_offset, age.size_bytes, age.largest_timestamp, reason)
            for age, reason in zip(ages, plan.reasons, strict=False)
        ]

    def delete_pending_files(self, now_ms: int) -> int:
        """Run `delete_pending_steps` to its end."""
        return run_steps(self.delete_pending_steps(now_ms))

    def delete_pending_steps(self, now_ms: int) -> Steps[int]:
        """Unlink files renamed `file.delete.delay.ms` ago or earlier; returns their number.

        Raises StorageFailed.
        """
        try:
            return (yield from self.local.unlink_steps(now_ms))
        except OSError as error:
            raise storage_failure("delete", self.path, error) from error

    def _advance_log_start(self, offset: int) -> None:
        """Move the start durably: neither a crash nor a copy may bring deleted records back."""
        if offset <= self.log_start_offset:
            return
        try:
            self.local.remember_start(offset)
        except OSError as error:
            raise storage_failure("delete", self.path, error) from error
        self.log_start_offset = offset
        self.leader_epochs.truncate_from_start(offset)
        self.producers.state.advance_log_start(offset)
        self._check_offsets()

    def _unlink_due_ms(self, now_ms: int) -> int:
        return now_ms + self.config.file_delete_delay_ms

    # --- compaction -----------------------------------------------------------------------------

    @property
    def cleaned_offset(self) -> int:
        """The offset below which the log is compacted; the log's start if nothing was compacted."""
        cleaned = self.local.manifest.cleaned_offset
        known = cleaned if cleaned <= self.segments.active.base_offset else 0
        return max(known, self.log_start_offset)

    def cleanable(self, now_ms: int) -> Cleanable | None:
        """The part that can be compacted now, and whether it is due; None if the log never is."""
        if self._offline is not None or not self.config.is_compacted:
            return None
        return find_cleanable(
            list(self.segments),
            self.config,
            first_dirty=self.cleaned_offset,
            bound=min(self.last_stable_offset, self.durable_offset),
            now_ms=now_ms,
        )

    def compact(self, *, now_ms: int, map_bytes: int) -> Steps[CompactionResult | None]:
        """One round of compaction in short steps, due or not; None when there is nothing to do.

        `map_bytes` bounds the memory for keys. Other methods may be called between the steps.
        Raises StorageFailed (CorruptLog included) with the log as it was, or LogOffline.
        """
        plan = self.cleanable(now_ms)
        if plan is None or plan.dirty_bytes == 0:
            return None
        compaction = Compaction(
            self.local,
            self.producers,
            self.config,
            plan,
            log_start_offset=self.log_start_offset,
            now_ms=now_ms,
            map_bytes=map_bytes,
        )
        try:
            result = yield from compaction.steps()
        except SwapFailed as error:
            if self._is_closed:
                return None
            self._go_offline(error)
        except ProtocolError as error:
            raise StorageFailed("compact", self.path, str(error)) from error
        except OSError as error:
            if self._is_closed:
                return None
            raise storage_failure("compact", self.path, error) from error
        return None if self._is_closed else result

    # --- the end --------------------------------------------------------------------------------

    def close(self, now_ms: int) -> None:
        """Make everything durable, so that the next start need not scan, and close all files.

        Raises StorageFailed or LogOffline on failure. The files are closed anyway, and the caller
        must not report a clean stop.
        """
        if self._is_closed:
            return
        try:
            ticket = self.begin_close(now_ms)
            if ticket is not None:
                ticket.run()
                self.complete_flush(ticket)
        finally:
            self.abandon()

    def begin_close(self, now_ms: int) -> FlushTicket | None:
        """The first half of `close`, for callers that close many logs: the last ticket, or None.

        After `complete_flush` of the ticket, `abandon` completes the close. Costs nothing if
        nothing was appended since the log was opened or made. Raises StorageFailed, LogOffline.
        """
        if self._offline is not None:
            raise self._offline
        if self.local.unsynced.ticket is not None:
            raise StorageFailed("close", self.path, "a sync is still under way")
        try:
            self.local.seal_active(now_ms=now_ms)
            if len(self.segments) > 1 or self.producers.has_any:
                snapshot = self.producers.snapshots.take_unsynced(self.producers.state)
                if snapshot is not None:
                    self.local.unsynced.add_complete(snapshot)
        except OSError as error:
            raise storage_failure("close", self.path, error) from error
        return None if self.local.is_untouched else self.begin_flush()

    def abandon(self) -> None:
        """Close all files and write nothing, as in a crash. The log cannot be used afterwards."""
        self._is_closed = True
        if self._offline is None:
            self._offline = LogOffline(self.path, "the log was closed")
        self.local.close()

    def _go_offline(self, error: OSError) -> NoReturn:
        self._offline = LogOffline(self.path, str(error))
        raise self._offline from error

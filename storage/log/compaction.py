"""Compaction of one log: the last value of every key stays, at its offset; the rest goes.

Owns the part of a compacted log to clean, and when. The log has three parts:

    log start        first dirty            uncleanable          log end
    |---- clean -----|------- dirty --------|---- kept as is ----|

*Clean* records have been compared with everything up to `first_dirty`. *Dirty* ones have not. The
end is kept as it is: the active segment, everything at or above the last stable offset (its
transactions are open) or not yet durable, and records younger than `min.compaction.lag.ms`.

| a log is cleaned when                                                              |
|------------------------------------------------------------------------------------|
| dirty bytes / (clean + dirty bytes) > `min.cleanable.dirty.ratio`, or              |
| a dirty closed segment began more than `max.compaction.lag.ms` ago                 |

Owns one round from its plan to its last swap, as a generator of short steps (`storage.disk.steps`):

1. *Map.* Read the dirty part, note the newest offset of every key (`compaction_filter.KeyMap`).
   When the memory is used up, the map ends there and the next round continues from there.
2. *Group.* All closed segments below the map's end, neighbours together while their sizes, index
   sizes and offsets still fit into one segment.
3. *Rewrite* each group: read its entries, checksums verified, keep what `compaction_filter.Round`
   keeps, append it to a segment beside the log, sync that.
4. *Swap* it in (`storage.segment.swap`), and continue with the next group. A group of one segment
   of which every record stays is left in place.
5. Note the map's end as clean.

Offsets never change; a consumer at a removed offset gets the next one. Rewritten records were
durable before, and the new file is durable before the old ones go. So a crash at any moment leaves
the old segments or the new one. Appends and reads continue meanwhile. So does retention, and it has
priority: when it has removed a segment that a round works on, the round ends without an error.

A log with segments in an object store is compacted below the end of what the bucket has of it, so
the newest value of a key is in the bucket before an older one goes from there. The log of a segment
of which only the store has the bytes is fetched before its group is read, and dropped again if the
group stays as it is. The upload of rewritten segments replaces their objects (`storage.remote`).

Damage is not copied: an entry whose checksum is wrong ends the round with CorruptLog, and the old
segments stay.

Differs from Kafka: keys are compared in full, not by their MD5; every rewritten segment keeps its
last batch, at least as a header; see docs/adr/0013.

Source: Kafka `LogCleanerManager`, `Cleaner`; KIP-534 (tombstones).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final, Protocol

from config import TopicConfig
from protocol.errors import ProtocolError
from protocol.records.layout import INT32_MAX, INT64_MAX, NO_TIMESTAMP
from protocol.records.scan import Entry, scan_entries
from storage.disk.file_names import CLEANED_SUFFIX
from storage.disk.files import File
from storage.disk.steps import SLICE_BYTES, Slice, Steps, off_loop
from storage.errors import CorruptLog, StorageFailed, storage_failure
from storage.log.compaction_filter import (
    KeyMap,
    LastOfProducer,
    Round,
    TransactionFates,
    index_entry,
)
from storage.log.log import Log
from storage.segment.scan import SegmentScan
from storage.segment.segment import Segment
from storage.segment.swap import SwapFailed
from storage.segment.txn_index import AbortedTxn
from values.dataclasses import dataclass

_ENTRY_COST_BYTES: Final = 512
"""Bytes of copying that an entry costs besides its own, for the size of slices."""


class Tier(Protocol):
    """The object store of a log, see `storage.remote.cleaning`; the two steps wait for it.

    They raise StoreFailed and OSError.
    """

    @property
    def shipped_end(self) -> Callable[[Log], int]:
        """Gives the end of what the bucket has of a log."""

    def bring_indexes(self, log: Log, segment: Segment) -> Steps[None]:
        """Make sure that the indexes of a segment are here."""

    def bring_log(self, log: Log, segment: Segment) -> Steps[None]:
        """Make sure that the `.log` of a segment is here."""


class _Overtaken(Exception):
    """Retention has removed segments that the round was working on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleanable:
    """The part of a log that can be cleaned now.

    Attributes:
        first_dirty: offset up to which (exclusive) the log is clean.
        end: offset up to which (exclusive) it may be cleaned; the base of a segment.
        clean_bytes, dirty_bytes: sizes of the two parts.
        is_overdue: `max.compaction.lag.ms` has passed for a dirty record.
        min_ratio: `min.cleanable.dirty.ratio` of the topic.
    """

    first_dirty: int
    end: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool
    min_ratio: float

    @property
    def ratio(self) -> float:
        """The share of dirty bytes, 0 to 1."""
        return self.dirty_bytes / max(1, self.clean_bytes + self.dirty_bytes)

    @property
    def is_due(self) -> bool:
        """Whether the log should be cleaned now."""
        return self.dirty_bytes > 0 and (self.is_overdue or self.ratio > self.min_ratio)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    """The result of a round.

    Attributes:
        end: the log is clean up to here (exclusive).
        segments_before: number of segments read; 0 when the round ended early.
        bytes_before, bytes_after: size of the segments read, and of those they became.
        records_dropped: number of records that were removed.
    """

    end: int
    segments_before: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    records_dropped: int = 0


def find_cleanable(log: Log, now_ms: int, tier: Tier | None = None) -> Cleanable | None:
    """The part that can be compacted now, and whether it is due; None if the log never is.

    One that is tiered never is without its `tier`.
    """
    config = log.config
    if log.refusal is not None or not config.is_compacted:
        return None
    bound = _uncleanable_offset(log)
    if config.remote_storage_enable or log.manifest.remote:
        if tier is None:
            return None
        bound = min(bound, tier.shipped_end(log))
    segments = list(log.segments)
    first_dirty = log.cleaned_offset
    closed = segments[:-1]
    ends = [segment.base_offset for segment in segments[1:]]
    end = segments[0].base_offset
    clean_bytes = dirty_bytes = 0
    oldest_ms = INT64_MAX
    lag_ms = config.min_compaction_lag_ms
    for segment, next_base in zip(closed, ends, strict=True):
        if next_base > bound or (lag_ms > 0 and segment.largest_timestamp > now_ms - lag_ms):
            break
        end = next_base
        if next_base <= first_dirty:
            clean_bytes += segment.size
        else:
            dirty_bytes += segment.size
    for segment, next_base in zip(closed, ends, strict=True):
        if next_base > first_dirty and segment.first_timestamp > 0:
            oldest_ms = min(oldest_ms, segment.first_timestamp)
    return Cleanable(
        first_dirty=first_dirty,
        end=end,
        clean_bytes=clean_bytes,
        dirty_bytes=dirty_bytes,
        is_overdue=now_ms - oldest_ms > config.max_compaction_lag_ms,
        min_ratio=config.min_cleanable_dirty_ratio,
    )


def _uncleanable_offset(log: Log) -> int:
    """From here on transactions are open or records not durable."""
    return min(log.last_stable_offset, log.durable_offset)


def compact(
    log: Log, *, now_ms: int, map_bytes: int, tier: Tier | None = None
) -> Steps[CompactionResult | None]:
    """One round of compaction in short steps, due or not; None when there is nothing to do.

    `map_bytes` bounds the memory for keys. Methods of the log may be called between the steps.
    Raises StorageFailed (CorruptLog included) or StoreFailed with the log as it was, or LogOffline.
    """
    plan = find_cleanable(log, now_ms, tier)
    if plan is None or plan.dirty_bytes == 0:
        return None
    assert plan.first_dirty < plan.end <= log.durable_offset, "what may be lost is not compacted"
    round_ = _Compaction(log, plan, now_ms=now_ms, map_bytes=map_bytes, tier=tier)
    try:
        result = yield from round_.steps()
    except SwapFailed as error:
        if log.is_closed:
            return None
        log.go_offline(error)
    except ProtocolError as error:
        raise StorageFailed("compact", log.path, str(error)) from error
    except OSError as error:
        if log.is_closed:
            return None
        raise storage_failure("compact", log.path, error) from error
    return None if log.is_closed else result


class _Compaction:
    """One round over one log; `steps` once. Belongs to the log's thread."""

    def __init__(
        self, log: Log, plan: Cleanable, *, now_ms: int, map_bytes: int, tier: Tier | None
    ) -> None:
        """Clean the part given by `plan`, with at most about `map_bytes` of memory for keys."""
        self._log = log
        self._config = log.config
        self._plan = plan
        self._start = log.log_start_offset
        self._now_ms = now_ms
        self._keys = KeyMap(plan.first_dirty, map_bytes)
        self._bytes_after = 0
        self._tier = tier

    def steps(self) -> Steps[CompactionResult]:
        """Run the round. Raises OSError, CorruptLog, SwapFailed; the log is intact in any case."""
        # A round that was abandoned in the middle of a swap left the rest of the swap to this one.
        self._log.changes.settle_swap()
        first = self._log.segments.index_of(self._start)
        segments = [
            segment
            for segment in list(self._log.segments)[first:-1]
            if segment.base_offset < self._plan.end
        ]
        keys = self._keys
        try:
            yield from self._bring_indexes()
            yield from self._map_keys(segments)
            segments = [segment for segment in segments if segment.base_offset < keys.end]
            rounds = Round(
                keys=keys,
                fates=TransactionFates(self._aborted()),
                producers=self._last_of_producers(),
                now_ms=self._now_ms,
                delete_retention_ms=self._config.delete_retention_ms,
            )
            horizon_ms = self._old_horizon_ms(segments)
            for group in group_segments(segments, self._config):
                yield from self._rewrite(group, rounds, horizon_ms)
        except _Overtaken:
            return CompactionResult(end=self._plan.first_dirty)
        assert self._plan.first_dirty <= keys.end <= self._log.log_end_offset, "cleaned too far"
        self._log.manifest.remember_cleaned(keys.end)
        self._log.unsynced.add_created(self._log.manifest.file)
        return CompactionResult(
            end=keys.end,
            segments_before=len(segments),
            bytes_before=sum(segment.size for segment in segments),
            bytes_after=self._bytes_after,
            records_dropped=rounds.dropped,
        )

    # --- what only the store has ----------------------------------------------------------------

    def _bring_indexes(self) -> Steps[None]:
        """Make sure that the aborted transactions of all segments are known."""
        if self._tier is not None:
            for segment in self._log.segments:
                if segment.is_remote and segment.facts.txn_index_bytes:
                    yield from self._tier.bring_indexes(self._log, segment)
                    self._check_open()

    def _bring_logs(self, segments: list[Segment]) -> Steps[list[Segment]]:
        """Make sure that the logs of adjacent segments are here, and stay; those that were not."""
        self._log.changes.being_read = segments
        remote = [segment for segment in segments if segment.is_remote]
        for segment in remote:
            assert self._tier is not None, "the log has segments in a store"
            yield from self._tier.bring_log(self._log, segment)
            self._check_still_there(segments)
        return remote

    def _drop_again(self, brought: list[Segment]) -> None:
        """Drop the logs that were fetched, of segments that are still in the log."""
        changes = self._log.changes
        changes.being_read = []
        for segment in brought:
            is_unused = not self._log.is_closed and not segment.is_remote and changes.swap is None
            if is_unused and self._log.segments.holds([segment]):
                changes.drop_local(segment, due_ms=self._now_ms)

    # --- 1. map ---------------------------------------------------------------------------------

    def _map_keys(self, segments: list[Segment]) -> Steps[None]:
        fates = TransactionFates(self._aborted())
        spent = Slice(SLICE_BYTES)
        for segment in segments:
            if segment.next_offset <= self._plan.first_dirty:
                continue
            brought: list[Segment] = []
            try:
                brought = yield from self._bring_logs([segment])
                for entry, data in self._entries(segment):
                    if entry.last_offset >= self._plan.first_dirty:
                        if fates.is_dead(entry, data) or entry.is_control:
                            self._keys.end = max(self._keys.end, entry.next_offset)
                        elif not (
                            yield from index_entry(entry, data, self._keys, self._plan.first_dirty)
                        ):
                            return
                    if spent.add(entry.size + _ENTRY_COST_BYTES):
                        yield None
                        self._check_still_there([segment])
            finally:
                self._drop_again(brought)

    # --- 3. rewrite -----------------------------------------------------------------------------

    def _rewrite(self, group: list[Segment], rounds: Round, horizon_ms: int) -> Steps[None]:
        """Rewrite one group into one segment, and swap that into the log."""
        self._check_still_there(group)
        brought: list[Segment] = []
        try:
            brought = yield from self._bring_logs(group)
            yield from self._rewrite_local(group, rounds, horizon_ms)
        finally:
            self._drop_again(brought)

    def _rewrite_local(self, group: list[Segment], rounds: Round, horizon_ms: int) -> Steps[None]:
        end = group[-1].next_offset
        appended_ms = group[-1].appended_ms
        new = self._log.changes.new_segment(
            group[0].base_offset, stage=CLEANED_SUFFIX, now_ms=appended_ms
        )
        kept_before = rounds.kept
        is_swapping = False
        try:
            writer = _Writer(new, self._config.index_interval_bytes, appended_ms)
            spent = Slice(SLICE_BYTES)
            for segment in group:
                rounds.drops_old_tombstones = segment.appended_ms <= horizon_ms
                for entry, data in self._entries(segment):
                    kept = yield from rounds.filter(
                        entry, data, ends_segment=entry.next_offset == end
                    )
                    if kept is not None:
                        writer.add(kept, is_changed=len(kept) != entry.size or kept != data)
                    if spent.add(entry.size + _ENTRY_COST_BYTES):
                        yield None
                        self._check_still_there(group)
            writer.flush()
            self._bytes_after += new.size
            if len(group) == 1 and new.size == group[0].size and not writer.is_changed:
                return
            for txn in rounds.fates.kept_aborts:
                new.txn_index.append(txn)
            new.records = rounds.kept - kept_before
            new.seal(now_ms=appended_ms)
            yield from self._sync(list(new.all_files()))
            self._check_still_there(group)
            is_swapping = True
            yield from self._swap(group, new)
        finally:
            rounds.fates.kept_aborts.clear()
            if self._log.is_closed:
                new.close()
            elif not is_swapping:
                with suppress(OSError):
                    # A start removes what is left of it.
                    new.discard()

    def _sync(self, files: list[File]) -> Steps[None]:
        """Make the rewritten files and their names durable."""
        marks = [(file, file.begin_sync()) for file in files]
        synced = False
        try:
            yield from off_loop(lambda: _sync_all(files))
            synced = True
        finally:
            for file, mark in marks:
                file.end_sync(mark if synced else None)
        yield from off_loop(self._log.changes.sync_names)

    def _swap(self, group: list[Segment], new: Segment) -> Steps[None]:
        due_ms = self._now_ms + self._config.file_delete_delay_ms
        try:
            swap = self._log.changes.begin_swap(group, new, due_ms=due_ms)
            while not swap.is_done:
                swap.advance()
                yield from off_loop(self._log.changes.sync_names)
                self._check_open()
            self._log.changes.end_swap(swap)
        except OSError as error:
            raise SwapFailed(error) from error

    # --- inputs of the round --------------------------------------------------------------------

    def _entries(self, segment: Segment) -> Iterator[tuple[Entry, memoryview]]:
        """The entries of a segment with their bytes, checksums verified."""
        scan = SegmentScan(segment, check_crc=True)
        for entry in scan:
            yield entry, scan.bytes_of(entry)
        if scan.end.damage is not None:
            raise CorruptLog(
                segment.log.path,
                position=scan.end.valid_bytes,
                expected="a whole batch",
                found=scan.end.damage,
            )

    def _check_still_there(self, group: list[Segment]) -> None:
        self._check_open()
        if not self._log.segments.holds(group):
            raise _Overtaken

    def _check_open(self) -> None:
        if self._log.is_closed:
            raise _Overtaken

    def _aborted(self) -> list[AbortedTxn]:
        return [
            txn
            for segment in self._log.segments
            for txn in segment.txn_index.read_from(segment.base_offset)
        ]

    def _last_of_producers(self) -> dict[int, LastOfProducer]:
        return {
            entry.producer_id: LastOfProducer(
                last_offset=entry.last_offset, epoch=entry.producer_epoch
            )
            for entry in self._log.producers.state
        }

    def _old_horizon_ms(self, segments: list[Segment]) -> int:
        """Segments last written up to this time may lose tombstones of magic 0 and 1."""
        clean = [s for s in segments if s.next_offset <= self._plan.first_dirty]
        if not clean:
            return NO_TIMESTAMP
        return clean[-1].appended_ms - self._config.delete_retention_ms


def _sync_all(files: list[File]) -> None:
    for file in files:
        file.sync()


class _Writer:
    """Collects the records that stay and appends them to the new segment in large pieces."""

    __slots__ = ("_appended_ms", "_interval", "_pending", "_segment", "is_changed")

    def __init__(self, segment: Segment, index_interval: int, appended_ms: int) -> None:
        self._segment = segment
        self._interval = index_interval
        self._appended_ms = appended_ms
        self._pending = bytearray()
        self.is_changed = False

    def add(self, data: bytes, *, is_changed: bool) -> None:
        """Add the next entries, whole."""
        self.is_changed = self.is_changed or is_changed
        self._pending += data
        if len(self._pending) >= SLICE_BYTES:
            self.flush()

    def flush(self) -> None:
        """Append the collected entries. Raises OSError."""
        if not self._pending:
            return
        data = bytes(self._pending)
        self._pending.clear()
        self._segment.append(
            data, scan_entries(data), now_ms=self._appended_ms, index_interval=self._interval
        )
        if self._segment.offset_index.wants_writing:
            self._segment.offset_index.write_out()
            self._segment.time_index.write_out()


def _index_sizes(segment: Segment) -> tuple[int, int]:
    """Sizes of the offset and the time index, which may be in the store only."""
    if segment.is_remote:
        return segment.facts.offset_index_bytes, segment.facts.time_index_bytes
    return segment.offset_index.size_bytes, segment.time_index.size_bytes


def group_segments(segments: Sequence[Segment], config: TopicConfig) -> list[list[Segment]]:
    """`segments` (closed, adjacent) in groups that fit into one segment each."""
    groups: list[list[Segment]] = []
    sizes = [0, 0, 0]
    limits = (config.segment_bytes, config.segment_index_bytes, config.segment_index_bytes)
    for segment in segments:
        added = [segment.size, *_index_sizes(segment)]
        joined = [size + more for size, more in zip(sizes, added, strict=True)]
        fits = (
            bool(groups)
            and all(size <= limit for size, limit in zip(joined, limits, strict=True))
            and segment.next_offset - 1 - groups[-1][0].base_offset <= INT32_MAX
        )
        if fits:
            groups[-1].append(segment)
            sizes = joined
        else:
            groups.append([segment])
            sizes = added
    return groups

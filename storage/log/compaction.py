"""Compaction of one log: the last value of every key stays, at its offset; the rest goes.

Owns one round from its plan to its last swap, as a generator of short steps (`storage.disk.steps`):

1. *Map.* Read the dirty part, note the newest offset of every key (`compaction_filter.KeyMap`).
   When the memory is used up, the map ends there and the next round continues from there.
2. *Group.* All closed segments below the map's end, neighbours together while they fit into one.
3. *Rewrite* each group: read its entries, checksums verified, keep what `compaction_filter.Round`
   keeps, append it to a segment beside the log, sync that.
4. *Swap* it in (`storage.segment.swap`), and continue with the next group. A group of one segment
   of which every record stays is left in place.
5. Note the map's end as clean.

Offsets never change; a consumer at a removed offset gets the next one. Rewritten records were
durable before, and the new file is durable before the old ones go. So a crash at any moment leaves
the old segments or the new one. Appends and reads continue meanwhile. So does retention, and it has
priority: when it has removed a segment that a round works on, the round ends without an error.

Damage is not copied: an entry whose checksum is wrong ends the round with CorruptLog, and the old
segments stay.

Differs from Kafka: keys are compared in full, not by their MD5; every rewritten segment keeps its
last batch, at least as a header; see docs/adr/0013.

Source: KIP-280's ancestor, Kafka `Cleaner`; KIP-534 (tombstones).
Read next: `storage.log.compaction_plan`, `storage.log.compaction_filter`.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from config import TopicConfig
from protocol.records.layout import NO_TIMESTAMP
from protocol.records.scan import Entry, scan_entries
from storage.disk.file_names import CLEANED_SUFFIX
from storage.disk.files import File
from storage.disk.steps import SLICE_BYTES, Slice, Steps, off_loop
from storage.errors import CorruptLog
from storage.log.compaction_filter import (
    KeyMap,
    LastOfProducer,
    Round,
    TransactionFates,
    index_entry,
)
from storage.log.compaction_plan import Cleanable, group_segments
from storage.log.producers import LogProducers
from storage.log.segmented_log import SegmentedLog
from storage.segment.scan import SegmentScan
from storage.segment.segment import Segment
from storage.segment.swap import SwapFailed
from storage.segment.txn_index import AbortedTxn

_ENTRY_COST_BYTES: Final = 512
"""Bytes of copying that an entry costs besides its own, for the size of slices."""


class _Overtaken(Exception):
    """Retention has removed segments that the round was working on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    """The result of a round.

    Attributes:
        end: the log is clean up to here (exclusive).
        is_complete: whether the round came to its end, and the memory was sufficient for all dirty
            keys.
        segments_before, segments_after: number of segments read, and of those they became.
        bytes_before, bytes_after: their sizes.
        records_kept, records_dropped: number of records that stayed and that were removed.
    """

    end: int
    is_complete: bool
    segments_before: int = 0
    segments_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    records_kept: int = 0
    records_dropped: int = 0


class Compaction:
    """One round over one log; `steps` once. Belongs to the log's thread."""

    def __init__(
        self,
        local: SegmentedLog,
        producers: LogProducers,
        config: TopicConfig,
        plan: Cleanable,
        *,
        log_start_offset: int,
        now_ms: int,
        map_bytes: int,
    ) -> None:
        """Clean the part given by `plan`, with at most about `map_bytes` of memory for keys."""
        self._local = local
        self._producers = producers
        self._config = config
        self._plan = plan
        self._start = log_start_offset
        self._now_ms = now_ms
        self._keys = KeyMap(plan.first_dirty, map_bytes)
        self._after = [0, 0]

    def steps(self) -> Steps[CompactionResult]:
        """Run the round. Raises OSError, CorruptLog, SwapFailed; the log is intact in any case."""
        # A round that was abandoned in the middle of a swap left the rest of the swap to this one.
        self._local.settle()
        first = self._local.segments.index_of(self._start)
        segments = [
            segment
            for segment in list(self._local.segments)[first:-1]
            if segment.base_offset < self._plan.end
        ]
        keys = self._keys
        try:
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
            return CompactionResult(end=self._plan.first_dirty, is_complete=False)
        self._local.remember_cleaned(keys.end)
        return CompactionResult(
            end=keys.end,
            is_complete=not keys.is_full,
            segments_before=len(segments),
            segments_after=self._after[0],
            bytes_before=sum(segment.size for segment in segments),
            bytes_after=self._after[1],
            records_kept=rounds.kept,
            records_dropped=rounds.dropped,
        )

    # --- 1. map ---------------------------------------------------------------------------------

    def _map_keys(self, segments: list[Segment]) -> Steps[None]:
        fates = TransactionFates(self._aborted())
        spent = Slice(SLICE_BYTES)
        for segment in segments:
            if segment.next_offset <= self._plan.first_dirty:
                continue
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

    # --- 3. rewrite -----------------------------------------------------------------------------

    def _rewrite(self, group: list[Segment], rounds: Round, horizon_ms: int) -> Steps[None]:
        """Rewrite one group into one segment, and swap that into the log."""
        self._check_still_there(group)
        end = group[-1].next_offset
        appended_ms = group[-1].appended_ms
        new = self._local.new_segment(
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
            self._after[0] += 1
            self._after[1] += new.size
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
            if self._local.is_closed:
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
        yield from off_loop(self._local.sync_names)

    def _swap(self, group: list[Segment], new: Segment) -> Steps[None]:
        due_ms = self._now_ms + self._config.file_delete_delay_ms
        try:
            swap = self._local.begin_swap(group, new, due_ms=due_ms)
            while not swap.is_done:
                swap.advance()
                yield from off_loop(self._local.sync_names)
                self._check_open()
            self._local.end_swap(swap)
        except OSError as error:
            raise SwapFailed(error.errno, str(error)) from error

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
        if not self._local.segments.holds(group):
            raise _Overtaken

    def _check_open(self) -> None:
        if self._local.is_closed:
            raise _Overtaken

    def _aborted(self) -> list[AbortedTxn]:
        return [
            txn
            for segment in self._local.segments
            for txn in segment.txn_index.read_from(segment.base_offset)
        ]

    def _last_of_producers(self) -> dict[int, LastOfProducer]:
        return {
            entry.producer_id: LastOfProducer(
                last_offset=entry.last_offset, epoch=entry.producer_epoch
            )
            for entry in self._producers.state
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

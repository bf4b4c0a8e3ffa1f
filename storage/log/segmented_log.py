"""The files of one log as a whole: segments in order, and every operation on them.

Owns the segment list, the manifest, the files that wait to be synced or unlinked, and the positions
that readers are expected at. Knows bytes and where they are. `storage.log.log` decides what is
visible, who may append and when to delete.

Every method that changes files raises OSError. Only `append` promises that nothing has changed in
that case (or reports that it could not keep the promise).

Source: Kafka `LocalLog`. Read next: `storage.segment.segment`, `storage.log.log`.
"""

from collections.abc import Iterable
from contextlib import suppress
from random import Random

from config import TopicConfig
from protocol.records.layout import NO_TIMESTAMP
from storage.append.plan import AppendPlan
from storage.disk.files import Files, sync_file
from storage.disk.steps import Steps
from storage.log.auxiliary_indexes import AuxiliaryIndexes
from storage.log.flush import FlushTicket, Unsynced
from storage.log.lookup import TimeLookup
from storage.log.pending_deletes import Graveyard
from storage.log.reader import LogPosition, LogReader
from storage.log.retention import SegmentAge
from storage.segment.manifest import UNKNOWN_MINIMUM, Manifest
from storage.segment.segment import Segment
from storage.segment.segment_list import SegmentList
from storage.segment.swap import Swap


class RollbackFailed(OSError):
    """A failed write left bytes that could not be removed: the file's end is unknown."""


class SegmentedLog:
    """The segments of one log and their files. One thread; `storage.log.log` is the only user.

    Attributes:
        segments: in order; the last one is appended to.
        end_offset: offset of the next record.
        reader, lookup: reads by offset and by time, which share the segments.
        manifest: the stored facts about closed segments.
        unsynced: the files that are not durable yet, apart from the growth of the active segment.
        swap: the rewritten segment that is replacing others, if there is one.
    """

    __slots__ = (
        "_auxiliary",
        "_files",
        "_graveyard",
        "_index_interval",
        "_jitter_ms",
        "_path",
        "_random",
        "end_offset",
        "is_closed",
        "lookup",
        "manifest",
        "reader",
        "segments",
        "swap",
        "unsynced",
    )

    def __init__(
        self, files: Files, path: str, segments: list[Segment], manifest: Manifest, random: Random
    ) -> None:
        """Take over loaded segments; `configure` has to follow. Raises OSError."""
        segments[-1].time_index.load_last()
        self.segments = SegmentList(segments)
        self.manifest = manifest
        self.unsynced = Unsynced(files, path)
        self.reader = LogReader(self.segments, index_interval=0)
        self._auxiliary = AuxiliaryIndexes(files, self.unsynced)
        self.lookup = TimeLookup(self.segments, self._auxiliary, index_interval=0)
        self.end_offset = self.segments.active.next_offset
        self.swap: Swap | None = None
        self.is_closed = False
        self._files = files
        self._path = path
        self._random = random
        self._graveyard = Graveyard(files)
        self._index_interval = 0
        self._jitter_ms = 0

    def configure(self, config: TopicConfig) -> None:
        """Apply the settings that concern files; draws the jitter of the active segment again."""
        self._index_interval = config.index_interval_bytes
        self.reader.index_interval = config.index_interval_bytes
        self.lookup.index_interval = config.index_interval_bytes
        self._jitter_ms = min(config.segment_jitter_ms, config.segment_ms)
        self._draw_jitter(self.segments.active)
        self._auxiliary.configure(config, self.segments)

    @property
    def size_bytes(self) -> int:
        """Bytes in all `.log` files."""
        return sum(segment.size for segment in self.segments)

    @property
    def is_untouched(self) -> bool:
        """Whether the log has only an empty file, as right after the partition was created."""
        return (
            self.end_offset == 0
            and self.segments.active.is_empty
            and self.manifest.file is None
            and not self.unsynced.has_files
        )

    def end(self) -> LogPosition:
        """The position of the next batch."""
        active = self.segments.active
        return LogPosition(self.end_offset, active.base_offset, active.size)

    def lasting(self, end: LogPosition) -> LogPosition:
        """The same boundary, named by what follows it instead of what precedes it.

        The end of a closed segment is a byte position that compaction changes. The start of the
        segment after it never moves, and no segment that a boundary cuts in two is compacted.
        """
        if end.base_offset == self.segments.active.base_offset:
            return end
        after = self.segments.floor(end.offset)
        return LogPosition(end.offset, end.offset, 0) if after.base_offset == end.offset else end

    def append(self, plan: AppendPlan, *, now_ms: int) -> None:
        """Write the planned batches after the last ones, usually by one system call.

        Raises OSError with the log unchanged, or RollbackFailed.
        """
        segment = self.segments.active
        size_before = segment.size
        try:
            segment.append(
                plan.buffer,
                plan.batches,
                now_ms=now_ms,
                index_interval=self._index_interval,
                min_timestamp=plan.min_timestamp,
                data_max_timestamp=NO_TIMESTAMP if _is_marker(plan) else plan.max_timestamp,
            )
        except OSError as error:
            try:
                segment.log.truncate(size_before)
            except OSError:
                raise RollbackFailed(error.errno, str(error)) from error
            raise
        assert segment.next_offset == plan.last_offset + 1 > self.end_offset
        self.end_offset = segment.next_offset
        if segment.offset_index.wants_writing:
            # A failure costs nothing: the entries stay in memory, and `seal` tries again.
            with suppress(OSError):
                segment.write_out()

    def roll(self, *, now_ms: int, durable_offset: int) -> None:
        """Close the active segment and start one at the end; an empty segment is kept."""
        closed = self.segments.active
        if closed.base_offset == self.end_offset:
            assert closed.is_empty, "a segment with data begins at the log's end"
            return
        has_manifest = self.manifest.is_stored
        self.manifest.remember(closed.seal(now_ms=now_ms))
        self.manifest.remember_durable(durable_offset)
        is_unsynced = self.unsynced.is_dirty or self.unsynced.ticket is not None
        if not has_manifest or (len(self.segments) == 1 and is_unsynced):
            # If a crash kept the name of the next segment but not that of the first one, the log
            # would begin there, and no file would show that this is not its start. Without the
            # manifest's name, recovery would take the directory for Kafka's, where gaps are legal.
            self._files.sync_directory(self._path)
        segment = Segment.create(self._files, self._path, self.end_offset, now_ms=now_ms)
        self._draw_jitter(segment)
        self._auxiliary.begin(segment, carried_ms=self.segments.max_timestamp)
        self.segments.add(segment)
        self.unsynced.add(closed.all_files())
        closed.release()
        self.unsynced.add_created(self.manifest.file)

    def begin_flush(self) -> FlushTicket:
        """A ticket that makes everything up to the current end durable."""
        return self.unsynced.begin(self.segments.active, self.end())

    def ages(self) -> list[SegmentAge]:
        """The facts that retention needs, oldest segment first."""
        segments = list(self.segments)
        ends = [segment.base_offset for segment in segments[1:]] + [self.end_offset]
        return [
            SegmentAge(
                base_offset=segment.base_offset,
                next_base=end,
                size_bytes=segment.size,
                largest_timestamp=segment.largest_timestamp,
                appended_ms=segment.appended_ms,
            )
            for segment, end in zip(segments, ends, strict=True)
        ]

    def remember_start(self, log_start_offset: int) -> None:
        """Store durably that no record below this offset may come back."""
        before = self.manifest.log_start_offset
        try:
            self.manifest.remember_start(log_start_offset)
            if self.manifest.file is not None:
                sync_file(self.manifest.file)
        except OSError:
            self.manifest.log_start_offset = before
            self.manifest.distrust()
            raise
        # The manifest may be as new as this line, so its name has to be durable as well.
        self._files.sync_directory(self._path)

    # --- rewriting ------------------------------------------------------------------------------

    def new_segment(self, base_offset: int, *, stage: str, now_ms: int) -> Segment:
        """A new segment in the log's directory that is not part of the log yet."""
        segment = Segment.create(self._files, self._path, base_offset, now_ms=now_ms, stage=stage)
        self._auxiliary.begin(segment)
        return segment

    def sync_names(self) -> None:
        """Make the names in the directory durable. Any thread may call this. Raises OSError."""
        self._files.sync_directory(self._path)

    def begin_swap(self, old: list[Segment], new: Segment, *, due_ms: int) -> Swap:
        """Replace `old`, which is still part of the log, by `new`, which is complete and synced.

        The caller drives its steps and has to call `end_swap` after the last one.
        """
        assert self.swap is None, "one swap at a time"
        assert self.segments.holds(old), "the segments to replace are gone"

        def replace() -> None:
            self._bury(old, due_ms=due_ms)
            self.segments.replace_closed(old, [new])

        self.swap = Swap(self._files, new, replace)
        return self.swap

    def end_swap(self, swap: Swap) -> None:
        """The new segment has its final names: it is like any other from now on."""
        if self.swap is not swap:
            # Another operation needed the swap finished at once: see `settle`.
            return
        self.swap = None
        # Until this line only its indexes have the facts about the new segment.
        self.manifest.remember(swap.new.seal(now_ms=swap.new.appended_ms))
        swap.new.release()
        self.unsynced.add_created(self.manifest.file)

    def settle(self) -> None:
        """Finish the swap that is under way, before other changes to the segments."""
        if self.swap is not None:
            self.swap.finish()
            self.end_swap(self.swap)

    def remember_cleaned(self, offset: int) -> None:
        """Store that everything below `offset` is compacted."""
        self.manifest.remember_cleaned(offset)
        self.unsynced.add_created(self.manifest.file)

    def remember_measured(
        self, segment: Segment, records: int, min_timestamp: int, data_max_timestamp: int
    ) -> None:
        """Store the statistics that were collected by reading a whole closed segment."""
        # The lowest int64 is UNKNOWN_MINIMUM here, but Kafka may store it as a timestamp. One above
        # it prunes as little.
        known = max(min_timestamp, UNKNOWN_MINIMUM + 1)
        self.manifest.remember(segment.remember_measured(records, known, data_max_timestamp))
        self.unsynced.add_created(self.manifest.file)

    # --- removing -------------------------------------------------------------------------------

    def remove_first(self, count: int, *, due_ms: int) -> None:
        """Remove the oldest segments; their files are renamed now and unlinked at `due_ms`.

        The caller has called `settle` before it counted them.
        """
        assert self.swap is None, "a swap would change what was counted"
        self._bury(self.segments.remove_first(count), due_ms=due_ms)

    def unlink_steps(self, now_ms: int) -> Steps[int]:
        """Unlink renamed files whose time has come; returns their number."""
        return self._graveyard.unlink_steps(now_ms)

    def seal_active(self, *, now_ms: int) -> None:
        """Write out and store the facts about the active segment, for a clean stop.

        A log that was never written to has no facts, so thousands of them close for free.
        """
        self.settle()
        active = self.segments.active
        if active.is_as_remembered or self.is_untouched:
            return
        self.manifest.remember(active.seal(now_ms=now_ms))
        self.unsynced.add(active.all_files())
        self.unsynced.add_created(self.manifest.file)

    def close(self) -> None:
        """Close all descriptors and write nothing; steps that are under way write nothing either.

        Another log may have taken the directory's name by their next step.
        """
        self.is_closed = True
        for segment in self.segments:
            segment.close()
        self.manifest.close()
        self.unsynced.close()

    def _bury(self, segments: Iterable[Segment], *, due_ms: int) -> None:
        gone = list(segments)
        self._forget_positions()
        for segment in gone:
            self.unsynced.forget(segment.all_files())
        self.manifest.forget(segment.base_offset for segment in gone)
        self._graveyard.bury(gone, due_ms=due_ms)
        self.unsynced.add_created()

    def _forget_positions(self) -> None:
        self.reader.forget_positions()
        self.lookup.forget_positions()

    def _draw_jitter(self, segment: Segment) -> None:
        segment.roll_jitter_ms = self._random.randrange(self._jitter_ms) if self._jitter_ms else 0


def _is_marker(plan: AppendPlan) -> bool:
    """Whether the append is a transaction's marker, which no reader sees."""
    return len(plan.batches) == 1 and plan.batches[0].is_control

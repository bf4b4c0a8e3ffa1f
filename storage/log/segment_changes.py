"""Changes of the list of a log's segments: roll, removal, replacement, in an order safe in a crash.

Owns the files that are renamed `.deleted` and wait to be unlinked, and the replacement (`Swap`)
that is under way. With each change it keeps the manifest, the unsynced files and the readers'
positions in step with the list of segments. `storage.log.log` decides when a segment starts and
when it is removed.

A removed file is unlinked `file.delete.delay.ms` after its rename, for readers that still use it.
The rename makes sure that a restart does not load it again. Recovery unlinks the files that a crash
leaves.

Source: Kafka `LocalLog`.
"""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from storage.disk.file_names import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    is_removal_due,
    parse_segment_file_name,
)
from storage.disk.files import Files, sync_file
from storage.disk.steps import Steps, off_loop
from storage.errors import storage_failure
from storage.log.auxiliary_indexes import AuxiliaryIndexes
from storage.log.flush import Unsynced
from storage.log.lookup import TimeLookup
from storage.log.reader import LogReader
from storage.segment.manifest import Manifest
from storage.segment.segment import Segment
from storage.segment.segment_list import SegmentList
from storage.segment.swap import Swap


class RemovedSegment(NamedTuple):
    """A segment that is out of the log; its files are unlinked at `due_ms`."""

    base_offset: int
    size_bytes: int
    due_ms: int


class SegmentChanges:
    """The changes of one log's segments; same thread as the log.

    Every method that touches files raises OSError, except for `unlink_due`.

    Attributes:
        swap: the replacement that is under way, or None.
        being_read: segments whose local files a round of compaction reads; they stay.
    """

    __slots__ = (
        "_auxiliary",
        "_files",
        "_manifest",
        "_path",
        "_pending_deletes",
        "_readers",
        "_segments",
        "_unsynced",
        "being_read",
        "swap",
    )

    def __init__(
        self,
        files: Files,
        path: str,
        segments: SegmentList,
        *,
        manifest: Manifest,
        unsynced: Unsynced,
        auxiliary: AuxiliaryIndexes,
        readers: Sequence[LogReader | TimeLookup],
    ) -> None:
        """Change `segments`, whose files are in the directory `path`; nothing is under way.

        `readers` remember positions in segments.
        """
        self.swap: Swap | None = None
        self.being_read: list[Segment] = []
        self._files = files
        self._path = path
        self._segments = segments
        self._manifest = manifest
        self._unsynced = unsynced
        self._auxiliary = auxiliary
        self._readers = readers
        self._pending_deletes: list[tuple[int, str]] = []

    def sync_names(self) -> None:
        """Make the names in the directory durable. Any thread may call this."""
        self._files.sync_directory(self._path)

    # --- start ----------------------------------------------------------------------------------

    def roll(self, *, log_end_offset: int, durable_offset: int, now_ms: int) -> Segment:
        """Close the active segment and start one at the log's end, which is returned."""
        closed = self._segments.active
        assert closed.base_offset < closed.next_offset == log_end_offset, "a gap between segments"
        assert durable_offset <= log_end_offset, "more is durable than was written"
        self._manifest.remember(closed.seal(now_ms=now_ms))
        self._manifest.remember_durable(durable_offset)
        is_unsynced = self._unsynced.is_dirty or self._unsynced.ticket is not None
        if not self._manifest.has_durable_name or (len(self._segments) == 1 and is_unsynced):
            # If a crash kept the name of the next segment but not that of the first one, the log
            # would begin there, and no file would show that this is not its start. Without the
            # manifest's name, recovery would take the directory for Kafka's, where gaps are legal.
            # A roll that failed before may have made the file and not its name durable.
            self.sync_names()
            self._manifest.has_durable_name = True
        segment = Segment.create(self._files, self._path, log_end_offset, now_ms=now_ms)
        self._auxiliary.begin(segment, carried_ms=self._segments.max_timestamp)
        self._segments.add(segment)
        self._unsynced.add(closed.all_files())
        closed.release()
        self._unsynced.add_created(self._manifest.file)
        return segment

    def new_segment(self, base_offset: int, *, stage: str, now_ms: int) -> Segment:
        """A new segment in the log's directory that is not part of the log yet."""
        segment = Segment.create(self._files, self._path, base_offset, now_ms=now_ms, stage=stage)
        self._auxiliary.begin(segment)
        return segment

    # --- replacement ----------------------------------------------------------------------------

    def begin_swap(self, old: list[Segment], new: Segment, *, due_ms: int) -> Swap:
        """Replace `old`, which is still part of the log, by `new`, which is complete and synced.

        The caller drives its steps and has to call `end_swap` after the last one. The old files are
        unlinked at `due_ms`.
        """
        assert self.swap is None, "one swap at a time"
        assert self._segments.holds(old), "the segments to replace are gone"
        assert old[0].base_offset == new.base_offset <= new.next_offset <= old[-1].next_offset

        def replace() -> None:
            # From here on a start completes the swap: the new segment is the only one that counts.
            if self._manifest.supersede([segment.base_offset for segment in old]):
                self._sync_manifest()
            self._retire(old, due_ms=due_ms)
            self._segments.replace_closed(old, [new])

        self.swap = Swap(self._files, new, replace)
        return self.swap

    def end_swap(self, swap: Swap) -> None:
        """The new segment has its final names: it is like any other from now on."""
        if self.swap is not swap:
            # `settle_swap` has already completed this swap.
            return
        assert swap.is_done, "a swap ends when its segment has the final names"
        self.swap = None
        # Until this line only its indexes have the facts about the new segment.
        self._manifest.remember(swap.new.seal(now_ms=swap.new.appended_ms))
        swap.new.release()
        self._unsynced.add_created(self._manifest.file)

    def settle_swap(self) -> None:
        """Finish the swap that is under way, before other changes to the segments."""
        if self.swap is not None:
            self.swap.finish()
            self.end_swap(self.swap)

    # --- removal --------------------------------------------------------------------------------

    def store_log_start(self, offset: int) -> None:
        """Store durably that no record below this offset may come back."""
        before = self._manifest.log_start_offset
        if offset > before:
            # Else a call before this one has stored it, and could not make the name durable.
            try:
                self._manifest.remember_start(offset)
                self._sync_manifest()
            except OSError:
                self._manifest.log_start_offset = before
                self._manifest.distrust()
                raise
        # The manifest may be as new as this line, so its name has to be durable as well.
        self.sync_names()

    def _sync_manifest(self) -> None:
        if self._manifest.file is not None:
            sync_file(self._manifest.file)

    def remove_oldest(self, count: int, *, due_ms: int) -> None:
        """Remove the oldest segments; their files are renamed now and unlinked at `due_ms`.

        The caller has called `settle_swap` before it counted them.
        """
        assert self.swap is None, "a swap would change what was counted"
        assert count > 0, "nothing is removed"
        self._retire(self._segments.remove_first(count), due_ms=due_ms)

    def drop_local(self, segment: Segment, *, due_ms: int) -> None:
        """Remove the local file of a segment whose object is recorded durably in the manifest.

        It is renamed now and unlinked at `due_ms`. The segment stays in the log, with its indexes.
        """
        assert segment is not self._segments.active, "the active segment has no object"
        assert segment not in self.being_read, "compaction reads the local file"
        path = segment.log.path
        self._files.rename(path, path + DELETED_SUFFIX)
        local = segment.drop_local()
        self._unsynced.drop([local])
        local.close()
        self._pending_deletes.append((due_ms, path + DELETED_SUFFIX))
        self._unsynced.add_created()

    def adopt_local(self, segment: Segment, path: str) -> None:
        """Give a segment of which only the store has the log the synced file at `path`.

        Its name is durable after the next `sync_names`.
        """
        self._files.rename(path, segment.log.path)
        segment.adopt_local(self._files.open(segment.log.path))
        self._unsynced.add_created()

    def unlink_due(self, now_ms: int, delay_ms: int) -> Steps[int]:
        """Unlink the files that are due, each in another thread; returns their number.

        Unlinking a gigabyte takes a third of a second. The log may add files between the steps.
        Raises StorageFailed after all were tried; the files that failed stay pending.
        """
        due = [one for one in self._pending_deletes if is_removal_due(one[0], now_ms, delay_ms)]
        gone: set[tuple[int, str]] = set()
        failures: list[OSError] = []
        for entry in due:
            try:
                yield from off_loop(partial(self._unlink, entry[1]))
                gone.add(entry)
            except OSError as error:
                failures.append(error)
        if gone:
            self._pending_deletes = [entry for entry in self._pending_deletes if entry not in gone]
        if failures:
            raise storage_failure("delete", self._path, failures[0]) from failures[0]
        return len(due)

    def deleted_segments(self) -> list[RemovedSegment]:
        """The segments whose files are renamed and wait to be unlinked."""
        found = []
        for due_ms, path in self._pending_deletes:
            name = parse_segment_file_name(path.rpartition("/")[2])
            if name is not None and name.kind == LOG_SUFFIX:
                with suppress(FileNotFoundError):
                    size_bytes = self._files.size(path)
                    found.append(RemovedSegment(name.base_offset, size_bytes, due_ms))
        return found

    def _retire(self, segments: list[Segment], *, due_ms: int) -> None:
        """Rename the files of segments that leave the log."""
        for reader in self._readers:
            reader.forget_positions()
        for segment in segments:
            self._unsynced.drop(segment.all_files())
        self._manifest.drop(segment.base_offset for segment in segments)
        for segment in segments:
            self._pending_deletes += [(due_ms, path) for path in segment.mark_deleted()]
        self._unsynced.add_created()

    def _unlink(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self._files.unlink(path)

    # --- stop -----------------------------------------------------------------------------------

    @property
    def is_untouched(self) -> bool:
        """Whether the log has only an empty file, as right after the partition was created."""
        active = self._segments.active
        return (
            active.next_offset == 0
            and active.is_empty
            and self._manifest.file is None
            and not self._unsynced.has_files
        )

    def seal_active(self, *, now_ms: int) -> None:
        """Write out and store the facts about the active segment, for a clean stop.

        A log that was never written to has no facts, so thousands of them close for free.
        """
        self.settle_swap()
        active = self._segments.active
        if active.matches_manifest or self.is_untouched:
            return
        self._manifest.remember(active.seal(now_ms=now_ms))
        self._unsynced.add(active.all_files())
        self._unsynced.add_created(self._manifest.file)

"""Mistakes put into the engine on purpose: the instruments must find every one of them.

Each is a function that breaks one rule through a `pytest.MonkeyPatch`; `BUGS` names them. A crash
campaign that finds nothing proves nothing unless the same campaign finds these.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from storage.directory import (
    data_dir,
    metadata_journal,
    offset_checkpoints,
    partition_directories,
)
from storage.disk import checkpoints, files
from storage.disk.file_names import MANIFEST_NAME
from storage.log import compaction, compaction_filter, flush, log, segment_changes
from storage.producers import snapshots as producer_snapshots
from storage.producers import state as producer_state
from storage.recovery import loss, recovery
from storage.segment import manifest, offset_index, swap, time_index
from storage.segment import scan as segment_scan
from tests.support import simulated_disk

Patch = pytest.MonkeyPatch


def no_fsync(patch: Patch) -> None:
    """Syncing a file does nothing."""
    patch.setattr(simulated_disk.SimulatedFile, "sync", lambda self: None)


def no_dir_fsync(patch: Patch) -> None:
    """Syncing a directory does nothing."""
    patch.setattr(simulated_disk.SimulatedDisk, "sync_directory", lambda self, path: None)


def flush_does_nothing(patch: Patch) -> None:
    """A log's flush reports success without syncing."""
    patch.setattr(flush.FlushTicket, "run", lambda self: setattr(self, "is_done", True))


def ack_before_fsync(patch: Patch) -> None:
    """What is appended counts as durable at once."""
    original = log.Log.append

    def append(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        self.durable_offset = self.log_end_offset
        return result

    patch.setattr(log.Log, "append", append)


def hw_before_fsync(patch: Patch) -> None:
    """Consumers see what is appended before it is durable."""
    original = log.Log.append

    def append(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        self._advance_high_watermark(self.end_position())
        return result

    patch.setattr(log.Log, "append", append)


def stale_marker(patch: Patch) -> None:
    """The clean-stop marker is believed and left in place (KAFKA-10471)."""

    def take(directory: str, disk: files.Files) -> bool:
        return disk.exists(f"{directory}/{checkpoints.CLEAN_SHUTDOWN_FILE}")

    patch.setattr(checkpoints, "take_clean_shutdown", take)


def marker_first(patch: Patch) -> None:
    """The marker is written before the logs are closed."""
    original = data_dir.DataDir.close

    def close(self: Any, *arguments: Any, **options: Any) -> Any:
        checkpoints.write_clean_shutdown(self.path, self._files)
        return original(self, *arguments, **options)

    patch.setattr(data_dir.DataDir, "close", close)


def truncate_too_far(patch: Patch) -> None:
    """A torn tail takes the whole segment with it."""

    def cut(opening: Any, segment: Any, end: Any) -> None:
        segment.log.truncate(0)

    patch.setattr(recovery, "_cut", cut)


def torn_tail_is_kept(patch: Patch) -> None:
    """Recovery finds the torn tail and leaves it."""
    patch.setattr(recovery, "_cut", lambda opening, segment, end: None)


def crc_not_checked(patch: Patch) -> None:
    """Recovery believes the lengths and does not look at checksums."""
    original = segment_scan.SegmentDigest.__init__

    def init(self: Any, *arguments: Any, **options: Any) -> None:
        original(self, *arguments, **{**options, "check_crc": False})

    patch.setattr(segment_scan.SegmentDigest, "__init__", init)


def holes_are_kept(patch: Patch) -> None:
    """A segment need not continue the one before it."""
    patch.setattr(loss.StoredFacts, "is_meant", lambda self, end, following: True)


def index_off_by_one(patch: Patch) -> None:
    """The offset index points beyond the batch's first byte."""
    original: Any = offset_index.OffsetIndex.add

    def add(self: Any, relative: int, position: int) -> int:
        return int(original(self, relative, position + 1))

    patch.setattr(offset_index.OffsetIndex, "add", add)


def time_index_off_by_one(patch: Patch) -> None:
    """The time index names the offset after the batch."""
    original: Any = time_index.TimeIndex.add

    def add(self: Any, timestamp: int, relative: int) -> int:
        return int(original(self, timestamp, relative + 1))

    def maybe_append(self: Any, timestamp: int, offset: int) -> bool:
        last = self.load_last()
        if last is not None and timestamp <= last[0]:
            return False
        self.add(timestamp, offset - self.base_offset)
        return True

    patch.setattr(time_index.TimeIndex, "add", add)
    patch.setattr(time_index.TimeIndex, "maybe_append", maybe_append)


def recovery_point_too_high(patch: Patch) -> None:
    """The checkpoint claims the log's end instead of what is durable."""
    patch.setattr(offset_checkpoints, "_recovery_point", lambda one: one.log_end_offset)


def manifest_durable_too_high(patch: Patch) -> None:
    """The manifest claims more to be durable than is."""
    original = manifest.Manifest.remember_durable

    def remember_durable(self: Any, offset: int) -> None:
        original(self, offset + 50)

    patch.setattr(manifest.Manifest, "remember_durable", remember_durable)


def fsync_is_retried(patch: Patch) -> None:
    """A failed sync is tried again, and its success believed."""
    original = simulated_disk.SimulatedFile.sync

    def sync(self: Any) -> None:
        try:
            original(self)
        except OSError:
            original(self)

    patch.setattr(simulated_disk.SimulatedFile, "sync", sync)


def fsync_error_is_ignored(patch: Patch) -> None:
    """A flush whose sync failed counts as done."""
    original = flush.FlushTicket.run

    def run(self: Any) -> None:
        original(self)
        self.error = None

    patch.setattr(flush.FlushTicket, "run", run)


def dedup_off(patch: Patch) -> None:
    """No batch is ever recognised as a duplicate."""
    patch.setattr(producer_state.ProducerState, "check", lambda self, batch, **_: None)


def snapshot_lies(patch: Patch) -> None:
    """Producer snapshots hold a sequence that was never sent."""
    original = producer_snapshots.encode_snapshot

    def encode(entries: Any) -> bytes:
        wrong = [
            dataclasses.replace(
                entry,
                batches=[
                    batch._replace(last_sequence=batch.last_sequence + 1) for batch in entry.batches
                ],
            )
            for entry in entries
        ]
        return original(wrong)

    patch.setattr(producer_snapshots, "encode_snapshot", encode)


def replace_without_sync(patch: Patch) -> None:
    """Files are replaced by renaming one whose content was not synced."""

    def replace_atomically(self: Any, path: str, data: bytes) -> None:
        aside = path + ".tmp"
        if self.exists(aside):
            self.unlink(aside)
        self.create(aside).append(data)
        self.rename(aside, path)
        self.sync_directory(path.rpartition("/")[0])

    patch.setattr(simulated_disk.SimulatedDisk, "replace_atomically", replace_atomically)


def journal_not_synced(patch: Patch) -> None:
    """A change of the metadata is reported before it is on the medium."""
    patch.setattr(metadata_journal, "sync_file", lambda file: None)


def partition_names_not_synced(patch: Patch) -> None:
    """The names of new partition directories are not synced."""
    patch.setattr(partition_directories.PartitionDirectories, "sync", lambda self: None)


def segment_names_not_synced(patch: Patch) -> None:
    """A flush syncs the files of a log, but not the directory that names them."""
    original = flush.FlushTicket.__init__

    def init(self: Any, disk: Any, **arguments: Any) -> None:
        original(self, disk, **{**arguments, "directory": None})

    patch.setattr(flush.FlushTicket, "__init__", init)


def first_epoch_not_synced(patch: Patch) -> None:
    """What is written beside the log before its first flush is left out of that flush."""
    patch.setattr(flush.Unsynced, "add_complete", lambda self, file: self.add_created())


def closed_segment_not_synced(patch: Patch) -> None:
    """After a roll only the new segment is synced."""
    patch.setattr(flush.Unsynced, "add", lambda self, files: None)


def log_start_not_stored(patch: Patch) -> None:
    """The log's start moves in memory only."""
    patch.setattr(segment_changes.SegmentChanges, "store_log_start", lambda self, offset: None)


def producer_ids_in_memory(patch: Patch) -> None:
    """Producer ids are counted in memory only."""

    def allocate(self: Any, count: int) -> range:
        first = getattr(self, "_next", 0)
        self._next = first + count
        return range(first, first + count)

    patch.setattr(metadata_journal.MetadataJournal, "allocate_producer_ids", allocate)


def deleted_topic_stays_in_journal(patch: Patch) -> None:
    """A deletion renames the directories and tells the journal nothing."""
    patch.setattr(metadata_journal.MetadataJournal, "mark_deleted", lambda self, topic: None)
    patch.setattr(metadata_journal.MetadataJournal, "remove_topic", lambda self, name: None)


def failed_write_is_left(patch: Patch) -> None:
    """What a failed append wrote stays in the file, and appends continue after it."""
    original = simulated_disk.SimulatedFile.append

    def append(self: Any, data: Any) -> None:
        try:
            original(self, data)
        except OSError:
            self.size = len(self._node.live)
            raise

    def truncate(self: Any, size: int) -> None:
        """Nothing."""

    patch.setattr(simulated_disk.SimulatedFile, "append", append)
    patch.setattr(simulated_disk.SimulatedFile, "truncate", truncate)


def rewritten_files_not_synced(patch: Patch) -> None:
    """Compaction swaps in a segment that was never synced."""
    patch.setattr(compaction, "_sync_all", lambda files: None)


def swap_not_synced(patch: Patch) -> None:
    """The names of a swap change without a sync of the directory in between."""
    patch.setattr(segment_changes.SegmentChanges, "sync_names", lambda self: None)


def old_segments_go_first(patch: Patch) -> None:
    """A swap removes the old segments before it announces the new one."""
    original = swap.Swap.__init__

    def init(self: Any, *arguments: Any) -> None:
        original(self, *arguments)
        self._steps[-1], self._steps[-2] = self._steps[-2], self._steps[-1]

    patch.setattr(swap.Swap, "__init__", init)


def compaction_of_undecided_records(patch: Patch) -> None:
    """Compaction does not stop where transactions are open or records not durable."""
    patch.setattr(compaction, "_uncleanable_offset", lambda one: 2**62)


def aborted_records_supersede(patch: Patch) -> None:
    """Records of aborted transactions count as the newest of their keys."""
    patch.setattr(compaction_filter.TransactionFates, "is_dead", lambda self, entry, data: False)


def compaction_keeps_the_oldest(patch: Patch) -> None:
    """The first offset of each key is remembered instead of the last."""

    def put(self: Any, key: bytes, offset: int) -> bool:
        self.newest.setdefault(key, offset + 1)
        return True

    patch.setattr(compaction_filter.KeyMap, "put", put)


def late_flush_ends_in_a_closed_segment(patch: Patch) -> None:
    """A flush that comes back after a roll leaves the high watermark at a byte of a closed segment.

    It needs no crash to be found: see `lookup_race` and the model of compaction.
    """

    def advance(self: Any, end: Any) -> None:
        if end.offset >= self.high_watermark:
            self.shown_position = end
            self.producers.state.advance_high_watermark(end.offset)

    patch.setattr(log.Log, "_advance_high_watermark", advance)


def lines_outlive_their_segments(patch: Patch) -> None:
    """A start that finds no segment any more keeps the manifest's lines about them."""
    original = recovery._make_durable

    def make_durable(opening: Any, segments: Any, existed: bool) -> None:
        if not existed and MANIFEST_NAME in opening.names:
            opening.names.remove(MANIFEST_NAME)
        original(opening, segments, existed)

    patch.setattr(recovery, "_make_durable", make_durable)


BUGS: dict[str, Callable[[Patch], None]] = {
    bug.__name__: bug
    for bug in (
        no_fsync,
        no_dir_fsync,
        flush_does_nothing,
        ack_before_fsync,
        hw_before_fsync,
        stale_marker,
        marker_first,
        truncate_too_far,
        torn_tail_is_kept,
        crc_not_checked,
        holes_are_kept,
        index_off_by_one,
        time_index_off_by_one,
        recovery_point_too_high,
        manifest_durable_too_high,
        fsync_is_retried,
        fsync_error_is_ignored,
        dedup_off,
        snapshot_lies,
        replace_without_sync,
        journal_not_synced,
        partition_names_not_synced,
        segment_names_not_synced,
        closed_segment_not_synced,
        first_epoch_not_synced,
        log_start_not_stored,
        producer_ids_in_memory,
        deleted_topic_stays_in_journal,
        failed_write_is_left,
        rewritten_files_not_synced,
        swap_not_synced,
        old_segments_go_first,
        compaction_of_undecided_records,
        aborted_records_supersede,
        compaction_keeps_the_oldest,
        lines_outlive_their_segments,
    )
}

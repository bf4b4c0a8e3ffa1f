"""Taking a log out of quarantine: the operator accepts the loss of its damaged records.

A log whose synced bytes have changed opens read-only up to the damage and stays so
(`storage.recovery.recovery`), because the broker must not decide which records to give up. Here the
operator has decided. The loss is kept as small as possible: the damaged bytes up to the next sound
batch are removed, and everything after them stays, at its offsets. A batch without records replaces
the lost records and covers their offsets, so that the log has no gap and consumers step over it.

| found                                    | done                                               |
|------------------------------------------|----------------------------------------------------|
| damage, and a sound batch after it       | the stretch between is replaced by an empty batch  |
| damage up to the end of a closed segment | an empty batch up to the next segment              |
| damage up to the end of the log          | an empty batch up to where the log had ended       |
| a gap between two segments               | an empty batch at the end of the first             |
| a log that ends below where it had ended | an empty batch up to there                         |
| a log whose first segments are gone      | it starts at the first one that exists             |
| the names of its objects in a store, too | the same                                           |
| a log without any segment                | it starts, empty, where it had ended               |
| none after those in an object store      | an empty batch up to where the log had ended       |

No offset is assigned a second time: the log ends after every offset that the manifest, the
checkpoints or the producer snapshots know to have been assigned.

The damaged bytes are kept beside the log as `<base>.log.damaged-<position>`, for a closer analysis.
The broker must not be running; the data directory's lock ensures that. After an interruption the
command can be run again.
"""

import errno
from dataclasses import field
from itertools import pairwise
from typing import Final

from protocol.records.builder import build_empty_batch
from protocol.records.layout import (
    LOG_OVERHEAD,
    MAGIC_AT,
    MAGIC_V2,
    NO_OFFSET,
)
from protocol.records.scan import scan_checked
from storage.directory.claim import LOCK_FILE
from storage.directory.metadata import TopicMetadata
from storage.directory.metadata_journal import JOURNAL_FILE, read_topics
from storage.directory.worker_directories import worker_path
from storage.disk import checkpoints, file_names
from storage.disk.files import Files
from storage.errors import DataDirLocked, HalfWrittenDataDir
from storage.segment.manifest import Manifest
from values.dataclasses import dataclass

DAMAGED_SUFFIX: Final = ".damaged"


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRange:
    """Offsets `[first_offset, next_offset)` that are lost; `kept_as` has their bytes, if any."""

    first_offset: int
    next_offset: int
    kept_as: str | None


@dataclass(slots=True, kw_only=True)
class LossReport:
    """The losses accepted in one partition, and where its log ends now.

    With `is_tiered` a bucket has records of its topic, those that are lost perhaps among them.
    """

    lost: list[LostRange] = field(default_factory=list)
    log_end_offset: int = 0
    is_tiered: bool = False


def accept_loss(data_dir: str, topic: str, partition: int, files: Files) -> LossReport:
    """Repair the log of one partition, without the records that are damaged or lost.

    Raises:
        DataDirLocked: a broker has the directory open.
        FileNotFoundError: there is no such partition.
        OSError: a file could not be read or written.
    """
    known = _known(data_dir, topic, files)
    if known is not None and partition < known.partitions:
        data_dir = worker_path(data_dir, known.worker_of(partition))
    try:
        lock = files.lock(f"{data_dir}/{LOCK_FILE}")
    except BlockingIOError:
        raise DataDirLocked(
            "a broker is using the data directory", path=data_dir, cure="stop it first"
        ) from None
    try:
        directory = f"{data_dir}/{file_names.partition_directory_name(topic, partition)}"
        stored = [
            checkpoints.known_offsets(data_dir, name, files).get((topic, partition), NO_OFFSET)
            for name in (
                checkpoints.RECOVERY_POINT_FILE,
                checkpoints.HIGH_WATERMARK_FILE,
                checkpoints.LOG_START_FILE,
            )
        ]
        if not files.exists(directory):
            if max(stored) == NO_OFFSET:
                raise FileNotFoundError(errno.ENOENT, "there is no such partition", directory)
            files.make_directory(directory)
            files.sync_directory(data_dir)
        is_tiered = known is not None and known.is_tiered
        repair = _Repair(directory, files, end=max(stored), start=stored[-1], is_tiered=is_tiered)
        report = repair.run()
        report.is_tiered = is_tiered
        return report
    finally:
        lock.release()


def _known(data_dir: str, topic: str, files: Files) -> TopicMetadata | None:
    """What the directory has of the topic."""
    path = f"{data_dir}/{JOURNAL_FILE}"
    return read_topics(files.read_all(path)).get(topic) if files.exists(path) else None


class _Repair:
    """One run over one partition directory; `end` and `start` are those of the checkpoints."""

    def __init__(
        self, directory: str, files: Files, *, end: int, start: int, is_tiered: bool
    ) -> None:
        self._directory = directory
        self._files = files
        self._manifest = manifest = Manifest(directory, files)
        self._report = LossReport()
        listed = file_names.parsed_names(files.list_directory(directory))
        parsed = [name for name in listed if not name.stage]
        self._bases = sorted(
            name.base_offset for name in parsed if name.kind == file_names.LOG_SUFFIX
        )
        snapshots = (name.base_offset for name in parsed if name.kind == file_names.SNAPSHOT_SUFFIX)
        ends = (facts.next_offset for facts in manifest.facts.values())
        # An offset in any of these was assigned: it must not be assigned again.
        self._end = max(
            (end, manifest.durable_offset, manifest.log_start_offset, 0, *ends, *snapshots)
        )
        self._start = max(start, manifest.log_start_offset)
        if self._start == NO_OFFSET and is_tiered and not manifest.facts:
            # The names of its objects are gone, as `storage.recovery.loss` has it.
            self._start = 0
        self._remote = sorted(manifest.remote_only(self._bases))

    def _check_remote(self) -> None:
        """Refuse when records are gone between what an object store has and the first `.log`.

        Raises HalfWrittenDataDir.
        """
        facts = self._manifest.facts
        for base, following in pairwise([*self._remote, *self._bases[:1]]):
            if facts[base].next_offset != following:
                raise HalfWrittenDataDir(
                    "a loss next to segments in the object store cannot be given up",
                    path=self._directory,
                    found=f"offsets {facts[base].next_offset} to {following - 1} are gone",
                    cure="restore the missing files from a copy",
                )

    def run(self) -> LossReport:
        self._check_remote()
        if self._remote and not self._bases:
            # The records after those in the store are gone: their segment has none to begin with.
            base = self._manifest.facts[self._remote[-1]].next_offset
            path = file_names.segment_file_path(self._directory, base, file_names.LOG_SUFFIX)
            self._files.replace_atomically(path, b"")
            self._bases = [base]
        following = [*self._bases[1:], None]
        for base, next_base in zip(self._bases, following, strict=False):
            end = self._mend(base, next_base)
            assert next_base in (None, end), f"segment {base} ends at {end}, next is {next_base}"
            self._report.log_end_offset = end
        self._move_start()
        gone = self._manifest.facts.keys() - set(self._bases) - set(self._remote)
        if self._report.lost and gone:
            self._manifest.drop(gone)
            self._manifest.rewrite()
        return self._report

    def _move_start(self) -> None:
        """The log begins where its first segment does, or, without any, where it had ended."""
        first = self._bases[0] if self._bases else self._end
        if self._remote:
            first = self._remote[0]
        start = self._start
        if start == NO_OFFSET:
            start = min(self._manifest.facts, default=self._bases[0] if self._bases else 0)
        if not self._bases:
            self._report.log_end_offset = first
        if start >= first:
            return
        self._report.lost.insert(0, LostRange(first_offset=start, next_offset=first, kept_as=None))
        self._manifest.remember_lost(start)
        self._manifest.log_start_offset = first
        self._manifest.rewrite()

    def _mend(self, base: int, following: int | None) -> int:
        """Make one segment sound up to the next one's base; returns its end."""
        path = file_names.segment_file_path(self._directory, base, file_names.LOG_SUFFIX)
        data = self._files.read_all(path)
        sound: list[bytes] = []
        next_offset, position, is_changed = base, 0, False
        while True:
            sound_end, next_offset = _sound_end(data, position, next_offset, following)
            sound.append(data[position:sound_end])
            resume, resume_offset = _next_sound(data, sound_end, next_offset, following)
            if resume_offset is None:
                # The end of a log is bridged as well: the offsets were assigned.
                resume_offset = self._end if following is None else following
            damaged = data[sound_end:resume]
            if resume_offset > next_offset:
                self._note(base, sound_end, damaged, next_offset, resume_offset)
                sound.append(build_empty_batch(next_offset, resume_offset))
                is_changed, next_offset = True, resume_offset
            elif damaged:
                self._note(base, sound_end, damaged, next_offset, next_offset)
                is_changed = True
            position = resume
            if position >= len(data):
                break
        if is_changed:
            self._replace(base, path, b"".join(sound))
        return next_offset

    def _note(self, base: int, position: int, damaged: bytes, first: int, following: int) -> None:
        kept_as = None
        if damaged:
            kept_as = file_names.segment_file_path(self._directory, base, file_names.LOG_SUFFIX)
            kept_as += f"{DAMAGED_SUFFIX}-{position}"
            self._files.replace_atomically(kept_as, damaged)
        self._report.lost.append(
            LostRange(first_offset=first, next_offset=following, kept_as=kept_as)
        )
        self._manifest.remember_lost(first)

    def _replace(self, base: int, path: str, content: bytes) -> None:
        """Remove the indexes first: none may stay that belongs to other bytes."""
        self._manifest.drop([base])
        self._manifest.rewrite()
        for suffix in file_names.INDEX_SUFFIXES:
            index = file_names.segment_file_path(self._directory, base, suffix)
            if self._files.exists(index):
                self._files.unlink(index)
        self._files.sync_directory(self._directory)
        self._files.replace_atomically(path, content)


def _sound_end(data: bytes, start: int, next_offset: int, following: int | None) -> tuple[int, int]:
    """The position at which the batches from `start` on stop being sound, and the offset there.

    No checksum covers a batch's base offset, so a batch whose offset does not follow counts as
    damaged.
    """
    checked = scan_checked(data, start)
    for entry in checked.entries:
        if entry.last_offset < next_offset or _is_beyond(entry.last_offset, following):
            return entry.position, next_offset
        next_offset = entry.next_offset
    return checked.end_position, next_offset


def _is_beyond(last_offset: int, following: int | None) -> bool:
    return following is not None and last_offset >= following


def _next_sound(
    data: bytes, start: int, next_offset: int, following: int | None
) -> tuple[int, int | None]:
    """Where the next sound batch after damage begins, and its first offset; the end if none.

    Searches for batches of magic 2 only: a false match among older ones could not be ruled out.
    """
    at = data.find(bytes([MAGIC_V2]), start + MAGIC_AT + 1)
    while at >= 0:
        position = at - MAGIC_AT
        size = int.from_bytes(data[position + 8 : position + LOG_OVERHEAD], "big") + LOG_OVERHEAD
        base_offset = int.from_bytes(data[position : position + 8], "big")
        if base_offset >= next_offset and position + size <= len(data):
            checked = scan_checked(data, position, position + size)
            if (
                checked.entries
                and checked.end_position == position + size
                and not _is_beyond(checked.entries[-1].last_offset, following)
            ):
                return position, base_offset
        at = data.find(bytes([MAGIC_V2]), at + 1)
    return len(data), None

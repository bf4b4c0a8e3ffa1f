"""The directories of workers 2 and up, below the data directory, and how partitions leave them.

Worker K keeps its partitions in `worker.K`, with a lock, a clean-stop marker and checkpoints of its
own. (`worker-K` would be partition K of a topic named worker.) The journal of the data directory
says which worker keeps a partition.

When the broker starts with fewer workers than before, the first worker takes over the partitions of
those that are gone: by renaming their directories, once their stop was clean. The order makes a
crash harmless:

    check all  ->  journal: the first worker keeps them  ->  copy the offsets of the checkpoints
               ->  rename the directories                ->  sync their names

From the second step on, each start looks for a partition that should be in the data directory and
is in `worker.K`, and continues. A file system that is not atomic in this (ext4, XFS and Btrfs are)
might lose a directory between its two names; the next start sees that by the checkpoint.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from storage.directory.metadata import FIRST_WORKER, TopicMetadata
from storage.directory.metadata_journal import WORKERS_VERSION, MetadataJournal
from storage.disk.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    known_offsets,
    write_offsets,
)
from storage.disk.file_names import partition_directory_name
from storage.disk.files import Files
from storage.errors import DataDirLocked, ForeignDataDir
from values.words import format_count

_PREFIX: Final = "worker."
_LOCK_FILE: Final = ".lock"
_CHECKPOINTS: Final = (LOG_START_FILE, RECOVERY_POINT_FILE, HIGH_WATERMARK_FILE, CLEANER_FILE)


def worker_path(path: str, worker: int) -> str:
    """The directory of a worker; the first one uses the data directory itself."""
    return path if worker == FIRST_WORKER else f"{path}/{_PREFIX}{worker}"


def worker_number(name: str) -> int | None:
    """The worker whose directory has this name, or None."""
    digits = name.removeprefix(_PREFIX)
    is_one = name.startswith(_PREFIX) and digits.isdecimal() and str(int(digits)) == digits
    return int(digits) if is_one and int(digits) > FIRST_WORKER else None


def worker_paths(path: str, files: Files) -> dict[int, str]:
    """The existing directories of workers 2 and up, by number."""
    numbers = filter(None, map(worker_number, files.list_directory(path)))
    return {number: worker_path(path, number) for number in sorted(numbers)}


def gather_partitions(
    path: str, journal: MetadataJournal, files: Files, *, workers: int
) -> list[str]:
    """Let the first worker take over from workers above `workers`; sentences about what was done.

    No worker may be running.

    Raises:
        ForeignDataDir: such a worker was not stopped cleanly; nothing was changed.
        DataDirLocked: it is running.
        OSError, StorageFailed: a file could not be written; the next start continues.
    """
    if journal.version != WORKERS_VERSION:
        return []
    topics = [*journal.topics().values(), *journal.deleted_topics()]
    moving = _partitions_to_move(path, topics, files, workers)
    for worker in moving:
        _check_stopped(path, worker, files, workers)
    deleted = {topic.name for topic in journal.deleted_topics()}
    for topic in topics:
        kept = tuple(w if w <= workers else FIRST_WORKER for w in topic.workers)
        if kept != topic.workers:
            put = journal.mark_deleted if topic.name in deleted else journal.put_topic
            put(replace(topic, workers=kept))
    notices = []
    for worker, partitions in moving.items():
        _move(path, worker, partitions, files)
        notices.append(
            f"worker 1 has {format_count(len(partitions), 'partition')} of worker {worker} now"
        )
    if all(set(topic.workers) <= {FIRST_WORKER} for topic in journal.topics().values()):
        journal.forget_workers()
    return notices


def _partitions_to_move(
    path: str, topics: Iterable[TopicMetadata], files: Files, workers: int
) -> dict[int, list[tuple[str, int]]]:
    """The partitions in directories of workers that are the first worker's, or become its own."""
    existing = worker_paths(path, files)
    moving: dict[int, list[tuple[str, int]]] = {}
    for topic in topics:
        for partition in range(topic.partitions):
            assigned = topic.worker_of(partition)
            if assigned != FIRST_WORKER and assigned <= workers:
                continue
            name = partition_directory_name(topic.name, partition)
            for worker, directory in existing.items():
                if files.exists(f"{directory}/{name}") and not files.exists(f"{path}/{name}"):
                    moving.setdefault(worker, []).append((topic.name, partition))
    return moving


def _check_stopped(path: str, worker: int, files: Files, workers: int) -> None:
    directory = worker_path(path, worker)
    try:
        files.lock(f"{directory}/{_LOCK_FILE}").release()
    except BlockingIOError:
        raise DataDirLocked(
            "a worker is still using its directory", path=directory, cure="stop that broker"
        ) from None
    if not files.exists(f"{directory}/{CLEAN_SHUTDOWN_FILE}"):
        raise ForeignDataDir(
            f"with workers={workers} the partitions of worker {worker} would move, but it was not "
            "stopped cleanly",
            path=directory,
            found=f"no {CLEAN_SHUTDOWN_FILE}",
            cure=f"start with workers={max(worker, workers)} or more, stop it, then start with "
            f"workers={workers}",
        )


def _move(path: str, worker: int, partitions: list[tuple[str, int]], files: Files) -> None:
    source = worker_path(path, worker)
    for name in _CHECKPOINTS:
        theirs = known_offsets(source, name, files)
        moved = {key: theirs[key] for key in partitions if key in theirs}
        if moved:
            write_offsets(path, name, {**known_offsets(path, name, files), **moved}, files)
    for key in partitions:
        directory = partition_directory_name(*key)
        files.rename(f"{source}/{directory}", f"{path}/{directory}")
    files.sync_directory(path)
    files.sync_directory(source)

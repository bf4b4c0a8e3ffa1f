"""The directories of partitions as names in the data directory: created, renamed, removed.

Owns the life of a partition's directory, apart from the files that its log keeps in it:

    (absent) --make--> <topic>-<p> --delete--> <topic>-<p>.<hex>-delete --remove_due--> (absent)
                            |
                            +--set_aside--> <topic>-<p>.<hex>-stray        kept, never served

and the file `partition.metadata`. Refuses to know why: `storage.directory.data_dir` decides, and
makes the names durable with `sync` once per change, however many partitions a topic has.

Source: Kafka `LogManager` and `LocalLog`.
"""

import os
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

from storage.directory.claim import stray_directory_name
from storage.directory.metadata import FIRST_WORKER, TopicMetadata
from storage.disk.checkpoints import PARTITION_METADATA_FILE, RandomBytes, format_partition_metadata
from storage.disk.file_names import (
    deleted_directory_name,
    is_removal_due,
    partition_directory_name,
)
from storage.disk.files import Files
from storage.disk.steps import Steps, off_loop
from storage.errors import StorageFailed
from storage.remote.erase import MayGo, erase_directory, names_objects
from storage.remote.object_store import ObjectStore

_UNIQUE_BYTES: Final = 16


class PartitionDirectories:
    """The partition directories below one data directory. Only its `DataDir` uses it."""

    def __init__(self, root: str, files: Files, random_bytes: RandomBytes) -> None:
        """Start without touching the disk; `root` is the data directory."""
        self._root = root
        self._files = files
        self._random_bytes = random_bytes
        # Directories to remove, each with the time from which it may be removed, and the delay
        # until then.
        self._deleted: list[tuple[str, int, int]] = []

    def path(self, topic: str, partition: int) -> str:
        """The path of the partition's directory."""
        return f"{self._root}/{partition_directory_name(topic, partition)}"

    def sync(self) -> None:
        """Make the current names durable."""
        self._files.sync_directory(self._root)

    def make(self, topic: str, partition: int, topic_id: bytes) -> str:
        """Create a directory with its `partition.metadata`; returns its path.

        Raises:
            StorageFailed: the directory exists already; its content is not this topic's.
        """
        directory = self.path(topic, partition)
        if self._files.exists(directory):
            raise StorageFailed("create", directory, "there is such a directory already")
        self._files.make_directory(directory)
        self.write_metadata(directory, topic_id)
        return directory

    def write_metadata(self, directory: str, topic_id: bytes) -> None:
        """Write `partition.metadata` again.

        Not synced: the journal has the id, and a start that finds the file broken writes it again.
        For thousands of partitions that saves seconds.
        """
        path = f"{directory}/{PARTITION_METADATA_FILE}"
        if self._files.exists(path):
            self._files.unlink(path)
        file = self._files.create(path)
        file.append(format_partition_metadata(topic_id))
        file.close()

    def set_aside(self, topic: str, partition: int) -> str:
        """Rename a directory that belongs to no topic; returns the name under which it is kept."""
        unique = self._random_bytes(_UNIQUE_BYTES).hex()
        directory = self.path(topic, partition)
        kept_as = stray_directory_name(os.path.basename(directory), unique)
        self._files.rename(directory, f"{self._root}/{kept_as}")
        return kept_as

    def set_aside_strays(
        self,
        found: dict[tuple[str, int], bytes | None],
        known: Mapping[str, TopicMetadata],
        worker: int = FIRST_WORKER,
    ) -> list[str]:
        """Rename those of the directories `found` that belong to no topic; a sentence for each.

        So are those of partitions that are not assigned to `worker`.

        They are removed from `found`, whose values are the topic ids in them.
        """
        notices = []
        for (name, partition), topic_id in sorted(found.items()):
            metadata = known.get(name)
            is_known = (
                metadata is not None
                and partition < metadata.partitions
                and metadata.worker_of(partition) == worker
            )
            if metadata is not None and is_known and topic_id in (None, metadata.topic_id):
                continue
            del found[name, partition]
            try:
                done = f"kept as {self.set_aside(name, partition)}"
            except OSError as error:
                done = f"it cannot be renamed ({error})"
            notices.append(
                f"{name}-{partition} belongs to no topic of this broker; {done}, not served"
            )
        return notices

    def delete(
        self, topic: str, partitions: Iterable[int], now_ms: int, *, delay_ms: int = 0
    ) -> None:
        """Rename the existing ones of the partitions' directories, for removal after the delay.

        Raises OSError.
        """
        for partition in partitions:
            directory = self.path(topic, partition)
            if self._files.exists(directory):
                unique = self._random_bytes(_UNIQUE_BYTES).hex()
                name = deleted_directory_name(topic, partition, unique)
                self._files.rename(directory, f"{self._root}/{name}")
                self.remove_later(name, now_ms, delay_ms=delay_ms)

    def remove_later(self, name: str, now_ms: int, *, delay_ms: int = 0) -> None:
        """Schedule the removal of the directory by `remove_due` after the delay."""
        self._deleted.append((f"{self._root}/{name}", now_ms + delay_ms, delay_ms))

    def remove_due(self, now_ms: int) -> Steps[int]:
        """Remove the directories that are due, each in another thread; returns their number.
        Their names have no other use, so topics may come and go between the steps.

        Raises:
            StorageFailed: some could not be removed, the first is named; the next call tries them
                again.
        """
        gone: set[str] = set()
        failed: dict[str, OSError] = {}
        for path in self._due(now_ms):
            try:
                if (yield from off_loop(partial(self._remove, path))):
                    gone.add(path)
            except OSError as error:
                failed[path] = error
        self._deleted = [each for each in self._deleted if each[0] not in gone]
        for path, failure in failed.items():
            raise StorageFailed("remove", path, str(failure)) from failure
        return len(gone)

    def erase_remote(self, now_ms: int, store: ObjectStore, may_go: MayGo) -> Steps[int]:
        """Delete the objects of the directories that are due; returns their number.

        Raises StoreFailed, StorageFailed: the next call tries the rest.
        """
        erased = 0
        for path in self._due(now_ms):
            if (yield from off_loop(partial(names_objects, path, self._files))):
                erased += yield from erase_directory(path, self._files, store, may_go)
        return erased

    def _due(self, now_ms: int) -> list[str]:
        return [
            path
            for path, due_ms, delay_ms in self._deleted
            if is_removal_due(due_ms, now_ms, delay_ms)
        ]

    def _remove(self, path: str) -> bool:
        """Remove a directory, unless it is the only record of objects in a store."""
        if names_objects(path, self._files):
            return False
        self._files.remove_tree(path)
        return True

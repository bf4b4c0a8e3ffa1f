"""The offset checkpoints of a data directory: hints that make a start faster.

Owns the four files in the root that hold one offset per partition, and the knowledge of which
partitions they may contain. A missing or broken checkpoint costs time, never correctness. An entry
of *another* topic of the same name would cost data. So before a partition is created, its entries
are removed from the files (`remove_entries`).

| file                             | offset          | used for                                   |
|----------------------------------|-----------------|--------------------------------------------|
| recovery-point-offset-checkpoint | recovery point  | where recovery after a crash begins        |
| log-start-offset-checkpoint      | log start       | a start inside of the first segment        |
| replication-offset-checkpoint    | high watermark  | the end of a log that was stopped cleanly; |
|                                  |                 | Apache Kafka, if it opens the directory    |
| cleaner-offset-checkpoint        | compacted up to | logs without a manifest, and Apache Kafka  |

Source: Kafka `LogManager` checkpoints.
"""

from collections.abc import Iterable, Sequence
from dataclasses import field
from threading import Lock

from storage.disk.checkpoints import (
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    CorruptCheckpoint,
    read_offsets,
    write_offsets,
)
from storage.disk.files import Files
from storage.disk.steps import Steps, off_loop, run_steps
from storage.errors import StorageFailed
from storage.log.log import Log
from values.dataclasses import dataclass

PartitionKey = tuple[str, int]


@dataclass(slots=True, kw_only=True)
class Hints:
    """The content of the checkpoints."""

    recovery_points: dict[PartitionKey, int] = field(default_factory=dict)
    log_starts: dict[PartitionKey, int] = field(default_factory=dict)
    high_watermarks: dict[PartitionKey, int] = field(default_factory=dict)
    cleaned: dict[PartitionKey, int] = field(default_factory=dict)

    def by_file(self) -> dict[str, dict[PartitionKey, int]]:
        """The offsets of each file, in the order in which they are written."""
        return {
            LOG_START_FILE: self.log_starts,
            RECOVERY_POINT_FILE: self.recovery_points,
            HIGH_WATERMARK_FILE: self.high_watermarks,
            CLEANER_FILE: self.cleaned,
        }

    def recovery_point(self, key: PartitionKey, *, is_clean: bool) -> int:
        """The offset below which the partition is known to be durable, 0 when nothing is known.

        A clean stop has synced everything below the high watermark. After a crash that is not
        known, because under `flush.policy=os` the high watermark does not wait for syncs.
        """
        known = self.recovery_points.get(key, 0)
        return max(known, self.high_watermarks.get(key, 0)) if is_clean else known


class OffsetCheckpoints:
    """The checkpoint files of one data directory. Only its `DataDir` uses it."""

    def __init__(self, root: str, files: Files) -> None:
        """Start without content; `read` comes first."""
        self._root = root
        self._files = files
        self._known: set[PartitionKey] = set()
        self._read_at_start = Hints()
        self._generation = 0
        self._one_at_a_time = Lock()
        self._written: Hints | None = None
        self._has_cleaned = files.exists(f"{root}/{CLEANER_FILE}")

    def read(self, *, stopped_cleanly: bool) -> tuple[Hints, list[str]]:
        """The content of the files, and a sentence for each that cannot be read or is missing."""
        notices: list[str] = []
        if stopped_cleanly and not self._files.exists(f"{self._root}/{RECOVERY_POINT_FILE}"):
            notices.append(
                f"{RECOVERY_POINT_FILE} is missing, although a clean stop has written it; the high "
                "watermarks and the files of each log say where it ended"
            )
        hints = self._read_at_start
        for name, offsets in hints.by_file().items():
            try:
                offsets |= read_offsets(self._root, name, self._files)
            except CorruptCheckpoint as error:
                notices.append(f"{name} cannot be read and is taken for empty: {error}")
            self._known |= offsets.keys()
        return hints, notices

    def write(self, logs: Iterable[Log]) -> Steps[None]:
        """Store the offsets of these logs and of no others; the files are written off the loop.

        Steps of an earlier call that are under way elsewhere write nothing more.

        For a quarantined log the files keep their entries: the log is known to have been longer
        than it is, and the next start must find that again. Where other facts have proven a higher
        end, that becomes the recovery point.

        A small file's sync has to wait for the whole journal of the file system, which may take
        seconds because of other programs' data. Unchanged files are not written again.

        Raises:
            StorageFailed: a file could not be written; the old ones still exist and are correct.
        """
        self._generation += 1
        generation = self._generation
        has_cleaned = self._has_cleaned
        content = self._offsets_of(logs)
        self._known |= content.recovery_points.keys()
        if content == self._written:
            return

        def put() -> None:
            with self._one_at_a_time:
                # In this order: a call that overtakes this one between the two lines must not
                # believe that the files still have the content from before.
                self._written = None
                if generation != self._generation:
                    return
                for name, offsets in content.by_file().items():
                    if name != CLEANER_FILE or offsets or has_cleaned:
                        write_offsets(self._root, name, offsets, self._files)
                self._written = content

        try:
            yield from off_loop(put)
        except OSError as error:
            raise StorageFailed("checkpoint", self._root, str(error)) from error
        if generation == self._generation:
            self._has_cleaned = bool(content.cleaned)
            self._known = set(content.recovery_points)

    def keep_proven_ends(self, logs: Sequence[Log]) -> None:
        """Store the ends of quarantined logs that only facts of a clean stop have proven.

        To the next start such a log has not stopped cleanly, and only its recovery point counts.

        Raises:
            StorageFailed: see `write`.
        """
        known = self._read_at_start.recovery_points
        for log in logs:
            proven = 0 if log.quarantine is None else log.quarantine.durable_end
            if proven > known.get((log.topic, log.partition), 0):
                run_steps(self.write(logs))
                return

    def remove_entries(self, topic: str, partitions: Iterable[int], logs: Iterable[Log]) -> None:
        """Make sure that no file has an entry for these partitions, which are about to be created.

        `logs` are all the others.

        Raises:
            StorageFailed: see `write`.
        """
        if any((topic, partition) in self._known for partition in partitions):
            run_steps(self.write(logs))

    def _offsets_of(self, logs: Iterable[Log]) -> Hints:
        found = Hints()
        offsets, before = found.by_file(), self._read_at_start.by_file()
        for log in logs:
            key = (log.topic, log.partition)
            if log.quarantine is not None:
                for name, known in before.items():
                    if key in known:
                        offsets[name][key] = known[key]
                if log.quarantine.durable_end > found.recovery_points.get(key, 0):
                    found.recovery_points[key] = log.quarantine.durable_end
                continue
            found.recovery_points[key] = _recovery_point(log)
            found.high_watermarks[key] = log.high_watermark
            if log.config.is_compacted:
                found.cleaned[key] = log.cleaned_offset
            if log.log_start_offset > log.segments.first.base_offset:
                found.log_starts[key] = log.log_start_offset
        return found


def _recovery_point(log: Log) -> int:
    """Recovery after a crash starts reading here: everything below is durable."""
    assert log.durable_offset <= log.high_watermark, "durable records that no reader may see"
    return log.durable_offset

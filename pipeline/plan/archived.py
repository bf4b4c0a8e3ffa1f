"""What an archive holds: the committed files, and the offsets that they cover.

The archive job writes into its state directory a plan for each batch (its offsets) and then a
commit (its files). Both stay as they are, and are numbered from 0 without a gap. A record is in the
lake from the commit on, and exactly once: the ranges of the plans do not overlap, and files without
a commit are never read.

    plans/00000004.json     flights-0 [5000, 7000), flights-1 [4100, 6900)
    commits/00000004.json   event_date=2013-07-04/..., event_date=2013-07-05/...

Compaction (`jobs.compact_files`) replaces files by others with the same records, in documents of
its own that are numbered in the same way. A reader drops the replaced ones, also of commits that it
reads later.

So `[5000, 7000)` of flights-0 is read from these files, and an offset that no commit covers is read
from the broker. `Archive` follows the commits while the job runs. If retention has deleted records
that the last known commit does not cover, a commit written meanwhile may; `follow` looks for it,
and waits for it while the plan of an unfinished batch covers them.

The files of all three kinds of lake are Parquet and are listed here, so Delta and Iceberg tables
are read without their libraries; their own compaction must leave these files in place.
"""

import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from client.core.options import ClusterOptions
from pipeline.errors import BadOptions, DataLoss, JournalConflict
from pipeline.net.cluster import Cluster
from pipeline.options.options import Boundary, SourceOptions, TopicChoice, TopicPartition
from pipeline.plan.journal import Journal
from pipeline.plan.splits import OffsetRange, join_ranges

PLAN_VERSION: Final = 1
START: Final = "start"
"""Where each partition started when the archive first looked at it."""
ISOLATION: Final = "isolation"
"""Whether the archive holds the records of aborted transactions; decided by its first run."""
TOPIC_IDS: Final = "topic-ids"
"""The ids of the topics at the first run; later plans have theirs."""
COMPACTIONS: Final = "compactions"
"""The documents that name files which replace others."""
ALONE: Final = SourceOptions(
    connection=ClusterOptions(bootstrap=()), choice=TopicChoice(),
    starting=Boundary(option="startingOffsets", place="earliest"),
    ending=Boundary(option="endingOffsets", place="latest"),
)  # fmt: skip
"""The source's options for reading an archive by itself, without a broker."""
_LOOK_AGAIN_S: Final = 0.5
_COMMIT_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True, order=True)
class WrittenFile:
    """A file that a worker wrote; `event_date` is empty for records without a date."""

    path: str
    event_date: str
    topic: str
    youngest: tuple[tuple[int, int], ...]
    """(partition, largest timestamp in ms) of each partition in it."""
    rows: int
    size_bytes: int
    first_offset: int
    last_offset: int
    min_timestamp_ms: int
    max_timestamp_ms: int

    @property
    def partitions(self) -> Iterator[TopicPartition]:
        """The partitions that it has records of."""
        return ((self.topic, partition) for partition, _ in self.youngest)


@dataclass(frozen=True, slots=True)
class FilePart:
    """The records of one file that a task reads: those of `wanted`.

    No record of the file is before `first_offset`.
    """

    path: str
    size_bytes: int
    topic: str
    wanted: tuple[OffsetRange, ...]
    first_offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivePlan:
    """The content of one batch of an archive; all later steps are functions of it."""

    number: int
    cluster_id: str
    topic_ids: Mapping[str, str]
    tasks: tuple[tuple[OffsetRange, ...], ...]
    target: str

    @property
    def ranges(self) -> list[OffsetRange]:
        """All ranges, in the order of the tasks."""
        return [one for task in self.tasks for one in task]

    def document(self) -> dict[str, Any]:
        """The plan as the journal keeps it."""
        return {**asdict(self), "version": PLAN_VERSION}

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> "ArchivePlan":
        """The plan out of the journal.

        Raises:
            JournalConflict: it is of a version that is not understood.
        """
        if document.get("version") != PLAN_VERSION:
            raise JournalConflict(f"plan version {document.get('version')} is not understood")
        return cls(
            number=document["number"],
            cluster_id=document["cluster_id"],
            topic_ids=document["topic_ids"],
            tasks=tuple(tuple(OffsetRange(**one) for one in task) for task in document["tasks"]),
            target=document["target"],
        )

    @property
    def digest(self) -> str:
        """Eight hexadecimal digits that distinguish this plan from every other."""
        text = json.dumps(self.document(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:8]


class Archive:
    """The commits of one archive, as far as they were read. Belongs to one thread.

    Attributes:
        files: all committed files, and of those that were replaced their replacements.
        commits: how many commits `files` has.
        compactions: how many compactions `files` has.
    """

    def __init__(self, state_dir: str, *, name: str = "option archive=") -> None:
        """Read the commits that are there; errors name `state_dir` as `name` does.

        Raises:
            BadOptions: `state_dir` is not the state directory of an archive.
            JournalConflict: a document in it cannot be read.
        """
        self._journal = Journal(state_dir)
        starts = self._journal.find(START)
        if starts is None:
            raise BadOptions(
                f"{name}{state_dir!r}: {self._journal.address} is no state "
                "directory of an archive (it has no start.json); give the --state-dir of "
                "`tidelog spark archive`"
            )
        self._starts = {(topic, index): offset for topic, index, offset in starts}
        self.commits = 0
        self.compactions = 0
        self._replaced: set[str] = set()
        self._covered: dict[TopicPartition, list[OffsetRange]] = {}
        self._last: ArchivePlan | None = None
        self._topic_ids: dict[str, str] = {}
        self.files: list[WrittenFile] = []
        self.refresh()

    def refresh(self) -> bool:
        """Read the commits after the last known one; whether there was any."""
        before = self.commits
        while (commit := self._journal.find(f"commits/{self.commits:08d}")) is not None:
            plan = self._plan(self.commits)
            assert plan is not None, "a commit has a plan"
            self._add(commit["files"])
            for one in plan.ranges:
                self._covered.setdefault(one.topic_partition, []).append(one)
            self._last = plan
            self._topic_ids |= plan.topic_ids
            self.commits += 1
        if self.commits > before:
            self._covered = {tp: join_ranges(parts) for tp, parts in self._covered.items()}
        self._read_compactions()
        return self.commits > before

    def _read_compactions(self) -> None:
        """Take the files of later compactions in the place of those that they replace."""
        while (made := self._journal.find(f"{COMPACTIONS}/{self.compactions:08d}")) is not None:
            self._replaced.update(made["replaced"])
            self.files = [file for file in self.files if file.path not in self._replaced]
            self._add(made["files"])
            self.compactions += 1

    def _add(self, files: Iterable[Mapping[str, Any]]) -> None:
        parsed = map(parse_file, files)
        self.files += [file for file in parsed if file.path not in self._replaced]

    @property
    def known_paths(self) -> set[str]:
        """The paths of `files` and of all that were replaced."""
        return {file.path for file in self.files} | self._replaced

    @property
    def is_pending(self) -> bool:
        """Whether there is a batch with a plan and without a commit."""
        return self._plan(self.commits) is not None

    def check(self, cluster: Cluster, topics: Iterable[str], *, read_committed: bool) -> None:
        """Whether it is an archive of these topics, read as the query reads them.

        Raises:
            BadOptions: the isolation level of the query is another one.
            DataLoss: a topic was deleted and created again.
            JournalConflict: it is an archive of another cluster.
        """
        where = f"option archive={self._journal.address!r}"
        kept = self._journal.find(ISOLATION)
        level = isolation_level(read_committed=read_committed)
        if kept is not None and kept != level:
            raise BadOptions(
                f"{where}: the archive was written with kafka.isolation.level={kept}, and this "
                f"query reads {level}: set the query's kafka.isolation.level to {kept}"
            )
        plan = self._last
        if plan is None:
            return
        if plan.cluster_id != cluster.cluster_id:
            raise JournalConflict(
                f"{where} is an archive of cluster {plan.cluster_id}, and kafka.bootstrap.servers "
                f"is cluster {cluster.cluster_id}: give the brokers or the archive that belong "
                "together"
            )
        for topic in topics:
            archived, now = self._topic_ids.get(topic), cluster.topic_id(topic)
            if archived is not None and now and archived != now:
                raise DataLoss(
                    f"{where}: topic {topic} was deleted and created again after it was archived, "
                    "so its offsets name other records; read the archive by itself, and the topic "
                    "without it"
                )

    def ranges(self) -> list[OffsetRange]:
        """All offsets in the lake, neighbours as one."""
        return join_ranges(one for parts in self._covered.values() for one in parts)

    def first_offset(self, tp: TopicPartition) -> int | None:
        """The first offset of a partition in the lake; None if there is none."""
        covered = self._covered.get(tp)
        return covered[0].start if covered else None

    def end_offset(self, tp: TopicPartition) -> int:
        """The end of what the lake has of a partition, which is its start as long as it is empty.

        A partition that was made after the first run starts at 0.
        """
        covered = self._covered.get(tp)
        return covered[-1].end if covered else self._starts.get(tp, 0)

    def split(self, ranges: Iterable[OffsetRange]) -> tuple[list[OffsetRange], list[OffsetRange]]:
        """The parts of `ranges` that the lake holds, and the others."""
        inside: list[OffsetRange] = []
        outside: list[OffsetRange] = []
        for one in ranges:
            at = one.start
            for known in self._covered.get(one.topic_partition, ()):
                start, end = max(known.start, at), min(known.end, one.end)
                if start >= end:
                    continue
                inside.append(OffsetRange(one.topic, one.partition, start, end))
                outside.append(OffsetRange(one.topic, one.partition, at, start))
                at = end
            outside.append(OffsetRange(one.topic, one.partition, at, one.end))
        return inside, [one for one in outside if one.size > 0]

    def follow(self, wanted: Sequence[OffsetRange]) -> bool:
        """Read newer commits; whether there were any, which may cover `wanted`.

        Waits for the next commit while an unfinished batch will cover some of `wanted`: the job
        may have read these records before retention deleted them.
        """
        deadline = time.monotonic() + _COMMIT_TIMEOUT_S
        while not self.refresh():
            if not self.unfinished(wanted) or time.monotonic() >= deadline:
                return False
            time.sleep(_LOOK_AGAIN_S)
        return True

    def unfinished(self, wanted: Sequence[OffsetRange]) -> list[OffsetRange]:
        """What of `wanted` a batch with a plan and without a commit covers."""
        pending = self._plan(self.commits)
        return [] if pending is None else _common(pending.ranges, wanted)

    def parts(
        self, ranges: Sequence[OffsetRange], oldest_ms: int, newest_ms: int
    ) -> Iterator[FilePart]:
        """The files that may hold records of `ranges` and of `[oldest_ms, newest_ms)`."""
        by_partition: dict[TopicPartition, list[OffsetRange]] = {}
        for one in ranges:
            by_partition.setdefault(one.topic_partition, []).append(one)
        for file in self.files:
            if file.min_timestamp_ms >= newest_ms or file.max_timestamp_ms < oldest_ms:
                continue
            wanted = tuple(
                one
                for tp in file.partitions
                for one in by_partition.get(tp, ())
                if file.first_offset < one.end and file.last_offset >= one.start
            )
            if wanted:
                yield FilePart(file.path, file.size_bytes, file.topic, wanted, file.first_offset)

    def _plan(self, number: int) -> ArchivePlan | None:
        document = self._journal.find(f"plans/{number:08d}")
        return None if document is None else ArchivePlan.parse(document)


def isolation_level(*, read_committed: bool) -> str:
    """Kafka's name for what a reader sees of transactions."""
    return "read_committed" if read_committed else "read_uncommitted"


def parse_file(document: Mapping[str, Any]) -> WrittenFile:
    """A file as the journal keeps it."""
    youngest = tuple((partition, when) for partition, when in document["youngest"])
    return WrittenFile(**{**document, "youngest": youngest})


def pack_files(parts: Iterable[FilePart], target_bytes: int) -> list[tuple[FilePart, ...]]:
    """Tasks of about `target_bytes` each, in the order of `parts`; a file is never cut."""
    tasks: list[list[FilePart]] = []
    filled = target_bytes
    for part in parts:
        if filled + part.size_bytes > target_bytes:
            tasks.append([])
            filled = 0
        tasks[-1].append(part)
        filled += part.size_bytes
    return [tuple(task) for task in tasks]


def _common(left: Sequence[OffsetRange], right: Sequence[OffsetRange]) -> list[OffsetRange]:
    """The offsets that both have."""
    pairs = ((one, other) for one in left for other in right)
    found = [
        OffsetRange(one.topic, one.partition, max(one.start, other.start), min(one.end, other.end))
        for one, other in pairs
        if one.topic_partition == other.topic_partition
    ]
    return [one for one in found if one.size > 0]

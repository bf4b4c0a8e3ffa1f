"""Spark's side of reading without end: micro-batches from offset to offset.

Owns the offsets that Spark writes into its checkpoint, what is lost between them, and the record of
a query's start; how far a batch goes is in `micro_batches`. Spark requests the initial offset twice
and does not store it before the first batch is planned. A start that moves ("latest", an hour ago,
the log's start under retention) would lose rows if the driver died in between. So the first answer
goes into a journal of our own, and every later call returns that one.

The offset is the JSON that Spark stores::

    {"offsets": {"flights": {"0": 4711, "1": 12}}, "topicIds": {"flights": "5a0f..."},
     "oldestMs": 1372939200000}

`offsets` are exclusive ends by partition, `topicIds` distinguish a topic from a later one of the
same name, `oldestMs` is the strict window's start where there is one. A partition that appears
while a query runs is read from offset 0.

Source: Spark `KafkaMicroBatchStream`.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pipeline.errors import BadOptions, DataLoss, JournalConflict
from pipeline.net.cluster import LATEST, Cluster, describe_partitions
from pipeline.options.narrowing import NO_LOWER_TIME, NO_UPPER_TIME
from pipeline.options.options import SourceOptions, TopicPartition, time_of
from pipeline.plan.archived import Archive, FilePart
from pipeline.plan.journal import Journal
from pipeline.plan.objects import ObjectPart, object_tasks
from pipeline.plan.offsets import open_bucket, plan_tasks, resolve_starts
from pipeline.plan.splits import OffsetRange
from pipeline.plan.union import at_one_moment, divide, file_tasks, open_archive
from pipeline.spark.task import Columns, Task, read_task, tasks_of

if TYPE_CHECKING:
    from pipeline.plan.bucket import Bucket

_INITIAL: Final = "initial-offset"
_RETRIES: Final = 3
_RETRY_S: Final = 1.0
_ESTIMATE_ABOVE: Final = 100_000
"""For batches of fewer offsets a request to brokers for sizes does not pay."""

CURE: Final = (
    "Set failOnDataLoss=false to continue with what is there, or start again with a new checkpoint "
    "and journalDir"
)

Offset = dict[str, Any]


class StreamReader(DataSourceStreamReader):
    """Plans in a process that lives as long as the query, reads in the tasks."""

    def __init__(self, options: SourceOptions, columns: Columns) -> None:
        """Keep the options.

        Raises:
            BadOptions: the start can move and there is no journal to remember it in.
        """
        if not options.journal_dir and not options.starting.is_fixed:
            raise BadOptions(
                "option journalDir is missing: a stream that starts at a place or time must "
                "remember where that was; give a directory of this query's own that stays "
                "over restarts, for example beside its checkpoint (or give startingOffsets "
                "as JSON with a number for every partition)"
            )
        self.options = options
        self._columns = columns
        self._cluster: Cluster | None = None
        self._archive: Archive | None = None
        self._bucket: Bucket | None = None

    def __getstate__(self) -> dict[str, Any]:
        """All state except the connections and what can be read again."""
        return {**self.__dict__, "_cluster": None, "_archive": None, "_bucket": None}

    # --- where it begins ---------------------------------------------------------------------

    def initialOffset(self) -> Offset:
        """Where the query begins; the same answer for ever once the journal has it."""
        options = self.options
        journal = Journal(options.journal_dir) if options.journal_dir else None
        identity = _identity(options)
        if journal is not None and (known := journal.find(_INITIAL)) is not None:
            return self._checked(known, identity)
        now_ms = time.time_ns() // 1_000_000
        cluster = self.connected()
        partitions = cluster.partitions(options.choice)
        archive = self._opened({topic for topic, _ in partitions})
        look = functools.partial(resolve_starts, cluster, options, partitions, now_ms, archive)
        fails = options.fail_on_data_loss
        starts = at_one_moment(cluster, archive, partitions, look, fail_on_data_loss=fails)
        oldest = None
        if options.strict_window and options.starting.timestamp_text:
            oldest = time_of(options.starting.timestamp_text, now_ms)
        offset = self.offset(starts, oldest)
        if journal is None:
            return offset
        return self._checked(journal.put(_INITIAL, {"query": identity, "offset": offset}), identity)

    def _checked(self, known: Any, identity: Mapping[str, Any]) -> Offset:
        if not isinstance(known, dict) or known.get("query") != identity:
            raise JournalConflict(
                f"option journalDir={self.options.journal_dir!r} belongs to a query with other "
                "topics or another start: give every query its own, or remove the directory "
                "together with the checkpoint to start from the beginning"
            )
        offset: Offset = known["offset"]
        return offset

    # --- how far it can go -------------------------------------------------------------------

    def available(
        self, start: Offset, target: Mapping[TopicPartition, int] | None = None
    ) -> dict[TopicPartition, int]:
        """The current ends, checked against the known ones; a loss is checked a second time.

        Raises:
            DataLoss: offsets went back, partitions vanished or a topic was deleted and created
                again, and `failOnDataLoss` is on.
        """
        known = {**parse_offset(start), **(target or {})}
        for attempt in range(_RETRIES + 1):
            ends = self.ends()
            complaint = self.loss(known, ends, start)
            if complaint is None or attempt == _RETRIES or not self.options.fail_on_data_loss:
                break
            time.sleep(_RETRY_S)
        if complaint is not None and self.options.fail_on_data_loss:
            raise DataLoss(f"{complaint}. {CURE}")
        return ends

    def loss(
        self,
        known: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        start: Offset,
    ) -> str | None:
        """What was lost between `known` and `ends` of the topics of `start`, if anything."""
        if gone := set(known) - set(ends):
            return f"{describe_partitions(gone)} no longer exists"
        for topic, topic_id in start.get("topicIds", {}).items():
            if self._has_other_id(topic, topic_id):
                return _made_again_sentence(topic)
        lower = [tp for tp, offset in known.items() if ends[tp] < offset]
        if lower:
            topic, index = lower[0]
            return (
                f"the end of {topic}-{index} was changed from {known[lower[0]]} to {ends[lower[0]]}"
            )
        return None

    # --- what it reads -----------------------------------------------------------------------

    def _made_again(self, ids: Mapping[str, str]) -> set[str]:
        """The topics that have other ids now: the records of the batch are gone.

        The cluster is asked: what it said when the end was planned can be older than the topic.

        Raises:
            DataLoss: there is one, and `failOnDataLoss` is on.
        """
        self.connected().topics(topic for topic, known in ids.items() if known)
        made = {topic for topic, known in ids.items() if self._has_other_id(topic, known)}
        if made and self.options.fail_on_data_loss:
            raise DataLoss(f"{_made_again_sentence(min(made))}. {CURE}")
        return made

    def _has_other_id(self, topic: str, known: str) -> bool:
        now = self.connected().topic_id(topic)
        return bool(now and known and now != known)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The tasks between two offsets: a function of them and the options, the rows at least."""
        starts, ends = parse_offset(start), parse_offset(end)
        old_ids, new_ids = start.get("topicIds", {}), end.get("topicIds", {})
        ranges = []
        gone = self._made_again(new_ids)
        for (topic, index), stop in sorted(ends.items()):
            if topic in gone:
                continue
            begin = starts.get((topic, index), 0)
            if old_ids.get(topic, new_ids.get(topic)) != new_ids.get(topic):
                begin = 0
            if stop > begin:
                ranges.append(OffsetRange(topic, index, begin, stop))
        oldest = start.get("oldestMs")
        window = NO_LOWER_TIME if oldest is None else oldest
        options = self.options
        files: list[tuple[FilePart, ...]] = []
        if (archive := self._opened({topic for topic, _ in ends})) is not None:
            inside, ranges = divide(
                self.connected(), archive, ranges, fail_on_data_loss=options.fail_on_data_loss
            )
            files = file_tasks(options, archive, inside, window, NO_UPPER_TIME)
        objects: list[tuple[ObjectPart, ...]] = []
        if (bucket := self._looked_into()) is not None:
            parts, ranges = bucket.divide(self.connected(), options, ranges)
            objects = object_tasks(options, parts)
        tasks: list[tuple[OffsetRange, ...]] = [(one,) for one in ranges]
        large = sum(one.size for one in ranges) > _ESTIMATE_ABOVE
        if large or options.min_partitions or options.max_records_per_partition:
            tasks = plan_tasks(self.connected(), options, ranges)
        return tasks_of(files, tasks, window, NO_UPPER_TIME, objects)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        if isinstance(partition, Task):
            yield from read_task(self.options, self._columns, partition)

    def commit(self, end: Offset) -> None:
        """Does nothing: Spark calls it one batch late, so it commits no offsets to a group."""

    def stop(self) -> None:
        """Close the connections; Spark calls it after errors only."""
        if self._cluster is not None:
            self._cluster.close()

    # --- the cluster -------------------------------------------------------------------------

    def connected(self) -> Cluster:
        """The connection, made at its first use."""
        if self._cluster is None:
            self._cluster = Cluster(self.options.connection)
        return self._cluster

    def _opened(self, topics: Iterable[str]) -> Archive | None:
        """The archive of the options with its newest commits, checked; None without one."""
        if self._archive is None:
            self._archive = open_archive(self.connected(), self.options, topics)
        else:
            self._archive.refresh()
            committed = self.options.read_committed
            self._archive.check(self.connected(), topics, read_committed=committed)
        return self._archive

    def _looked_into(self) -> Bucket | None:
        """The bucket of the options with what came since; None without one."""
        if self._bucket is None:
            self._bucket = open_bucket(self.connected(), self.options)
        else:
            self._bucket.refresh()
        return self._bucket

    def ends(self) -> dict[TopicPartition, int]:
        """The current ends of all partitions; none for deleted topics."""
        cluster, choice = self.connected(), self.options.choice
        if self.options.fail_on_data_loss or choice.pattern:
            partitions = cluster.partitions(choice)
        else:
            # Topic by topic: a deleted one must not fail the others.
            there = cluster.topics(choice.names or sorted({topic for topic, _ in choice.assigned}))
            all_ = sorted(
                (name, index) for name, info in there.items() for index in info.partitions
            )
            partitions = [tp for tp in all_ if not choice.assigned or tp in choice.assigned]
        found = cluster.list_offsets(
            dict.fromkeys(partitions, LATEST), read_committed=self.options.read_committed
        )
        return {tp: answer.offset for tp, answer in found.items()}

    def offset(
        self,
        ends: Mapping[TopicPartition, int],
        oldest_ms: int | None,
        known_ids: Mapping[str, str] | None = None,
    ) -> Offset:
        """`ends` as Spark keeps them, with the topics' ids."""
        topics: dict[str, dict[str, int]] = {}
        for (topic, index), end in sorted(ends.items()):
            topics.setdefault(topic, {})[str(index)] = end
        offset: Offset = {
            "offsets": topics,
            "topicIds": {
                topic: self.connected().topic_id(topic) or (known_ids or {}).get(topic, "")
                for topic in topics
            },
        }
        return offset if oldest_ms is None else {**offset, "oldestMs": oldest_ms}


def _made_again_sentence(topic: str) -> str:
    return f"topic {topic} was deleted and created again: its old records are gone"


def parse_offset(offset: Offset) -> dict[TopicPartition, int]:
    """The ends in an offset; also understands the plain form of Spark's Kafka source."""
    topics = offset.get("offsets", offset)
    return {
        (topic, int(index)): end
        for topic, partitions in topics.items()
        for index, end in partitions.items()
    }


def _identity(options: SourceOptions) -> dict[str, Any]:
    """The properties that tie a query to its journal."""
    choice, starting = options.choice, options.starting
    return {
        "topics": sorted(choice.names),
        "pattern": choice.pattern,
        "assigned": sorted(f"{topic}-{index}" for topic, index in choice.assigned),
        "start": starting.place or starting.timestamp_text,
        "offsets": {f"{t}-{i}": offset for (t, i), offset in sorted(starting.offsets.items())},
        "timestamps": {f"{t}-{i}": ms for (t, i), ms in sorted(starting.timestamps.items())},
    }

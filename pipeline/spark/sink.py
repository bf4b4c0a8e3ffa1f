"""Spark's side of writing: rows become records with their own time, key, headers and partition.

Columns, by name: `value` (required), `key`, `topic` (or the option), `partition`, `timestamp`,
`headers`; more columns are refused, so that a typing error loses no data. A null timestamp means
now, a null partition lets the key choose.

At least once, the default: every task sends its rows idempotently; a task or batch that Spark
repeats is written again.

Exactly once: every target partition of a batch is one transaction under the name
`PREFIX-TOPIC-PARTITION`, which also commits a mark "batch B is written" in the group of that name.
A repeated task first takes the name over, which aborts its predecessor's open transaction. Then it
reads the mark: if the batch is written, it writes nothing. All rows of a target partition must be
in one task, whichever: the column `partition` and `by_partition` ensure that. So a batch may be
repeated with another number of tasks. The mark carries names against misuse, the number of rows
and the sum of their digests. The rows that a repeated task leaves out are compared with these;
different rows are an error, not silently dropped (`verifyRepeats`).

| name  | would otherwise happen                                                                 |
|-------|----------------------------------------------------------------------------------------|
| query | a new checkpoint counts its batches from 0, and all would be taken for written         |
| run   | two tasks with rows of one partition: the second would take its rows for written       |
| task  | likewise; a repeated task has the same number                                          |
| rows  | likewise, when the batch is repeated in another run: half of its rows would be lost    |

Outside streams the batch number is 0 and the query is the prefix: a prefix names one write, and
repeating it adds nothing.

Source: KIP-98; Spark `KafkaWriter` (columns).
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pipeline.errors import BadOptions, Fenced, JournalConflict
from pipeline.net.cluster import Cluster
from pipeline.net.producing import MARK_PREFIX, Mark, TaskProducer
from pipeline.options.options import SinkOptions
from pipeline.records.encode import Rows, digest_rows, groups

_COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "value": ("binary", "string"),
    "key": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
    "headers": ("array<struct<key:string,value:binary>>",),
}
_UNUSED: Final = ("offset", "timestampType")
"""Columns of the source that have no place in a record; they may stay in a copied row."""


@dataclass
class Written(WriterCommitMessage):
    """A task's report: records sent, and records left out because their batch was written."""

    records: int
    repeated: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Which batch of which query a task writes; `run` is one attempt of Spark at it."""

    query: str
    number: int
    run: str
    task: int


@dataclass(slots=True)
class Tally:
    """How many rows, and the sum of their digests modulo 2^64, in whatever order they come.

    `written` are these two numbers for the transaction of a mark. Times are not counted: a null one
    becomes the moment of writing. `partitions` is how many the topic has, `was` how many it had
    when the mark was written.
    """

    rows: int = 0
    digest: int = 0
    written: tuple[int, int] | None = None
    partitions: int = 0
    was: int = 0

    def count(self, rows: int, digest: int) -> None:
        """Count `rows` more rows, whose digests of key and value have this sum."""
        self.rows += rows
        self.digest = (self.digest + digest) % (1 << 64)

    @property
    def is_as_written(self) -> bool:
        """Whether these rows are those of the mark."""
        return self.written == (self.rows, self.digest)


class TopicWriter:
    """The common part of the batch writer and the stream writer (`stream_sink`)."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        """Check the columns; no request is sent yet.

        Raises:
            BadOptions: a column is missing, unknown or of another type.
        """
        check_columns(options, schema)
        self._options = options
        # Made where Spark plans and pickled into all tasks of the attempt.
        self._run = uuid.uuid4().hex

    def write_rows(self, rows: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of this task."""
        options = self._options
        with Cluster(options.connection) as cluster:
            if options.delivery == "exactly-once":
                current = current_batch(options.transactional_id_prefix, self._run)
                return _write_once(cluster, options, current, rows)
            producer = TaskProducer(cluster, options)
            for batch in rows:
                producer.add_batch(options.topic, batch)
            producer.retire()
            return Written(producer.records_count)


class BatchWriter(TopicWriter, DataSourceArrowWriter):
    """Writes the rows of a batch query."""

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        """Refuse a mode that a log cannot support.

        Raises:
            BadOptions: the mode is overwrite, or as `TopicWriter`.
        """
        if overwrite:
            raise BadOptions("mode overwrite: a topic can only be appended to; use mode append")
        super().__init__(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        return self.write_rows(iterator)


def check_columns(options: SinkOptions, schema: StructType) -> None:
    """Refuse columns that cannot become a record.

    Raises:
        BadOptions: with every problem.
    """
    problems = []
    for field in schema.fields:
        allowed = _COLUMNS.get(field.name)
        found = field.dataType.simpleString()
        if field.name in _UNUSED:
            continue
        if allowed is None:
            problems.append(
                f"column {field.name!r} has no place in a record: select or rename it to one of "
                f"{', '.join(_COLUMNS)}"
            )
        elif found not in allowed:
            problems.append(f"column {field.name} is {found}: cast it to {' or '.join(allowed)}")
    if "value" not in schema.names:
        problems.append("column value is missing: for example select to_json(struct(*)) as value")
    if not options.topic and "topic" not in schema.names:
        problems.append("option topic is missing: set it, or give a column named topic")
    if not options.topic and options.delivery == "exactly-once":
        problems.append("option topic is missing: exactly-once keeps its marks beside one topic")
    if options.delivery == "exactly-once" and "partition" not in schema.names:
        problems.append(
            "column partition is missing: exactly-once needs all rows of a target partition in one "
            "task; use tidelog.spark.by_partition(df, bootstrap, topic)"
        )
    if problems:
        raise BadOptions(*problems)


def current_batch(prefix: str, run: str) -> Batch:
    """Spark's identity of the running task; batch 0 of the query `prefix` outside streams."""
    context = TaskContext.get()
    assert context is not None, "writers run inside Spark tasks"
    number = context.getLocalProperty("streaming.sql.batchId")
    query = context.getLocalProperty("sql.streaming.queryId")
    return Batch(
        query=query or prefix, number=int(number or 0), run=run, task=context.partitionId()
    )


def _write_once(
    cluster: Cluster, options: SinkOptions, batch: Batch, rows: Iterator[pa.RecordBatch]
) -> Written:
    """One transaction for each target partition, unless its mark shows that it is written."""
    producers: dict[int, TaskProducer | None] = {}
    tallies: dict[int, Tally] = {}
    try:
        for part in rows:
            columns = Rows(part, time.time_ns() // 1_000_000)
            for partition, numbers in groups(part.column("partition")):
                if partition is None:
                    raise BadOptions(
                        "column partition is null: exactly-once needs it in every row "
                        "(by_partition)"
                    )
                if partition not in producers:
                    producers[partition], tallies[partition] = _open(
                        cluster, options, batch, partition
                    )
                producer, tally = producers[partition], tallies[partition]
                if producer is None:
                    tally.count(len(numbers), digest_rows(columns, numbers))
                else:
                    digest = producer.add_rows(
                        options.topic, partition, columns, numbers, digests=True
                    )
                    tally.count(len(numbers), digest)
        _commit(options, batch, producers, tallies)
    except BaseException:
        for producer in producers.values():
            if producer is not None:
                producer.abort()
        raise
    repeated = sum(tallies[one].rows for one in tallies if producers[one] is None)
    return Written(sum(one.records_count for one in producers.values() if one), repeated)


def _commit(
    options: SinkOptions,
    batch: Batch,
    producers: Mapping[int, TaskProducer | None],
    tallies: Mapping[int, Tally],
) -> None:
    """Compare the rows left out with their mark, then commit the written ones."""
    for partition, tally in tallies.items():
        if producers[partition] is None and options.verify_repeats and not tally.is_as_written:
            raise JournalConflict(_explain_difference(options, batch, partition, tally))
    for partition, producer in producers.items():
        if producer is not None:
            producer.commit(_mark(options, batch, partition, tallies[partition]))


def _explain_difference(options: SinkOptions, batch: Batch, partition: int, tally: Tally) -> str:
    written = tally.written or (0, 0)
    if tally.was != tally.partitions:
        return (
            f"batch {batch.number} of {options.transactional_id_prefix} wrote {written[0]} rows to "
            f"{options.topic}-{partition}, and repeats with {tally.rows} that are not the same: "
            f"topic {options.topic} had {tally.was} partitions then and has {tally.partitions} "
            f"now, so keys fall elsewhere. Repeat the batch with by_partition(..., "
            f"partitions={tally.was}); once it is done, later ones may use all partitions"
        )
    return (
        f"batch {batch.number} of {options.transactional_id_prefix} wrote {written[0]} rows to "
        f"{options.topic}-{partition}, and repeats with {tally.rows} that are not the same: its "
        "rows came from several tasks (use by_partition from the first batch on), or the query "
        "gives other rows each time. The batch cannot be completed exactly once: choose a new "
        "prefix and checkpoint, or accept what is written with verifyRepeats=false"
    )


def _open(
    cluster: Cluster, options: SinkOptions, batch: Batch, partition: int
) -> tuple[TaskProducer | None, Tally]:
    """A producer for `partition` that has fenced all others, None if the batch is written.

    The tally holds the numbers of the earlier write.

    Raises:
        JournalConflict: the mark is of another query, or of another task of this attempt.
        Fenced: a later batch is written already.
    """
    name = _name(options, partition)
    cluster.check_partition(options.topic, partition)
    partitions = cluster.count_partitions(options.topic)
    producer = TaskProducer(cluster, options, transactional_id=name)
    found = cluster.committed(name, [(options.topic, 0)]).get((options.topic, 0))
    if found is None:
        return producer, Tally(partitions=partitions)
    prefix = options.transactional_id_prefix
    if not found.metadata.startswith(MARK_PREFIX):
        raise JournalConflict(
            f"option transactionalIdPrefix={prefix!r}: the group {name} belongs to a consumer; "
            "choose another prefix"
        )
    mark = json.loads(found.metadata.removeprefix(MARK_PREFIX))
    if mark["query"] != batch.query:
        raise JournalConflict(
            f"option transactionalIdPrefix={prefix!r} was used by another query "
            f"({mark['query']}, {found.offset} batches); this one counts its batches from 0, so "
            "they would be taken for written. Choose another prefix for a new checkpoint"
        )
    written = batch.number + 1
    if found.offset < written:
        return producer, Tally(partitions=partitions)
    if found.offset > written:
        raise Fenced(f"batch {batch.number} of {prefix} is past: {found.offset} are written")
    if mark["run"] == batch.run and mark["task"] != batch.task:
        raise JournalConflict(
            f"rows of {options.topic}-{partition} come from tasks {mark['task']} and {batch.task} "
            "of one batch: bring them together with by_partition, or repartition('partition')"
        )
    # Looked up now: partitions may have been added since the last look-up of the topic.
    cluster.topics([options.topic])
    partitions = cluster.count_partitions(options.topic)
    was = mark.get("partitions", partitions)
    return None, Tally(
        written=(mark["rows"], mark.get("digest", 0)), partitions=partitions, was=was
    )


def _name(options: SinkOptions, partition: int) -> str:
    return f"{options.transactional_id_prefix}-{options.topic}-{partition}"


def _mark(options: SinkOptions, batch: Batch, partition: int, tally: Tally) -> Mark:
    names = {"query": batch.query, "run": batch.run, "task": batch.task}
    text = MARK_PREFIX + json.dumps(
        {**names, "rows": tally.rows, "digest": tally.digest, "partitions": tally.partitions}
    )
    name = _name(options, partition)
    return Mark(group=name, topic=options.topic, offset=batch.number + 1, metadata=text)

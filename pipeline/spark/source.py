"""Spark's side of reading: `format("tidelog")` in batch and in micro-batches.

Owns the classes that Spark instantiates, in the driver, in its planner process and in every task.
They are pickled between these, so constructors are cheap and hold options only; connections last
for one call. `offsets` decides what to read, and `reading` reads it.

Relative times and "latest" are resolved when the first query on a frame runs, not when it is
written. Spark 4.3 then keeps the partitions with the frame: a second query on the same frame reads
the same offsets. Kafka's source plans each time; create the frame again for that. An empty plan
still becomes one task: Spark calls `read` even for no partition.

Filters that Spark offers are not used, whatever `spark.sql.python.filterPushdown.enabled` says. The
plan that is kept with the frame would be narrowed by the filters of its first query, and a later
query on the frame would get fewer rows than there are. What spares reading is in the options, which
a frame has from its beginning; `spark.conditions` writes them from a condition.

Source: Spark 4.3 Python Data Source API; `KafkaRelation`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pipeline.errors import BadOptions
from pipeline.net.cluster import Cluster
from pipeline.options.options import SourceOptions, parse_sink_options, parse_source_options
from pipeline.plan.offsets import plan_batch
from pipeline.records.batches import COLUMN_TYPES, HEADERS, never_null
from pipeline.spark.task import Columns, Task, read_task, tasks_of

FORMAT: Final = "tidelog"
_LIMITS_OF_SPARK: Final = "pyspark.sql.streaming.datasource"
"""The module with the limits of micro-batches, which Spark has since 4.2."""

_HEADER_TYPE: Final = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
SPARK_TYPES: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": _HEADER_TYPE,
}
"""Kafka's columns as Spark sees them; which are nullable, `schema_of` says."""


class TidelogSource(DataSource):
    """The data source `tidelog`; Spark makes one for each query."""

    @classmethod
    def name(cls) -> str:
        """The name for `format(...)`."""
        return FORMAT

    def schema(self) -> StructType:
        """Kafka's columns; those of the option `columns`, and `headers` on request."""
        options = dict(self.options)
        try:
            return schema_of(parse_source_options(options, is_stream=False))
        except BadOptions as batch_fault:
            # Spark does not say which of the two it needs; the readers know and check again.
            try:
                return schema_of(parse_source_options(options, is_stream=True))
            except BadOptions:
                raise batch_fault from None

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch reader of the columns of `schema`."""
        options = parse_source_options(dict(self.options), is_stream=False)
        return BatchReader(options, columns_of(schema, options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A micro-batch reader of the columns of `schema`."""
        options = parse_source_options(dict(self.options), is_stream=True)
        columns = columns_of(schema, options)
        if find_spec(_LIMITS_OF_SPARK) is None:
            from pipeline.spark.unlimited import UnlimitedReader

            return UnlimitedReader(options, columns)
        from pipeline.spark.micro_batches import MicroBatchReader

        return MicroBatchReader(options, columns)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch writer of rows of `schema`."""
        from pipeline.spark.sink import BatchWriter

        return BatchWriter(parse_sink_options(dict(self.options)), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """A writer of micro-batches of rows of `schema`."""
        from pipeline.spark.stream_sink import StreamWriter

        return StreamWriter(parse_sink_options(dict(self.options)), schema)


class BatchReader(DataSourceReader):
    """Plans in the driver's planner process, reads in the tasks.

    It takes no filters that Spark offers (`pushFilters` is that of the base class), see above.
    """

    def __init__(self, options: SourceOptions, columns: Columns) -> None:
        """Keep the options; no request is sent yet."""
        self._options = options
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks, planned now; Spark keeps them with the frame."""
        options = self._options
        with Cluster(options.connection) as cluster:
            plan = plan_batch(cluster, options, time.time_ns() // 1_000_000)
        return tasks_of(
            plan.files,
            plan.tasks,
            plan.oldest_ms,
            plan.newest_ms,
            plan.objects,
            plan.pruned.stops,
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        if isinstance(partition, Task):
            yield from read_task(self._options, self._columns, partition)


def schema_of(options: SourceOptions) -> StructType:
    """The schema when the user gives none: what is never null is declared so.

    Spark's code for a row then looks for no nulls in these columns.
    """
    names = options.columns or tuple(name for name in COLUMN_TYPES if name != HEADERS)
    if options.include_headers and HEADERS not in names:
        names = (*names, HEADERS)
    required = never_null(options.on_malformed)
    return StructType(
        [StructField(name, SPARK_TYPES[name], name not in required) for name in names]
    )


def columns_of(schema: StructType, options: SourceOptions) -> Columns:
    """The columns of a schema that may come from the user.

    Raises:
        BadOptions: a column is unknown, has another type, or may be null and is declared not to.
    """
    required = frozenset(field.name for field in schema.fields if not field.nullable)
    problems = [
        f"schema column {name} is null in some records: declare it nullable"
        for name in sorted(required & SPARK_TYPES.keys() - never_null(options.on_malformed))
    ]
    for field in schema.fields:
        expected: Any = SPARK_TYPES.get(field.name)
        if expected is None:
            problems.append(
                f"schema column {field.name!r} does not exist: there are {', '.join(SPARK_TYPES)}"
            )
        elif field.dataType.simpleString() != expected.simpleString():
            problems.append(
                f"schema column {field.name} is {field.dataType.simpleString()}: "
                f"declare it as {expected.simpleString()} and cast it in the query"
            )
    if problems:
        raise BadOptions(*problems)
    return Columns(tuple(schema.names), required)

"""A frame of the files of an archive, read by pyarrow in the tasks.

Spark's own Parquet reader needs JARs for an object store; this one reads what `plan.folders` opens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from pipeline.options.narrowing import NO_LOWER_TIME, NO_UPPER_TIME
from pipeline.plan.archived import pack_files
from pipeline.spark.source import SPARK_TYPES
from pipeline.spark.task import Columns, Task, read_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

    from pipeline.options.options import SourceOptions
    from pipeline.plan.archived import FilePart

_FORMAT: Final = "tidelog-files"


def frame_of_files(
    spark: SparkSession, options: SourceOptions, parts: Sequence[FilePart]
) -> DataFrame:
    """The records of `parts` in Kafka's columns, with headers; nothing is read yet."""
    packed = pack_files(parts, options.target_bytes_per_task)
    tasks = [Task((), NO_LOWER_TIME, NO_UPPER_TIME, one) for one in packed]
    spark.dataSource.register(_source_of(options, tasks))
    return spark.read.format(_FORMAT).load()


def _source_of(options: SourceOptions, tasks: list[Task]) -> type[Any]:
    """A source whose partitions are `tasks`; pickled with the values it closes over."""
    from pyspark.sql.datasource import DataSource, DataSourceReader
    from pyspark.sql.types import StructField, StructType

    columns = Columns(tuple(SPARK_TYPES))

    class FilesReader(DataSourceReader):
        """Reads the files of one task."""

        def partitions(self) -> Sequence[InputPartition]:
            """The tasks; one without files where there is none."""
            return tasks

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            """The records of one task."""
            if isinstance(partition, Task):
                yield from read_task(options, columns, partition)

    class FilesSource(DataSource):
        """The source that Spark makes a reader of."""

        @classmethod
        def name(cls) -> str:
            """The name for `format(...)`."""
            return _FORMAT

        def schema(self) -> StructType:
            """Kafka's columns."""
            return StructType([StructField(name, kind) for name, kind in SPARK_TYPES.items()])

        def reader(self, schema: StructType) -> DataSourceReader:
            """The reader of all tasks."""
            return FilesReader()

    return FilesSource

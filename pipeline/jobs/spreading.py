"""Runs a function in Spark's executors, once for each task: by a data source, not by an RDD.

`SparkContext.parallelize` would do the same and does not exist in sessions of Spark Connect. Here
every task is a partition of a private source whose reader does the work and yields its result; so
it needs neither a SparkContext nor pandas. Spark repeats a task that fails as it does any other.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import InputPartition

_T = TypeVar("_T")
_R = TypeVar("_R")
_FORMAT: Final = "tidelog-tasks"
_REGISTERING: Final = threading.Lock()


def run_tasks(spark: SparkSession, work: Callable[[_T], _R], tasks: Sequence[_T]) -> list[_R]:
    """The results of `work` for each of `tasks`, in their order; both must be picklable."""
    if not tasks:
        return []
    with _REGISTERING:
        spark.dataSource.register(_source_of(work, tuple(tasks)))
        # Spark takes the class here; the name is free for the next one then.
        frame = spark.read.format(_FORMAT).load()
    found = {row["task"]: bytes(row["result"]) for row in frame.collect()}
    return [pickle.loads(found[number]) for number in range(len(tasks))]


def _source_of(work: Callable[[Any], Any], tasks: tuple[Any, ...]) -> type[Any]:
    """A source whose partitions are `tasks`; pickled with the values it closes over."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    @dataclass
    class OneTask(InputPartition):
        """The number of a task."""

        number: int

    class TaskReader(DataSourceReader):
        """Does the work of one task where Spark wants it done."""

        def partitions(self) -> Sequence[InputPartition]:
            """One for each task."""
            return [OneTask(number) for number in range(len(tasks))]

        def read(self, partition: InputPartition) -> Iterator[tuple[int, bytes]]:
            """The result of one task, pickled."""
            assert isinstance(partition, OneTask)
            yield partition.number, pickle.dumps(work(tasks[partition.number]))

    class TaskSource(DataSource):
        """The source that Spark makes a reader of."""

        @classmethod
        def name(cls) -> str:
            """The name for `format(...)`."""
            return _FORMAT

        def schema(self) -> str:
            """A number and a result."""
            return "task int, result binary"

        def reader(self, schema: Any) -> DataSourceReader:
            """The reader of all tasks."""
            return TaskReader()

    return TaskSource

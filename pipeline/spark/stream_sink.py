"""Spark's side of writing micro-batches, which Spark hands over as Arrow.

Spark 4.1 has a class for that. Spark 4.0 has it for batches alone, and gives Arrow to each writer
of that class, those of streams too.

Source: Spark 4.1, `DataSourceStreamArrowWriter`; Spark 4.0, `write_into_data_source`.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)

from pipeline.spark.sink import TopicWriter


class _ArrowOfStreams(DataSourceStreamWriter, DataSourceArrowWriter):
    """What Spark 4.0 gives Arrow."""


_Base: Any = getattr(datasource, "DataSourceStreamArrowWriter", _ArrowOfStreams)


class StreamWriter(TopicWriter, _Base):
    """Writes the rows of micro-batches."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task of one micro-batch."""
        return self.write_rows(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing: every task has committed its own records."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing: a failed task has aborted its own records."""

"""Spark's side of writing micro-batches, which Spark hands over as Arrow since 4.1.

Source: Spark 4.1, `DataSourceStreamArrowWriter`.
"""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from pipeline.spark.sink import TopicWriter


class StreamWriter(TopicWriter, DataSourceStreamArrowWriter):
    """Writes the rows of micro-batches."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task of one micro-batch."""
        return self.write_rows(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing: every task has committed its own records."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing: a failed task has aborted its own records."""

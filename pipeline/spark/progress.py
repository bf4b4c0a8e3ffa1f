"""Figures of running streams: how far each source of ours is behind the end of its topics.

Spark asks Python sources for no figures of their own. It reports the offsets of each batch to
listeners, as this source has written them, and from these come the figures that Spark's Kafka
source gives, under the same names.

Source: Spark `StreamingQueryListener`; Kafka source, `KafkaMicroBatchStream.metrics`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQueryListener

_LOG = logging.getLogger("tidelog.spark")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamProgress:
    """One batch of one source.

    Attributes:
        query: the query's name, or its id where it has none.
        batch: the number of the batch.
        rows: how many rows it had.
        rows_per_second: of them, over the time that the batch took.
        behind: by `TOPIC-PARTITION`, the offsets from the end of the batch to that of the topic.
    """

    query: str
    batch: int
    rows: int
    rows_per_second: float
    behind: dict[str, int]

    @property
    def max_offsets_behind_latest(self) -> int:
        """Of the partition that is furthest behind; 0 without partitions."""
        return max(self.behind.values(), default=0)

    @property
    def min_offsets_behind_latest(self) -> int:
        """Of the partition that is least behind; 0 without partitions."""
        return min(self.behind.values(), default=0)

    @property
    def avg_offsets_behind_latest(self) -> float:
        """The mean of the partitions; 0 without partitions."""
        return sum(self.behind.values()) / max(len(self.behind), 1)

    def __str__(self) -> str:
        """One line for a log."""
        return (
            f"query {self.query} batch {self.batch}: {self.rows:,} rows, "
            f"{self.rows_per_second:,.0f}/s, {sum(self.behind.values()):,} offsets behind, "
            f"{self.max_offsets_behind_latest:,} of them in one partition"
        )


def watch(
    session: SparkSession, report: Callable[[StreamProgress], object] | None = None
) -> StreamingQueryListener:
    """Have `report` called after each batch of a stream that reads `format("tidelog")`.

    Without `report` each batch is a line of the logger `tidelog.spark`. The listener that is
    returned is for `session.streams.removeListener`.
    """
    listener = _listener_of(report or _log)
    session.streams.addListener(listener)
    return listener


def _log(progress: StreamProgress) -> None:
    _LOG.info("%s", progress)


def _listener_of(report: Callable[[StreamProgress], object]) -> StreamingQueryListener:
    """Hands the progress of our sources on, and nothing else."""
    from pyspark.sql.streaming import StreamingQueryListener

    class Listener(StreamingQueryListener):
        """What Spark calls."""

        def onQueryStarted(self, event: Any) -> None:
            """Nothing."""

        def onQueryIdle(self, event: Any) -> None:
            """Nothing."""

        def onQueryTerminated(self, event: Any) -> None:
            """Nothing."""

        def onQueryProgress(self, event: Any) -> None:
            """Report the batch of each source of ours."""
            for one in progress_of(event.progress):
                report(one)

    return Listener()


def progress_of(progress: Any) -> list[StreamProgress]:
    """The figures in Spark's `StreamingQueryProgress`, one for each source of ours."""
    found = []
    for source in progress.sources:
        behind = offsets_behind(source.endOffset, source.latestOffset)
        if behind is not None:
            found.append(
                StreamProgress(
                    query=progress.name or str(progress.id),
                    batch=progress.batchId,
                    rows=source.numInputRows,
                    rows_per_second=source.processedRowsPerSecond,
                    behind=behind,
                )
            )
    return found


def offsets_behind(end: str | None, latest: str | None) -> dict[str, int] | None:
    """By `TOPIC-PARTITION`, the offsets from `end` to `latest`; None for another kind of source.

    Both are what a source has written as JSON. Without `latest` nothing is known to be behind.
    """
    from pipeline.spark.stream import parse_offset

    try:
        ended, reached = json.loads(end or "null"), json.loads(latest or "null")
    except ValueError:
        return None
    if not isinstance(ended, dict) or "topicIds" not in ended:
        return None
    ends = parse_offset(ended)
    newest = parse_offset(reached) if isinstance(reached, dict) else {}
    places = ends.keys() | newest.keys()
    return {
        f"{topic}-{index}": max(newest.get((topic, index), 0) - ends.get((topic, index), 0), 0)
        for topic, index in sorted(places)
    }

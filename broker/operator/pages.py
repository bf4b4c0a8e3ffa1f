"""The pages of the metrics port that answer with JSON, each loaded when it is first asked for.

Together they are as much code as a tenth of a start, and most brokers are never asked.
`load_port` loads all of them in a thread for the first connection, so that the loop does not wait.

With several workers each answers for the partitions that it keeps, and
`broker.operator.worker_queries` joins the parts; only /explain is the leader's alone.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from broker.operator.exporter import load

if TYPE_CHECKING:
    from broker.metrics import ClientTimes
    from broker.operator.http import Answered, Query
    from broker.operator.port_access import Viewer
    from broker.operator.queries import TopicQuery
    from broker.operator.worker_queries import Linked
    from broker.remote.reads import RemoteReads
    from broker.space import SpaceGuard
    from broker.threads import Pool
    from broker.topics.registry import TopicRegistry


class _Page:
    """A query that is made when it is first called."""

    __slots__ = ("_make", "_query")

    def __init__(self, make: "Callable[[], Query]") -> None:
        self._make = make
        self._query: Query | None = None

    def __call__(self, query: str, viewer: "Viewer") -> "Answered":
        if self._query is None:
            self._query = self._make()
        return self._query(query, viewer)


def pages(
    topics: "TopicRegistry",
    space: "SpaceGuard",
    remote: "RemoteReads | None",
    client_times: "ClientTimes",
    threads: "Pool",
    now_ms: Callable[[], int],
    *,
    worker: "Linked | None" = None,
    workers: int = 1,
) -> "dict[str, Query]":
    """The pages by path; `now_ms` is the time by which retention deletes.

    With `worker`, one of `workers`, they answer for the partitions of all workers.
    """

    def explain() -> "Query":
        from broker.operator.explain import explain

        return partial(explain, topics, remote)

    def segments() -> "TopicQuery":
        from broker.operator.segments import SegmentList

        return SegmentList(topics, threads, now_ms)

    def skew() -> "TopicQuery":
        from broker.operator.skew import SkewAudit

        return SkewAudit(topics, client_times, threads)

    def histogram() -> "TopicQuery":
        from broker.operator.histogram import HistogramAnswers

        return HistogramAnswers(topics, threads)

    def retention() -> "TopicQuery":
        from broker.operator.retention import RetentionForecast

        return RetentionForecast(topics, space, threads, now_ms)

    def alone(make: "Callable[[], TopicQuery]") -> "Query":
        from broker.operator.queries import answer_alone

        return partial(answer_alone, make())

    makers = {f"/{make.__name__}": make for make in (segments, skew, histogram, retention)}
    found: dict[str, Query] = {"/explain": _Page(explain)}
    if worker is None:
        return found | {path: _Page(partial(alone, make)) for path, make in makers.items()}
    from broker.operator.worker_queries import WorkerQueries

    parts = {path: make() for path, make in makers.items()}
    worker.queries = WorkerQueries(worker.number, workers, topics, parts, worker.call)
    return found | {path: partial(worker.queries.answer, path) for path in makers}


def load_port() -> None:
    """Load the code of the metrics port and of all pages; may run in any thread."""
    load()
    from broker.operator import (  # noqa: F401
        explain,
        histogram,
        http_connection,
        retention,
        segments,
        skew,
    )

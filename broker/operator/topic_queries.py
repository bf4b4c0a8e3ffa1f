"""The questions about topics that the metrics port answers, by path.

With several workers each answers for what it keeps; `broker.operator.worker_queries` joins the
parts.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from broker.operator.histogram import HistogramAnswers
from broker.operator.http import Query
from broker.operator.queries import TopicQuery, answer_alone
from broker.operator.retention import RetentionForecast
from broker.operator.segments import SegmentList
from broker.operator.skew import SkewAudit

if TYPE_CHECKING:
    from broker.operator.worker_queries import Linked
    from broker.space import SpaceGuard
    from broker.threads import Pool
    from broker.topics.registry import TopicRegistry


def topic_queries(
    topics: "TopicRegistry",
    space: "SpaceGuard",
    threads: "Pool",
    now_ms: Callable[[], int],
    *,
    worker: "Linked | None",
    workers: int,
) -> dict[str, Query]:
    """The answers by path; with `worker`, one of `workers`, they are those of all workers."""
    found: dict[str, TopicQuery] = {
        "/segments": SegmentList(topics, threads, now_ms),
        "/skew": SkewAudit(topics, threads),
        "/histogram": HistogramAnswers(topics, threads),
        "/retention": RetentionForecast(topics, space, threads, now_ms),
    }
    if worker is None:
        return {path: partial(answer_alone, one) for path, one in found.items()}
    from broker.operator.worker_queries import WorkerQueries

    worker.queries = WorkerQueries(worker.number, workers, topics, found, worker.call)
    return {path: partial(worker.queries.answer, path) for path in found}

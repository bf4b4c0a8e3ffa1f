"""The audit of a topic's times, as JSON on the operators' port: disorder, producers that are off.

    GET /skew?topic=flights
    GET /skew?topic=flights&partition=0&bytes=67108864

It reads the newest records of each partition, 8 MiB of them in all unless `bytes` says otherwise
and 64 MiB at most, in steps of 256 KiB. A step reads in the loop and counts in a thread. One audit
runs at a time: another one is refused meanwhile, so that clients who may only describe a topic
cannot keep the processor or the thread busy.

    {"topic": "flights", "bytes_max": 8388608, "unanswered": [], "partitions": [
        {"partition": 0, "from_offset": 120, "to_offset": 9000, "records": 8880, "stamped": 0,
         "out_of_order": 31, "largest_step_back_ms": 5400000, "late_p50_ms": 0,
         "late_p99_ms": 60000, "producers": [
            {"producer_id": 4001, "records": 8000, "without_time": 0, "out_of_order": 0,
             "ahead_ms": 7200000, "ahead": {"offset": 200, "timestamp_ms": 1767232800000},
             "behind_ms": 0, "behind": null}, ...]}],
     "clients": [
        {"client_id": "billing", "ahead": 40, "behind": 0, "without_time": 0, "refused": 0,
         "ahead_ms": 7200000,
         "most_ahead": {"partition": 0, "offset": 200, "timestamp_ms": 1767232800000},
         "behind_ms": 0, "most_behind": null,
         "first": {"partition": 0, "offset": 160, "timestamp_ms": 1767232700000},
         "first_ms": 1767225500000, "last_ms": 1767225600000}, ...]}

Of a record's append only the segment's is known, so a record is *at least* `ahead_ms` newer than
its append, or `behind_ms` older: `storage.audit.record_times`. `late_p99_ms` is a bound of the
histogram in `protocol.records.lateness`, -1 beyond the last. `stamped` records have the broker's
time. `producer_id` -1 is every producer that is not idempotent. `unanswered` is as in /segments.

`clients` are the clients whose batches were off when they were appended, or were refused for their
times, since the broker's start and for all partitions: exact, by `broker.metrics`. The
one that was off last is the first.

Read next: `cli.time.skew` (its table), `pipeline.jobs.skew` (the same for whole topics, on Spark).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.metrics import ClientTimes, Place
from broker.operator import queries
from broker.operator.queries import Asked, Document, TopicQuery
from protocol.records.lateness import quantile
from storage.audit.record_times import RecordTimes
from storage.log.values import Isolation

if TYPE_CHECKING:
    from broker.threads import Pool
    from broker.topics.registry import TopicRegistry
    from storage.log.log import Log

BYTES: Final = 8 * 1024 * 1024
BYTES_MAX: Final = 64 * 1024 * 1024

_READ_BYTES: Final = 256 * 1024
_PARAMETERS: Final = ("topic", "partition", "bytes")
_PLACES: Final = ("most_ahead", "most_behind", "first")


class SkewAudit(TopicQuery):
    """Answers to /skew. Loop thread only; records are counted in `threads`."""

    parameters = _PARAMETERS

    def __init__(self, topics: "TopicRegistry", client_times: ClientTimes, threads: "Pool") -> None:
        """Audit the logs of `topics`; `client_times` was counted when they were appended."""
        self._topics = topics
        self._client_times = client_times
        self._threads = threads
        self._is_busy = False

    async def part(self, asked: Asked) -> Document:
        """As in `TopicQuery`. Raises Busy while another audit runs."""
        partition = queries.number(asked, "partition", queries.PARTITION_MAX)
        size_bytes = _size_bytes(asked)
        logs = self._topics.kept_logs(asked["topic"], partition)
        if self._is_busy:
            raise queries.Busy(
                "another audit is running, and there is one at a time; ask again later"
            )
        self._is_busy = True
        if partition is None:
            topic = self._topics.find(asked["topic"])
            assert topic is not None, asked["topic"]
            size_bytes //= len(topic.partitions)
        try:
            partitions = [await self._audit(log, size_bytes) for log in logs]
            return {"partitions": partitions, "clients": list(self._clients(asked["topic"]))}
        finally:
            self._is_busy = False

    def whole(
        self, asked: Asked, parts: Sequence[Document], unanswered: Sequence[Document]
    ) -> Document:
        """As in `TopicQuery`."""
        return {
            "topic": asked["topic"],
            "bytes_max": _size_bytes(asked),
            "unanswered": unanswered,
            "partitions": queries.by_partition(parts),
            "clients": _joined(one for part in parts for one in part["clients"]),
        }

    def _clients(self, topic: str) -> Iterator[Document]:
        for client_id, row in self._client_times.of_topic(topic):
            yield {
                "client_id": client_id,
                **asdict(row),
                **{name: _place(getattr(row, name)) for name in _PLACES},
            }

    async def _audit(self, log: "Log", size_bytes: int) -> Document:
        """Count the newest `size_bytes` of a log, as near as its average record allows."""
        segments = list(log.segments)
        times = RecordTimes([(one.base_offset, one.appended_ms) for one in segments])
        # What is in an object store is not read for this.
        start = max(log.log_start_offset, log.segments.first_local.base_offset)
        end, total_bytes = log.high_watermark, log.size_bytes
        if total_bytes > size_bytes:
            start = max(start, end - (end - start) * size_bytes // total_bytes)
        offset = start
        while offset < end:
            # Retention may have passed by meanwhile.
            offset = max(offset, log.log_start_offset)
            found = log.read(offset, max_bytes=_READ_BYTES, isolation=Isolation.READ_UNCOMMITTED)
            if found.next_offset <= offset:
                break
            await self._threads.run(partial(times.add, found.records))
            offset = found.next_offset
        return _partition(log.partition, start, offset, times)


def _joined(clients: Iterable[Document]) -> list[Document]:
    """The counts of all workers, one document for a client; the one that was off last is first."""
    found: dict[str, Document] = {}
    for one in clients:
        known = found.setdefault(one["client_id"], one)
        if known is one:
            continue
        for name in ("ahead", "behind", "without_time", "refused"):
            known[name] += one[name]
        for side in ("ahead", "behind"):
            if one[f"{side}_ms"] > known[f"{side}_ms"]:
                known[f"{side}_ms"], known[f"most_{side}"] = one[f"{side}_ms"], one[f"most_{side}"]
        if one["first"] and (known["first"] is None or one["first_ms"] < known["first_ms"]):
            known["first"] = one["first"]
        known["first_ms"] = min(known["first_ms"], one["first_ms"])
        known["last_ms"] = max(known["last_ms"], one["last_ms"])
    return sorted(found.values(), key=lambda one: -one["last_ms"])


def _size_bytes(asked: Asked) -> int:
    """How much to read. Raises BadQuery."""
    try:
        wanted_bytes = queries.number(asked, "bytes", BYTES_MAX)
    except queries.BadQuery as error:
        raise queries.BadQuery(f"{error}; 'tidelog spark skew' reads whole topics") from None
    return BYTES if wanted_bytes is None else wanted_bytes


def _partition(partition: int, start: int, end: int, times: RecordTimes) -> Document:
    lateness = times.lateness
    return {
        "partition": partition,
        "from_offset": start,
        "to_offset": end,
        "records": lateness.records,
        "stamped": times.stamped,
        "out_of_order": lateness.out_of_order,
        "largest_step_back_ms": lateness.largest_step_back_ms,
        "late_p50_ms": quantile(lateness.histogram, 0.5),
        "late_p99_ms": quantile(lateness.histogram, 0.99),
        "producers": [
            {
                "producer_id": producer_id,
                "records": one.records,
                "without_time": one.without_time,
                "out_of_order": one.out_of_order,
                "ahead_ms": one.ahead_ms,
                "ahead": _record(one.ahead),
                "behind_ms": one.behind_ms,
                "behind": _record(one.behind),
            }
            for producer_id, one in sorted(times.producers.items())
        ],
    }


def _place(found: Place | None) -> Document | None:
    return None if found is None else found._asdict()


def _record(found: tuple[int, int] | None) -> Document | None:
    return None if found is None else {"offset": found[0], "timestamp_ms": found[1]}

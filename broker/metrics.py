"""The counters of the broker: plain integers that the event loop adds to and the scrape reads.

Counting costs an addition, not a lock. `broker.operator.exporter` gives the counters their names
and hands them to `prometheus_client`; nothing here imports another part of the broker.
"""

import bisect
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import TYPE_CHECKING, Final, NamedTuple

from protocol.api_keys import ApiKey
from values.dataclasses import dataclass

if TYPE_CHECKING:
    from storage.log.lane import LogLane

_NS_PER_MS: Final = 1_000_000
AHEAD_MS: Final = 60_000
BEHIND_MS: Final = 3_600_000

ROWS_MAX: Final = 1000
"""Pairs of client and topic; beyond them the pair that was off least recently is forgotten."""

_CLIENT_ID_MAX: Final = 200

LATENCY_BOUNDS_S = (
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
)
THROTTLE_BOUNDS_MS = (10, 100, 1_000, 10_000, 30_000, 100_000)
SIZE_BOUNDS_BYTES = tuple(1024 * 4**exponent for exponent in range(10))


class Distribution:
    """A histogram of integers: counts per bucket, plus count and sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Iterable[int]) -> None:
        """Use buckets that end at `bounds` (inclusive), and one above the last."""
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0

    def observe(self, value: int) -> None:
        """Count one value."""
        self.counts[bisect.bisect_left(self.bounds, value)] += 1
        self.total += value

    def observe_low(self, count: int, total: int) -> None:
        """Count `count` values of the first bucket, which are `total` together."""
        self.counts[0] += count
        self.total += total

    def cumulative(self, scale: float) -> tuple[list[tuple[str, float]], float]:
        """Prometheus' form: (upper bound, values up to it) pairs, and the sum; divided by scale."""
        buckets: list[tuple[str, float]] = []
        running = 0
        for bound, count in zip(self.bounds, self.counts, strict=False):
            running += count
            buckets.append((repr(bound / scale), running))
        buckets.append(("+Inf", running + self.counts[-1]))
        return buckets, self.total / scale


def latency_distribution() -> Distribution:
    """A histogram of nanoseconds with bounds for requests and syncs."""
    return Distribution(int(bound * 1e9) for bound in LATENCY_BOUNDS_S)


def _observe(of_listeners: dict[str, Distribution], listener: str, elapsed_ns: int) -> None:
    if listener not in of_listeners:
        of_listeners[listener] = latency_distribution()
    of_listeners[listener].observe(elapsed_ns)


@dataclass(slots=True, eq=False)
class ApiMetrics:
    """The requests of one API."""

    failures: int = 0
    latency_ns: Distribution = field(default_factory=latency_distribution)


@dataclass(slots=True, eq=False)
class CommitMetrics:
    """Group commit: how long syncs take and how much each carries."""

    acks_completed: int = 0
    sync_failures: int = 0
    latency_ns: Distribution = field(default_factory=latency_distribution)
    size_bytes: Distribution = field(default_factory=lambda: Distribution(SIZE_BOUNDS_BYTES))

    def observe_sync(self, elapsed_ns: int, size_bytes: int) -> None:
        """Count a sync of `size_bytes` that took `elapsed_ns`, queueing included."""
        self.latency_ns.observe(elapsed_ns)
        self.size_bytes.observe(size_bytes)


@dataclass(slots=True, eq=False)
class RemoteMetrics:
    """What goes to and comes from the object store."""

    uploaded: int = 0
    uploaded_bytes: int = 0
    fetched: int = 0
    fetched_bytes: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    """Failed requests by operation: upload, fetch, delete, ship."""
    entries: int = 0
    tail_bytes: int = 0
    is_fenced: bool = False
    is_suspended: bool = False
    backlog_bytes: int = 0
    backlog_ms: int = 0


class Place(NamedTuple):
    """A batch: its partition, its first offset, and the timestamp (ms) that is off."""

    partition: int
    offset: int
    timestamp_ms: int


@dataclass(slots=True)
class OffTimes:
    """The batches of one client in one topic whose times are off.

    Attributes:
        ahead: how many are ahead.
        behind: how many are behind.
        without_time: how many have a record without a time.
        refused: how many the topic's bounds have refused.
        ahead_ms: the most by which one is ahead, and `most_ahead` that batch.
        behind_ms: the most by which one is behind, and `most_behind` that batch.
        first: the first one that is ahead or behind.
        first_ms: when the first of all was appended or refused, and `last_ms` the last (ms).
    """

    first_ms: int
    last_ms: int
    ahead: int = 0
    behind: int = 0
    without_time: int = 0
    refused: int = 0
    ahead_ms: int = 0
    most_ahead: Place | None = None
    behind_ms: int = 0
    most_behind: Place | None = None
    first: Place | None = None


class ClientTimes:
    """Which clients produce records whose times are far from the time of their append.

    When a record was appended is known to the millisecond only while it is appended; later no more
    than when its segment was last appended to (`storage.audit.record_times`). So each batch whose
    times are off is counted, by client id and topic, since the broker's start. A batch with
    ordinary times costs two comparisons.

    A batch is *ahead* if its newest record is more than a minute newer than its append, and
    *behind* if its oldest record is more than an hour older; a replay is behind, too.

    Attributes:
        rows: by client id and topic, in the order in which they were last off.
    """

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], OffTimes] = {}

    def appended(
        self,
        client_id: str | None,
        topic: str,
        partition: int,
        first_offset: int,
        *,
        min_timestamp: int,
        max_timestamp: int,
        now_ms: int,
    ) -> None:
        """Count an appended batch if its times are off; `min_timestamp` is -1 with none."""
        ahead_ms, behind_ms = max_timestamp - now_ms, now_ms - min_timestamp
        if ahead_ms <= AHEAD_MS and behind_ms <= BEHIND_MS:
            return
        row = self._row(client_id, topic, now_ms)
        if ahead_ms > AHEAD_MS:
            row.ahead += 1
            place = Place(partition, first_offset, max_timestamp)
            row.first = row.first or place
            if ahead_ms > row.ahead_ms:
                row.ahead_ms, row.most_ahead = ahead_ms, place
        if min_timestamp < 0:
            row.without_time += 1
        elif behind_ms > BEHIND_MS:
            row.behind += 1
            place = Place(partition, first_offset, min_timestamp)
            row.first = row.first or place
            if behind_ms > row.behind_ms:
                row.behind_ms, row.most_behind = behind_ms, place

    def appended_by_lane(
        self, lane: "LogLane", view: memoryview, client_at: int, now_ms: int
    ) -> None:
        """Count what `lane` has just written; the client id is at `client_at` of `view`."""
        size = int.from_bytes(view[client_at - 2 : client_at], "big", signed=True)
        self.appended(
            view[client_at : client_at + max(0, size)].tobytes().decode(),
            lane.log.topic,
            lane.log.partition,
            lane.end_offset - lane.batch.records_count,
            min_timestamp=lane.batch.min_timestamp,
            max_timestamp=lane.batch.max_timestamp,
            now_ms=now_ms,
        )

    def refused(self, client_id: str | None, topic: str, now_ms: int) -> None:
        """Count records that the topic's bounds have refused for their times."""
        self._row(client_id, topic, now_ms).refused += 1

    def of_topic(self, topic: str) -> list[tuple[str, OffTimes]]:
        """Client ids and counts of a topic; the last one that was off is the last."""
        return [(client_id, row) for (client_id, name), row in self.rows.items() if name == topic]

    def forget(self, topic: str) -> None:
        """A topic was deleted: another one may get its name."""
        for client_id, _ in self.of_topic(topic):
            del self.rows[client_id, topic]

    def _row(self, client_id: str | None, topic: str, now_ms: int) -> OffTimes:
        key = ((client_id or "")[:_CLIENT_ID_MAX], topic)
        row = self.rows.pop(key, None)
        if row is None:
            row = OffTimes(now_ms, now_ms)
            if len(self.rows) >= ROWS_MAX:
                del self.rows[next(iter(self.rows))]
        self.rows[key] = row
        row.last_ms = now_ms
        return row


class Metrics:
    """The broker's counters. Written by the loop thread, read by the scrape in the same thread."""

    def __init__(self) -> None:
        self._apis: dict[ApiKey, ApiMetrics] = {}
        self.commits = CommitMetrics()
        self.batches_appended = 0
        self.records_appended = 0
        self.bytes_appended = 0
        self.bytes_fetched = 0
        self.failed_reads: Counter[str] = Counter()
        """Reads that the disk refused or that met damage, by path."""
        self.appends_rejected: Counter[str] = Counter()
        self.client_times = ClientTimes()
        self.segments_deleted: Counter[str] = Counter()
        self.job_failures: Counter[str] = Counter()
        self.authentications: Counter[tuple[str, str, str]] = Counter()
        """By listener, mechanism and result: ok or failed."""
        self.reauthentications: Counter[tuple[str, str, str]] = Counter()
        """Those of clients that were authenticated before."""
        self.sessions_expired: Counter[str] = Counter()
        """Connections closed since their session had ended, by listener."""
        self.throttle_ms: dict[str, Distribution] = {}
        """The delays that quotas imposed, by kind."""
        self.handshakes: Counter[tuple[str, str]] = Counter()
        """TLS handshakes by listener and result: ok or failed."""
        self.handshake_ns: dict[str, Distribution] = {}
        """How long the good ones took, by listener."""
        self.reauthentication_ns: dict[str, Distribution] = {}
        """How long clients took from the handshake to the end of a further login, by listener."""
        self.tls: Counter[tuple[str, str, str]] = Counter()
        """Good ones by listener, version of TLS and cipher suite."""
        self.loop_lag_ns = latency_distribution()
        self.loop_lag_max_ns = 0
        self.wall_clock_jumps = 0
        self.wall_clock_distrusted = False
        self.clock_settable = False
        self.logs_held_by_future = 0
        self.remote = RemoteMetrics()
        self.compactions = 0
        self.records_compacted = 0
        self.cleaner_slice_max_ms = 0

    def observe_handshake(self, listener: str, elapsed_ns: int) -> None:
        """Count a TLS handshake that has ended well after `elapsed_ns`."""
        self.handshakes[listener, "ok"] += 1
        _observe(self.handshake_ns, listener, elapsed_ns)

    def observe_reauthentication(self, listener: str, elapsed_ms: int) -> None:
        """Note how long a client that had logged in before took to do so again."""
        _observe(self.reauthentication_ns, listener, elapsed_ms * _NS_PER_MS)

    def api(self, key: ApiKey) -> ApiMetrics:
        """The counters of one API, made on first use."""
        metrics = self._apis.get(key)
        if metrics is None:
            metrics = self._apis[key] = ApiMetrics()
        return metrics

    def apis(self) -> Iterator[tuple[ApiKey, ApiMetrics]]:
        """All counters of APIs, by key."""
        return iter(sorted(self._apis.items()))

    def throttled(self, kind: str, delay_ms: int) -> None:
        """Count a delay by a quota."""
        distribution = self.throttle_ms.get(kind)
        if distribution is None:
            distribution = self.throttle_ms[kind] = Distribution(THROTTLE_BOUNDS_MS)
        distribution.observe(delay_ms)

    def observe_loop_lag(self, lag_ns: int) -> None:
        """Record that the event loop ran a timer `lag_ns` late."""
        self.loop_lag_ns.observe(lag_ns)
        self.loop_lag_max_ns = max(self.loop_lag_max_ns, lag_ns)

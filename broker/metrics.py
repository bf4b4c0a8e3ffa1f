"""The counters of the broker: plain integers that the event loop adds to and the scrape reads.

Counting costs an addition, not a lock. `broker.operator.exporter` gives the counters their names
and hands them to `prometheus_client`; nothing here imports another part of the broker.
"""

import bisect
from collections import Counter
from collections.abc import Iterable, Iterator

from protocol.api_keys import ApiKey

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


class ApiMetrics:
    """The requests of one API."""

    __slots__ = ("failures", "latency_ns")

    def __init__(self) -> None:
        """Start at zero."""
        self.failures = 0
        self.latency_ns = latency_distribution()


class CommitMetrics:
    """Group commit: how long syncs take and how much each carries."""

    __slots__ = ("acks_completed", "latency_ns", "size_bytes", "sync_failures")

    def __init__(self) -> None:
        """Start at zero."""
        self.acks_completed = 0
        self.sync_failures = 0
        self.latency_ns = latency_distribution()
        self.size_bytes = Distribution(SIZE_BOUNDS_BYTES)

    def observe_sync(self, elapsed_ns: int, size_bytes: int) -> None:
        """Count a sync of `size_bytes` that took `elapsed_ns`, queueing included."""
        self.latency_ns.observe(elapsed_ns)
        self.size_bytes.observe(size_bytes)


class RemoteMetrics:
    """What goes to and comes from the object store."""

    __slots__ = (
        "backlog_bytes",
        "backlog_ms",
        "entries",
        "errors",
        "fetched",
        "fetched_bytes",
        "is_fenced",
        "tail_bytes",
        "uploaded",
        "uploaded_bytes",
    )

    def __init__(self) -> None:
        """Start at zero."""
        self.uploaded = 0
        self.uploaded_bytes = 0
        self.fetched = 0
        self.fetched_bytes = 0
        self.errors: Counter[str] = Counter()
        """Failed requests by operation: upload, fetch, delete, ship."""
        self.entries = 0
        self.tail_bytes = 0
        self.is_fenced = False
        self.backlog_bytes = 0
        self.backlog_ms = 0


class Metrics:
    """The broker's counters. Written by the loop thread, read by the scrape in the same thread."""

    def __init__(self) -> None:
        """Start at zero."""
        self._apis: dict[ApiKey, ApiMetrics] = {}
        self.commits = CommitMetrics()
        self.batches_appended = 0
        self.records_appended = 0
        self.bytes_appended = 0
        self.bytes_fetched = 0
        self.appends_rejected: Counter[str] = Counter()
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

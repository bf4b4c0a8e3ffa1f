"""Every metric of the broker: its name, unit and help, in Prometheus' text format.

`prometheus_client` is imported after the start, by the warm-up of `broker.node`. One custom
collector reads the counters of `broker.metrics` and the parts of the broker at scrape time.
Per-partition metrics come from the logs at that moment and cost nothing between scrapes.

The names follow Prometheus' rules: base units (seconds, bytes), `_total` for counters.

Only this module imports `prometheus_client`.
"""

import contextlib
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from broker.errors import BrokerError
from broker.groups.offsets.lag import ends_elsewhere
from broker.groups.share.values import Ack
from broker.metrics import Metrics
from broker.operator.families import (
    build_info,
    counter,
    gauge,
    group_states,
    histogram,
    labelled_counter,
    labelled_gauge,
    labelled_histogram,
)
from broker.operator.machine_figures import disk_figures, file_figures, resident_bytes
from broker.quotas.book import ENTITY_TYPES
from broker.threads import IMPORTING
from values.dataclasses import dataclass

if TYPE_CHECKING:
    from broker.fetch.sessions import FetchSessions
    from broker.fetch.waiters import FetchWaiters
    from broker.groups.offsets.lag import GroupLag
    from broker.groups.share_coordinator import ShareGroupCoordinator
    from broker.groups.streams_coordinator import StreamsGroupCoordinator
    from broker.net.connection import Connections
    from broker.security.service import Security
    from broker.space import SpaceGuard
    from broker.telemetry.service import Telemetry
    from broker.topics.registry import TopicRegistry


@dataclass(eq=False)
class BrokerCollector:
    """Turns the broker's integers into Prometheus' metric families at scrape time."""

    metrics: Metrics
    topics: "TopicRegistry"
    connections: "Connections"
    fetch_waiters: "FetchWaiters"
    fetch_sessions: "FetchSessions"
    group_lag: "GroupLag"
    shares: "ShareGroupCoordinator"
    streams: "StreamsGroupCoordinator"
    telemetry: "Telemetry"
    security: "Security"
    space: "SpaceGuard"
    started_s: float = field(default_factory=time.time)
    share_ends: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """High watermarks of partitions that other workers lead, as of the scrape before."""

    def collect(self, *, shows_names: bool) -> Iterator[Any]:
        """The metric families; without `shows_names` no figures of single groups and clients."""
        yield from self._requests()
        yield from self._traffic()
        yield from self._throttling()
        if shows_names:
            yield from self._quotas()
            yield self._off_times()
        yield from self._logins_and_certificates()
        yield from self._commits()
        if shows_names:
            yield from self._groups()
        yield from self._share_groups()
        yield from self._streams_groups()
        if shows_names:
            yield from self._share_partitions()
        yield from self._client_telemetry()
        yield from self._upkeep()
        yield from self._remote()

    def _requests(self) -> Iterator[Any]:
        apis = {key.name.lower(): api for key, api in self.metrics.apis()}
        yield labelled_histogram(
            "tidelog_request_seconds",
            "Time from the last byte of a request to its answer, waiting included",
            "api",
            # Else a dozen series for each API that no client uses.
            {name: api.latency_ns for name, api in apis.items() if any(api.latency_ns.counts)},
            1e9,
        )
        yield labelled_counter(
            "tidelog_request_failures",
            "Requests that hit a bug in the broker",
            "api",
            {name: api.failures for name, api in apis.items()},
        )

    def _traffic(self) -> Iterator[Any]:
        connections, metrics = self.connections, self.metrics
        yield gauge("tidelog_connections", "Connections open now", len(connections))
        yield labelled_gauge(
            "tidelog_listener_connections",
            "Connections of a listener open now",
            ["listener"],
            (([listener], count) for listener, count in connections.per_listener.items()),
        )
        yield counter("tidelog_connections_accepted", "Connections taken", connections.accepted)
        yield counter(
            "tidelog_connections_refused", "Connections over a limit", connections.refused
        )
        yield counter("tidelog_received_bytes", "Bytes from clients", connections.bytes_received)
        yield counter("tidelog_sent_bytes", "Bytes to clients", connections.bytes_sent)
        yield gauge(
            "tidelog_request_memory_bytes",
            "Memory held for unfinished requests",
            connections.memory_bytes,
        )
        yield gauge(
            "tidelog_answer_memory_bytes",
            "Memory held for answers that clients have not read",
            connections.answers.unread_bytes,
        )
        yield counter(
            "tidelog_connections_cut_unread",
            "Connections closed for the answers they left unread",
            connections.answers.cut,
        )
        yield counter(
            "tidelog_turns",
            "Slices of long work that had to wait for others",
            connections.turns.taken,
        )
        yield counter("tidelog_batches_appended", "Batches stored", metrics.batches_appended)
        yield counter("tidelog_records_appended", "Records stored", metrics.records_appended)
        yield counter("tidelog_appended_bytes", "Bytes of batches stored", metrics.bytes_appended)
        yield counter("tidelog_fetched_bytes", "Bytes of batches sent", metrics.bytes_fetched)
        yield counter(
            "tidelog_failed_reads",
            "Reads that the disk refused or that met damaged records",
            metrics.failed_reads.total(),
        )
        yield labelled_counter(
            "tidelog_appends_rejected",
            "Partition appends refused, by error",
            "error",
            metrics.appends_rejected,
        )
        yield gauge("tidelog_fetches_parked", "Fetches that wait", len(self.fetch_waiters))
        yield gauge("tidelog_fetch_sessions", "Fetch sessions open", len(self.fetch_sessions))
        yield counter(
            "tidelog_fetch_sessions_evicted",
            "Fetch sessions that gave way to others",
            self.fetch_sessions.evictions,
        )

    def _off_times(self) -> Any:
        """The clients that were off last, not each client that ever was."""
        counts = {
            (topic, client_id, fault): count
            for (client_id, topic), row in islice(
                reversed(self.metrics.client_times.rows.items()), _OFF_TIMES_SHOWN
            )
            for fault in _FAULTS_OF_TIMES
            if (count := getattr(row, fault))
        }
        return labelled_counter(
            "tidelog_batches_off_time",
            "Batches whose times are far from their append, by the clients that were off last",
            ("topic", "client_id", "fault"),
            counts,
        )

    def _throttling(self) -> Iterator[Any]:
        security = self.security
        yield gauge("tidelog_quotas", "Entities that have limits", len(security.quotas))
        yield gauge(
            "tidelog_throttled_connections", "Connections muted by a quota", len(security.mutes)
        )
        yield labelled_histogram(
            "tidelog_throttle_seconds",
            "Delays imposed by quotas",
            "kind",
            self.metrics.throttle_ms,
            1e3,
        )

    def _quotas(self) -> Iterator[Any]:
        """The limits of entities and their use; `<default>` stands for a default, as in Kafka."""
        labels = [label.replace("-", "_") for label in ("kind", *ENTITY_TYPES)]
        bounds, rates, tokens = _Rows(), _Rows(), _Rows()
        throttle = self.security.throttle
        for used in () if throttle is None else throttle.usage():
            names = {kind: "<default>" if name is None else name for kind, name in used.entity}
            values = [used.key, *(names.get(kind, "") for kind in ENTITY_TYPES)]
            bounds.add(values, used.bound)
            rates.add(values, used.rate)
            tokens.add(values, used.tokens)
        yield labelled_gauge(
            "tidelog_quota_bound",
            "Limits per second: bytes, percent of the event loop, partitions, connections",
            labels,
            bounds,
        )
        yield labelled_gauge(
            "tidelog_quota_rate", "What is used of a limit, in its unit", labels, rates
        )
        yield labelled_gauge(
            "tidelog_quota_tokens", "Partitions that may be created or deleted now", labels, tokens
        )

    def _logins_and_certificates(self) -> Iterator[Any]:
        metrics = self.metrics
        shown = {name: each.certificate for name, each in self.security.tls.contexts.items()}
        yield labelled_gauge(
            "tidelog_certificate_expiry_timestamp_seconds",
            "When the certificate of a TLS listener expires, Unix time",
            ["listener", "subject"],
            (([name, one.subject], one.not_after_ms / 1000) for name, one in shown.items()),
        )
        yield labelled_counter(
            "tidelog_tls_handshakes", "TLS handshakes", ("listener", "result"), metrics.handshakes
        )
        yield labelled_histogram(
            "tidelog_tls_handshake_seconds",
            "Time of TLS handshakes that ended well, from the client's first byte",
            "listener",
            metrics.handshake_ns,
            1e9,
        )
        yield labelled_counter(
            "tidelog_tls_connections",
            "Connections over TLS that were accepted",
            ("listener", "version", "cipher"),
            metrics.tls,
        )
        of_login = ("listener", "mechanism", "result")
        yield labelled_counter(
            "tidelog_authentications", "SASL authentications", of_login, metrics.authentications
        )
        yield labelled_counter(
            "tidelog_reauthentications",
            "SASL authentications of clients that had logged in before",
            of_login,
            metrics.reauthentications,
        )
        yield labelled_histogram(
            "tidelog_reauthentication_seconds",
            "Time of those that ended well, from SaslHandshake",
            "listener",
            metrics.reauthentication_ns,
            1e9,
        )
        yield labelled_counter(
            "tidelog_sessions_expired",
            "Connections closed since their SASL session had ended",
            "listener",
            metrics.sessions_expired,
        )
        security = self.security
        access = security.access
        allowed = 0 if access is None else access.allowed
        yield labelled_counter(
            "tidelog_authorizations",
            "Rights that requests needed, and whether they were there",
            "result",
            Counter({"allowed": allowed, "denied": security.audit.refusals}),
        )
        rules = 0 if access is None else len(access)
        yield gauge("tidelog_acls", "Rules in force", rules)
        yield gauge("tidelog_users", "SCRAM credentials of users", len(security.credentials))
        yield counter(
            "tidelog_audit_lines_lost",
            "Lines that are missing in the audit log's file",
            security.audit.lost,
        )

    def _commits(self) -> Iterator[Any]:
        commits = self.metrics.commits
        yield histogram(
            "tidelog_sync_seconds",
            "Time of one group commit, from hand-over to completion",
            commits.latency_ns,
            1e9,
        )
        yield histogram(
            "tidelog_sync_bytes", "Bytes made durable by one group commit", commits.size_bytes, 1
        )
        yield counter(
            "tidelog_sync_acks", "Acknowledgements completed by syncs", commits.acks_completed
        )
        yield counter("tidelog_sync_failures", "Syncs that failed", commits.sync_failures)

    def client_figures(self) -> Iterator[bytes]:
        """The metrics that clients have pushed as text, in pieces."""
        return self.telemetry.figures.lines()

    def partitions(self) -> Iterator[bytes]:
        """The metrics of all partitions as text, in pieces that take about a millisecond each.

        Formatted here, because ten thousand partitions are 70,000 lines: a second of work in one
        go. A family's lines must be contiguous, so they are gathered before they are yielded.
        """
        families: list[list[str]] = [
            [
                f"# HELP tidelog_partition_{name} {help_text}\n",
                f"# TYPE tidelog_partition_{name} gauge\n",
            ]
            for name, help_text, _ in _PARTITION_FIGURES
        ]
        offline = [
            "# HELP tidelog_partition_offline Partitions that take no records, with the reason\n",
            "# TYPE tidelog_partition_offline gauge\n",
        ]
        for number, log in enumerate(list(self.topics.logs())):
            labels = f'{{topic="{log.topic}",partition="{log.partition}"}}'
            if log.offline_kind is not None:
                kind = f'{labels[:-1]},reason="{log.offline_kind}"}}'
                offline.append(f"tidelog_partition_offline{kind} 1.0\n")
            for lines, (name, _, read) in zip(families, _PARTITION_FIGURES, strict=True):
                lines.append(f"tidelog_partition_{name}{labels} {float(read(log))!r}\n")
            if number % _PARTITIONS_PER_PIECE == 0:
                yield b""
        for lines in (*families, offline):
            yield "".join(lines).encode()

    def _groups(self) -> Iterator[Any]:
        records, seconds, slopes = _Rows(), _Rows(), _Rows()
        for lag in self.group_lag.figures():
            values = [lag.group, lag.topic, str(lag.partition)]
            records.add(values, lag.records)
            seconds.add(values, lag.seconds)
            slopes.add(values, self.group_lag.slope(lag))
        yield labelled_gauge(
            "tidelog_group_lag_records",
            "Records not yet committed by the group",
            _GROUP_LABELS,
            records,
        )
        yield labelled_gauge(
            "tidelog_group_lag_seconds",
            "Age of the first record not yet committed by the group",
            _GROUP_LABELS,
            seconds,
        )
        yield labelled_gauge(
            "tidelog_group_lag_seconds_slope",
            "Seconds by which the lag in seconds grows per second, over the last 5 minutes",
            _GROUP_LABELS,
            slopes,
        )

    def _share_groups(self) -> Iterator[Any]:
        shares = self.shares
        yield group_states("tidelog_share_groups", "Share groups, by state", shares.groups)
        yield counter(
            "tidelog_share_rebalances", "Target assignments of share groups", shares.rebalances
        )
        yield gauge("tidelog_share_sessions", "Share sessions open", len(shares.sessions))
        yield gauge(
            "tidelog_share_session_partitions",
            "Partitions in share sessions",
            sum(len(session.partitions) for session in shares.sessions),
        )
        yield labelled_counter(
            "tidelog_share_acknowledged_records",
            "Records acknowledged by members of share groups, by type",
            "type",
            Counter(
                {Ack(kind).name.lower(): n for kind, n in shares.partitions.acknowledged.items()}
            ),
        )
        yield counter(
            "tidelog_share_expired_records",
            "Records whose lock expired before their member acknowledged them",
            shares.partitions.expired,
        )
        yield counter(
            "tidelog_share_state_records",
            "Records written to __share_group_state",
            shares.states.written,
        )

    def _streams_groups(self) -> Iterator[Any]:
        streams = self.streams
        yield group_states("tidelog_streams_groups", "Streams groups, by state", streams.groups)
        yield counter(
            "tidelog_streams_rebalances", "Rebalances of streams groups", streams.rebalances
        )

    def _client_telemetry(self) -> Iterator[Any]:
        telemetry = self.telemetry
        telemetry.forget()
        yield gauge(
            "tidelog_telemetry_instances",
            "Clients that asked for a subscription to their metrics",
            len(telemetry.instances),
        )
        yield gauge(
            "tidelog_telemetry_figures", "Figures that clients have pushed", len(telemetry.figures)
        )
        yield labelled_counter(
            "tidelog_telemetry_pushes", "Pushes of clients, by error", "error", telemetry.pushes
        )
        yield counter(
            "tidelog_telemetry_dropped",
            "Values of clients that were left out: not asked for, too many, or of another type",
            telemetry.figures.dropped,
        )

    def _share_ends_found(self, ends: Mapping[tuple[str, int], int]) -> None:
        self.share_ends = ends

    def _share_partitions(self) -> Iterator[Any]:
        lags, records, ranges = _Rows(), _Rows(), _Rows()
        places: dict[tuple[str, int], None] = {}
        for key in self.shares.states:
            topic = self.topics.find_by_id(key.topic_id)
            if topic is None:
                continue
            place = topic.name, key.partition
            places[place] = None
            end = self.share_ends.get(place)
            with contextlib.suppress(BrokerError):
                end = self.topics.led_log(*place).high_watermark
            offset = self.shares.offset(key, end)
            if offset.lag >= 0:
                lags.add([key.group_id, topic.name, str(key.partition)], offset.lag)
        ends_elsewhere(self.topics, places, self._share_ends_found)
        for loaded in self.shares.partitions:
            key = loaded.key
            values = [key.group_id, loaded.log.topic, str(key.partition)]
            records.add(values, loaded.partition.in_flight)
            ranges.add(values, loaded.partition.run_count)
        yield labelled_gauge(
            "tidelog_share_lag_records",
            "Records that a share group has not done",
            _GROUP_LABELS,
            lags,
        )
        yield labelled_gauge(
            "tidelog_share_in_flight_records",
            "Records from the first that is not done to the last that was delivered",
            _GROUP_LABELS,
            records,
        )
        yield labelled_gauge(
            "tidelog_share_in_flight_ranges",
            "Ranges of equal state among them",
            _GROUP_LABELS,
            ranges,
        )

    def _remote(self) -> Iterator[Any]:
        remote = self.metrics.remote
        yield counter(
            "tidelog_remote_uploads", "Segments uploaded to the object store", remote.uploaded
        )
        yield counter(
            "tidelog_remote_uploaded_bytes",
            "Bytes uploaded to the object store",
            remote.uploaded_bytes,
        )
        yield counter(
            "tidelog_remote_entries", "Entries of the bucket's journal written", remote.entries
        )
        yield gauge(
            "tidelog_remote_tail_bytes",
            "Records on this machine's disk only, of topics that the bucket has",
            remote.tail_bytes,
        )
        yield gauge(
            "tidelog_remote_fenced",
            "1 if another broker has taken the bucket over, and this one is read-only",
            int(remote.is_fenced),
        )
        yield gauge(
            "tidelog_remote_suspended",
            "1 if this broker could not renew its lease of the bucket, and refuses appends",
            int(remote.is_suspended),
        )
        yield counter("tidelog_remote_fetches", "GETs from the object store", remote.fetched)
        yield counter(
            "tidelog_remote_fetched_bytes",
            "Bytes read from the object store",
            remote.fetched_bytes,
        )
        yield labelled_counter(
            "tidelog_remote_errors",
            "Requests to the object store that failed",
            "operation",
            remote.errors,
        )
        yield gauge(
            "tidelog_remote_backlog_bytes",
            "Closed segments that wait for their upload",
            remote.backlog_bytes,
        )
        yield gauge(
            "tidelog_remote_backlog_seconds",
            "Time since the last append to the oldest of them",
            remote.backlog_ms / 1000,
        )

    def _upkeep(self) -> Iterator[Any]:
        metrics = self.metrics
        yield labelled_counter(
            "tidelog_segments_deleted",
            "Segments removed, by reason",
            "reason",
            metrics.segments_deleted,
        )
        yield labelled_counter(
            "tidelog_job_failures", "Background jobs that failed", "job", metrics.job_failures
        )
        yield counter(
            "tidelog_wall_clock_jumps",
            "Times the wall clock jumped away from the monotonic one",
            metrics.wall_clock_jumps,
        )
        yield gauge(
            "tidelog_wall_clock_distrusted",
            "1 while nothing is deleted by the wall clock, because it was set or started wrong",
            int(metrics.wall_clock_distrusted),
        )
        yield gauge(
            "tidelog_clock_settable", "1 with serve --clock settable", int(metrics.clock_settable)
        )
        yield gauge(
            "tidelog_partitions_held_by_future",
            "Partitions whose retention waits for a timestamp that is ahead of the clock",
            metrics.logs_held_by_future,
        )
        yield counter("tidelog_compactions", "Rounds of log compaction", metrics.compactions)
        yield counter(
            "tidelog_records_compacted",
            "Records that compaction dropped",
            metrics.records_compacted,
        )
        yield gauge(
            "tidelog_cleaner_slice_max_seconds",
            "The longest that the cleaner held up the event loop",
            metrics.cleaner_slice_max_ms / 1000,
        )
        yield histogram(
            "tidelog_event_loop_lag_seconds",
            "How late the event loop runs its timers",
            metrics.loop_lag_ns,
            1e9,
        )
        usage = resource.getrusage(resource.RUSAGE_SELF)
        yield counter(
            "process_cpu_seconds", "CPU time used, user and system", usage.ru_utime + usage.ru_stime
        )
        yield gauge("process_resident_memory_bytes", "Resident memory", resident_bytes())
        yield from (gauge(*figure) for figure in file_figures())
        yield gauge("process_start_time_seconds", "Start, Unix time", self.started_s)
        yield from (gauge(*figure) for figure in disk_figures(self.space))
        yield build_info()


def _time_index_entries(log: Any) -> int:
    return sum(segment.time_index.count for segment in log.segments)


class _Rows(list[tuple[Sequence[str], float]]):
    """The values of a gauge with labels."""

    def add(self, labels: Sequence[str], value: float | None) -> None:
        """Add a value, unless there is none."""
        if value is not None:
            self.append((labels, value))


_GROUP_LABELS: Final = ("group", "topic", "partition")
_PARTITIONS_PER_PIECE: Final = 100
_OFF_TIMES_SHOWN: Final = 100
_FAULTS_OF_TIMES: Final = ("ahead", "behind", "without_time", "refused")

_PARTITION_FIGURES: tuple[tuple[str, str, Callable[[Any], float]], ...] = (
    ("log_start_offset", "Earliest readable offset", lambda log: log.log_start_offset),
    ("high_watermark", "End of what consumers may read", lambda log: log.high_watermark),
    ("log_end_offset", "Offset of the next append", lambda log: log.log_end_offset),
    ("durable_offset", "End of what is on disk", lambda log: log.durable_offset),
    ("size_bytes", "Size of the log's batches", lambda log: log.size_bytes),
    ("segments", "Segments of the log", lambda log: len(log.segments)),
    ("time_index_entries", "Entries in time indexes", _time_index_entries),
)


class _Families(NamedTuple):
    """What the registry asks for the metric families of one scrape."""

    collect: Callable[[], Iterator[Any]]


def load() -> None:
    """Import `prometheus_client`; a second caller waits for the first."""
    with IMPORTING:
        import prometheus_client.core  # noqa: F401


def render(collector: BrokerCollector, *, shows_names: bool) -> Iterator[bytes]:
    """The exposition in Prometheus' text format, in pieces; other work may run between them.

    Without `shows_names` there are no figures of single partitions, groups and clients.
    """
    load()
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(partial(collector.collect, shows_names=shows_names)))
    yield generate_latest(registry)
    if shows_names:
        yield from collector.partitions()
        yield from collector.client_figures()

"""The console's one client of the cluster, and what kind of cluster that is.

Answers that many pages need are kept for some seconds. A broker with a metrics port is a Tidelog:
it explains, forecasts and counts what Kafka's protocol has no request for.
"""

import asyncio
import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from client.admin import Admin
from client.errors import ClientError, NotThere, UnsupportedByBroker
from client.producer import Producer
from client.types import TopicInfo, TopicPartition
from console.options import ConsoleOptions
from protocol.time_windows import MalformedWindow, TimeWindow, parse_window

KEPT_S: Final = 10.0
"""How long names and kinds are believed."""

TIMEOUT_MS: Final = 10_000
"""How long a question waits for the brokers."""

_PORT_S: Final = 3.0
_SETTING: Final = "metrics.listener"

_COUNTERS: Final = {
    "records_per_s": "tidelog_records_appended_total",
    "bytes_per_s": "tidelog_appended_bytes_total",
}
_HELD: Final = "tidelog_partitions_held_by_future"
_RATE_MIN_S: Final = 1.0
_RATE_MAX_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class ClusterKind:
    """What the brokers are.

    Attributes:
        is_tidelog: whether they have Tidelog's settings.
        has_metrics_port: whether explained lookups, segments and forecasts can be asked for.
        why_not: the sentence for pages that need the port, where there is none.
        has_settable_clock: whether the time of the broker can be set.
    """

    is_tidelog: bool
    has_metrics_port: bool
    why_not: str
    has_settable_clock: bool


class Hub:
    """One connected client for all pages. Belongs to one event loop."""

    def __init__(self, options: ConsoleOptions) -> None:
        """Set up without connecting, so that the console starts while the broker is down."""
        self.options = options
        self.admin = Admin(
            options.bootstrap,
            security=options.security,
            client_id="tidelog-console",
            request_timeout_ms=TIMEOUT_MS,
            timeout_ms=TIMEOUT_MS,
        )
        self._topics: tuple[float, dict[str, TopicInfo]] = (0.0, {})
        self._kind: tuple[float, ClusterKind | None] = (0.0, None)
        self._counted: tuple[float, dict[str, float]] = (-math.inf, {})

    async def close(self) -> None:
        """Disconnect."""
        await self.admin.close()

    def producer(self) -> Producer:
        """A producer to the same cluster, for one change."""
        return Producer(
            self.options.bootstrap,
            security=self.options.security,
            client_id="tidelog-console",
            delivery_timeout_ms=2 * TIMEOUT_MS,
            request_timeout_ms=TIMEOUT_MS,
        )

    async def topics(self, *, is_fresh: bool = False) -> dict[str, TopicInfo]:
        """All topics by name, internal ones too, from one request that is kept."""
        asked_at, topics = self._topics
        if is_fresh or not topics or time.monotonic() - asked_at > KEPT_S:
            topics = await self.admin.topics(internal=True)
            self._topics = (time.monotonic(), topics)
        return topics

    async def named(self, names: Iterable[str], *, is_fresh: bool = False) -> dict[str, TopicInfo]:
        """Those of the names that are topics, or time windows that the brokers serve."""
        topics = await self.topics(is_fresh=is_fresh)
        found = {name: topics[name] for name in names if name in topics}
        return found | await self.admin.served_windows(set(names) - found.keys())

    async def partitions(
        self, topic: str, chosen: frozenset[int] | None = None
    ) -> list[TopicPartition]:
        """The partitions of a topic, or those of the chosen numbers.

        Raises:
            NotThere: it has not all of them.
        """
        topics = await self.topics()
        info = topics.get(topic) or await self.admin.describe_topic(topic)
        if chosen is not None and not chosen.issubset(info.partitions):
            info = await self.admin.describe_topic(topic)  # It may have got more.
            if missing := chosen.difference(info.partitions):
                raise NotThere.partition(topic, min(missing), len(info.partitions))
        return [
            TopicPartition(topic, number)
            for number in info.partitions
            if chosen is None or number in chosen
        ]

    async def window_of(self, name: str) -> TimeWindow | None:
        """The time window that a name stands for; None for topics, which come first."""
        try:
            return None if name in await self.topics() else parse_window(name)
        except MalformedWindow:
            return None

    async def kind(self) -> ClusterKind:
        """What the brokers are; kept for some seconds."""
        asked_at, kind = self._kind
        if kind is None or time.monotonic() - asked_at > KEPT_S:
            kind = await self._find_kind()
            self._kind = (time.monotonic(), kind)
        return kind

    async def _find_kind(self) -> ClusterKind:
        brokers = await self.admin.brokers()
        try:
            is_tidelog = _SETTING in await self.admin.broker_configs(brokers[0].node_id)
        except ClientError:
            is_tidelog = False
        why_not = ""
        has_settable_clock = False
        try:
            async with asyncio.timeout(_PORT_S):
                await self.admin.clock(metrics_url=self.options.broker_http)
            has_settable_clock = True
        except UnsupportedByBroker as error:
            if "clock" not in str(error):
                why_not = str(error)
        except ClientError as error:
            why_not = str(error)
        except TimeoutError:
            why_not = f"the metrics port does not answer within {_PORT_S:.0f} s"
        return ClusterKind(
            is_tidelog=is_tidelog or self.options.broker_http is not None,
            has_metrics_port=not why_not,
            why_not=why_not,
            has_settable_clock=has_settable_clock,
        )

    async def activity(self) -> dict[str, float | None]:
        """What a Tidelog takes in a second, and how many partitions a timestamp ahead holds.

        The rates are those since the question before, None without one in the last minute.

        Raises:
            ClientError: the brokers have no metrics port, or it does not answer.
        """
        found = await self.admin.metrics(
            [_HELD, *_COUNTERS.values()], metrics_url=self.options.broker_http
        )
        counted_at, before = self._counted
        at = time.monotonic()
        seconds = at - counted_at
        rates: dict[str, float | None] = dict.fromkeys(_COUNTERS)
        if _RATE_MIN_S <= seconds <= _RATE_MAX_S:
            for rate, name in _COUNTERS.items():
                # A broker that was restarted counts from 0 again.
                rates[rate] = max(0.0, found.get(name, 0.0) - before.get(name, 0.0)) / seconds
        if seconds >= _RATE_MIN_S:
            self._counted = (at, found)
        return {**rates, "held_by_future": found.get(_HELD)}

    async def now_ms(self) -> int:
        """The present of the brokers: the settable clock's where there is one, else ours."""
        try:
            kind = await self.kind()
            if kind.has_settable_clock:
                clock = await self.admin.clock(metrics_url=self.options.broker_http)
                return int(clock["wall_ms"])
        except ClientError:
            pass
        return time.time_ns() // 1_000_000

    async def ask_tidelog(self, path: str, asked: Mapping[str, object]) -> dict[str, Any]:
        """A document from a Tidelog's metrics port.

        Raises:
            UnsupportedByBroker: the brokers have none; the message says what they lack.
        """
        return await self.admin.ask_metrics_port(
            path, asked, metrics_url=self.options.broker_http
        )

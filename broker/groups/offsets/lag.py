"""How far groups are behind, in records and in time, as of a scrape.

The lag in time of a partition is the age of the first record that its group has not committed: what
"ten minutes behind" means, whatever the rate. Finding that record's timestamp takes one read of one
batch, so it is kept until that record is another one. A scrape looks up at most
`LOOKUPS_MAX` of them. If more groups have moved, the rest keep the value of the last scrape and get
their turn at the next. The marks that our Spark sink commits beside its records are batch numbers,
not offsets, and are left out.

The *slope* of a lag in time says whether a group catches up: seconds of lag gained per second, the
least squares line through samples of the last `WINDOW_MS`. A group at a standstill has 1, one that
keeps up has 0, one that catches up less. A background job takes the samples, so the slope does not
depend on the scrapes. At most `SERIES_MAX` groups and partitions have one.

Partitions of other workers are measured by them: each scrape asks for what the next one shows.

Pure of the wire and of Prometheus; `broker.metrics` turns the figures into a family of metrics.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from broker.groups.offsets.store import OffsetTable
from broker.topics.peers import Measured
from broker.topics.registry import TopicRegistry
from protocol.errors import RecordsError
from protocol.records.layout import NO_TIMESTAMP
from protocol.records.scan import iter_records, scan_entries
from storage.errors import StorageError
from storage.log.log import Log
from storage.log.values import Isolation

LOOKUPS_MAX = 100
"""Batches read per scrape; each is one read and one decoding, a fraction of a millisecond."""


MARKERS_MAX = 16
"""The most markers in a row that are read over; beyond them a group's age is unknown."""

_VISIBLE = Isolation.READ_UNCOMMITTED

MARK_PREFIX = "tidelog-mark "
"""The prefix of the metadata of a writer's mark (`pipeline.net.producing`)."""


WINDOW_MS: Final = 300_000
"""How far back samples count for a slope."""

SAMPLE_INTERVAL_MS: Final = 15_000
SAMPLES_MIN: Final = 3
"""From so many samples on there is a slope."""

SERIES_MAX: Final = 2000
"""Groups and partitions with samples: 20 of them each, about 3 kB."""

_AT_THE_END: Final = 2**63 - 1
"""An offset that needs no look-up of a timestamp."""

_Key = tuple[str, str, int]
Position: TypeAlias = tuple[str, int, int]
"""Topic, partition and a committed offset."""


class Lag(NamedTuple):
    """One group in one partition. `seconds` is None while it is not known."""

    group: str
    topic: str
    partition: int
    records: int
    seconds: float | None


def measure(topics: TopicRegistry, topic: str, partition: int, offset: int) -> Measured:
    """A partition that is led here as seen from a committed offset; raises as `led_log`."""
    window = topics.led_window(topic, partition)
    if window is not None:
        start, end = window.log.log_start_offset, window.end_offset(_VISIBLE, 0)
        # The first record of a window that is left may be far away.
        return Measured(start, end, NO_TIMESTAMP if max(offset, start) < end else None)
    log = topics.led_log(topic, partition)
    start, end = log.log_start_offset, log.high_watermark
    offset = max(offset, start)
    return Measured(start, end, timestamp_at(log, offset) if offset < end else None)


def ends_elsewhere(
    topics: TopicRegistry,
    partitions: Iterable[tuple[str, int]],
    found: Callable[[dict[tuple[str, int], int]], object],
) -> None:
    """Call `found` once with the high watermarks of those that other workers lead.

    What does not exist, and what a worker does not answer, is left out.
    """
    ends: dict[tuple[str, int], int] = {}
    asked = _elsewhere(topics, ((name, index, _AT_THE_END) for name, index in partitions))
    missing = len(asked)
    if not missing:
        found(ends)

    def measured(part: dict[Position, Measured]) -> None:
        nonlocal missing
        ends.update({(name, index): one.high_watermark for (name, index, _), one in part.items()})
        missing -= 1
        if not missing:
            found(ends)

    for worker, positions in asked.items():
        assert topics.peers is not None, "another worker keeps a partition"
        topics.peers.measure(worker, positions, measured)


def _elsewhere(topics: TopicRegistry, positions: Iterable[Position]) -> dict[int, list[Position]]:
    """The positions in partitions that other workers lead, by worker."""
    found: dict[int, list[Position]] = {}
    for position in positions:
        topic = topics.find(position[0])
        if topic is None or not 0 <= position[1] < len(topic.workers):
            continue  # deleted, or made again, since its group was looked at
        if topic.partitions[position[1]] is None:
            found.setdefault(topic.workers[position[1]], []).append(position)
    return found


class GroupLag:
    """The lag of every group with committed offsets. Loop thread only."""

    def __init__(
        self, topics: TopicRegistry, offsets: OffsetTable, wall_ms: Callable[[], int]
    ) -> None:
        """Compare `offsets` with the logs of `topics`, by the clock `wall_ms`."""
        self._topics = topics
        self._offsets = offsets
        self._wall_ms = wall_ms
        self._known: dict[_Key, tuple[int, int]] = {}
        self._elsewhere: dict[Position, Measured] = {}
        self._ends: dict[tuple[str, int], Measured] = {}
        # By worker, how many of its partitions were asked for in this round.
        self._next_asked: dict[int, int] = {}
        self._samples: dict[_Key, deque[tuple[int, float]]] = {}

    def sample(self, now_ms: int) -> Iterator[None]:
        """Take a sample of each lag at `now_ms` of a steady clock; yields between groups."""
        before = self._samples
        samples: dict[_Key, deque[tuple[int, float]]] = {}
        group = None
        for lag in self.figures():
            if lag.group != group:
                group = lag.group
                yield
            key = (lag.group, lag.topic, lag.partition)
            if lag.seconds is None or len(samples) >= SERIES_MAX:
                continue
            series = before.get(key) or deque(maxlen=WINDOW_MS // SAMPLE_INTERVAL_MS + 1)
            while series and series[0][0] < now_ms - WINDOW_MS:
                series.popleft()
            series.append((now_ms, lag.seconds))
            samples[key] = series
        self._samples = samples

    def slope(self, lag: Lag) -> float | None:
        """Seconds that a lag gains per second; None while there are too few samples."""
        series = self._samples.get((lag.group, lag.topic, lag.partition), ())
        return slope_of(series) if len(series) >= SAMPLES_MIN else None

    def figures(self) -> Iterator[Lag]:
        """Every committed offset of an existing partition, compared with its log now."""
        now_ms = self._wall_ms()
        seen: set[_Key] = set()
        lookups = 0
        elsewhere: list[tuple[str, Position]] = []
        for group, position, log in self._positions():
            topic, partition, committed = position
            if log is None:
                elsewhere.append((group, position))
                continue
            if topic != log.topic:
                yield _lag_of(group, position, measure(self._topics, *position), now_ms)
                continue
            offset = max(committed, log.log_start_offset)
            records = max(0, log.high_watermark - offset)
            if not records:
                yield Lag(group, topic, partition, 0, 0.0)
                continue
            key = (group, topic, partition)
            seen.add(key)
            found = self._known.get(key)
            if (found is None or found[0] != offset) and lookups < LOOKUPS_MAX:
                lookups += 1
                timestamp = timestamp_at(log, offset)
                found = None if timestamp is None else (offset, timestamp)
                if found is None:
                    # Only markers are left, and records may come at any time.
                    yield Lag(group, topic, partition, records, 0.0)
                    continue
            if found is not None:
                self._known[key] = found
            yield Lag(group, topic, partition, records, _age_s(found, now_ms))
        for gone in self._known.keys() - seen:
            del self._known[gone]
        yield from self._figures_elsewhere(elsewhere, now_ms)

    def _positions(self) -> Iterator[tuple[str, Position, Log | None]]:
        """Every group and its committed offsets in partitions that exist, also in windows.

        With the log of the partition, None when another worker keeps it.
        """
        for group in list(self._offsets.groups()):
            for (name, partition), committed in list(self._offsets.of_group(group).items()):
                topic = self._topics.find(name)
                is_mark = (committed.metadata or "").startswith(MARK_PREFIX)
                if topic is not None and partition < len(topic.partitions) and not is_mark:
                    log = topic.partitions[partition]
                    yield group, (name, partition, committed.offset), log

    def _figures_elsewhere(
        self, positions: list[tuple[str, Position]], now_ms: int
    ) -> Iterator[Lag]:
        """What other workers have measured up to the last scrape.

        Of a group that has committed since then, the time is not known yet.
        """
        wanted = {position: None for _, position in positions}
        places = {position[:2] for position in wanted}
        self._elsewhere = {key: one for key, one in self._elsewhere.items() if key in wanted}
        self._ends = {key: one for key, one in self._ends.items() if key in places}
        for group, position in positions:
            topic, partition, _ = position
            end = self._ends.get((topic, partition))
            if end is not None:
                unknown = end._replace(timestamp=NO_TIMESTAMP)
                measured = self._elsewhere.get(position, unknown)
                yield _lag_of(group, position, measured, now_ms)
        self._ask_others(wanted)

    def _ask_others(self, positions: Iterable[Position]) -> None:
        """Let the other workers measure their partitions for the next scrape.

        Of more than `LOOKUPS_MAX` partitions of a worker, each scrape asks for the next ones.
        """
        for worker, of_worker in _elsewhere(self._topics, positions).items():
            peers = self._topics.peers
            assert peers is not None, "another worker keeps a partition"
            start = self._next_asked.get(worker, 0) % len(of_worker)
            asked = (of_worker[start:] + of_worker[:start])[:LOOKUPS_MAX]
            self._next_asked[worker] = start + len(asked)
            peers.measure(worker, asked, self._measured)

    def _measured(self, found: dict[Position, Measured]) -> None:
        self._elsewhere.update(found)
        self._ends.update({(name, number): one for (name, number, _), one in found.items()})


def slope_of(series: Sequence[tuple[int, float]]) -> float | None:
    """The slope of the least squares line through (ms, seconds), per second; None for one time."""
    count = len(series)
    middle_ms = sum(at_ms for at_ms, _ in series) / count
    middle_s = sum(seconds for _, seconds in series) / count
    square = sum((at_ms - middle_ms) ** 2 for at_ms, _ in series)
    if not square:
        return None
    product = sum((at_ms - middle_ms) * (seconds - middle_s) for at_ms, seconds in series)
    return 1000 * product / square


def _age_s(found: tuple[int, int] | None, now_ms: int) -> float | None:
    if found is None or found[1] == NO_TIMESTAMP:
        return None
    return max(0, now_ms - found[1]) / 1000


def _lag_of(group: str, position: Position, measured: Measured, now_ms: int) -> Lag:
    topic, partition, offset = position
    offset = max(offset, measured.log_start_offset)
    records = max(0, measured.high_watermark - offset)
    if not records or measured.timestamp is None:
        return Lag(group, topic, partition, records, 0.0)
    age_s = _age_s((offset, measured.timestamp), now_ms)
    return Lag(group, topic, partition, records, age_s)


def timestamp_at(log: Log, offset: int) -> int | None:
    """Timestamp of the first record at or after `offset`, NO_TIMESTAMP when it has none.

    Transaction markers are no records; None when only markers are left.
    """
    try:
        for _ in range(MARKERS_MAX):
            read = log.read(offset, max_bytes=1, isolation=Isolation.READ_UNCOMMITTED, min_one=True)
            entry = next(iter(scan_entries(read.records)), None)
            if entry is None:
                return None
            if not entry.is_control:
                later = (one for one in iter_records(read.records) if one.offset >= offset)
                first = next(later, None)
                return NO_TIMESTAMP if first is None else first.timestamp
            offset = entry.last_offset + 1
    except (StorageError, RecordsError):
        # A fetch of the unreadable batch reports the error; the scrape continues.
        return NO_TIMESTAMP
    return NO_TIMESTAMP

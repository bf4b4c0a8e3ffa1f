"""Records of a window of time, page by page, merged over the partitions.

A page reads every partition until it has enough records or has left the window, and merges the
heads by time, so that no partition hides another. Records that arrived late lie after the window's
end in the log: a Tidelog names the segments that can hold some, elsewhere the rest of the log is
searched up to the budget, and the page says how far it got. The cursor is an offset for each
partition.
"""

import asyncio
import heapq
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from client.aio.reading import ReadRecords
from client.core.offsets import EARLIEST, LATEST
from client.errors import BrokerRefused, ClientError, InvalidUse
from client.types import ConsumerRecord, TopicPartition
from console.data.conditions import Bounds, Condition, bounds_of, fulfils
from console.data.decoders import row_of
from console.data.hub import Hub
from protocol.records.entry import Entry
from protocol.records.layout import MAGIC_V2, TRANSACTIONAL_BIT

PAGE_BYTES: Final = 8 * 1024 * 1024
PAGE_S: Final = 3.0
PARTITIONS_MAX: Final = 64
LIMIT_MAX: Final = 1000
ORDERS: Final = ("time", "offset", "newest")

_ANSWER_BYTES: Final = 1024 * 1024
_PARTITION_BYTES: Final = 128 * 1024
_TURN_S: Final = 0.02
_EXAMINED_S: Final = 1.0
"""An answer that took the page's whole time is still examined for so long."""
_GAP_FACTOR: Final = 16
"""The search for the record before another one looks so many times as far back each time."""
_SEGMENTS_MAX: Final = 10_000

Span = tuple[int, int]
"""Offsets: the first, and one past the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Which records are asked for, and in which order; None is no bound."""

    topic: str
    from_ms: int | None = None
    to_ms: int | None = None
    chosen: frozenset[int] | None = None
    condition: Condition | None = None
    order: str = "time"
    limit: int = 100

    def __post_init__(self) -> None:
        """Refuse what cannot be meant; raises InvalidUse."""
        if self.order not in ORDERS:
            raise InvalidUse(f"order={self.order} does not exist: choose {', '.join(ORDERS)}")
        if not 1 <= self.limit <= LIMIT_MAX:
            raise InvalidUse(f"limit={self.limit} is out of range: give 1 to {LIMIT_MAX}")

    def narrowed(self) -> "Window":
        """The same window within the bounds that the condition demands anyway."""
        bounds: Bounds = bounds_of(self.condition)
        starts = [t for t in (self.from_ms, bounds.from_ms) if t is not None]
        stops = [t for t in (self.to_ms, bounds.to_ms) if t is not None]
        chosen = self.chosen
        if bounds.partitions is not None:
            chosen = bounds.partitions if chosen is None else chosen & bounds.partitions
        return replace(
            self, from_ms=max(starts, default=None), to_ms=min(stops, default=None), chosen=chosen
        )

    def holds(self, record: ConsumerRecord) -> bool:
        """Whether a record is in the window and fulfils the condition."""
        moment = record.timestamp_ms
        if self.from_ms is not None and moment < self.from_ms:
            return False
        if self.to_ms is not None and moment >= self.to_ms:
            return False
        return fulfils(self.condition, record)


@dataclass(slots=True)
class Lane:
    """One partition of a page: what is still to be read, and what was found."""

    partition: TopicPartition
    spans: list[Span]
    rows: list[ConsumerRecord] = field(default_factory=list)

    @property
    def left(self) -> int:
        """How many offsets are still to be read."""
        return sum(stop - start for start, stop in self.spans)


@dataclass(slots=True)
class Budget:
    """What one page may cost."""

    bytes_left: int = PAGE_BYTES
    deadline: float = field(default_factory=lambda: time.monotonic() + PAGE_S)
    read_bytes: int = 0
    read_records: int = 0

    @property
    def is_spent(self) -> bool:
        """Whether the page has to end here."""
        return self.bytes_left <= 0 or time.monotonic() >= self.deadline

    def spend(self, size_bytes: int, records: int) -> None:
        """Account for one answer."""
        self.bytes_left -= size_bytes
        self.read_bytes += size_bytes
        self.read_records += records


async def read_page(
    hub: Hub, window: Window, cursor: Mapping[int, int] | None = None
) -> dict[str, Any]:
    """One page of rows, and the cursor of the next page (None: there is none)."""
    records, answer = await find_records(hub, window, cursor)
    return answer | {"rows": [row_of(record) for record in records]}


async def find_records(
    hub: Hub, window: Window, cursor: Mapping[int, int] | None = None
) -> tuple[list[ConsumerRecord], dict[str, Any]]:
    """The records of one page, and what the search cost and left out."""
    window = window.narrowed()
    partitions = await hub.partitions(window.topic, window.chosen)
    if cursor is not None:
        partitions = [tp for tp in partitions if tp.partition in cursor]
    spans, late, is_by_segments = await _spans(hub, window, partitions)
    if len(partitions) > PARTITIONS_MAX:
        partitions.sort(key=lambda tp: -sum(stop - start for start, stop in spans[tp]))
    left_out = partitions[PARTITIONS_MAX:]
    is_newest = window.order == "newest"
    lanes = []
    for tp in partitions[:PARTITIONS_MAX]:
        wanted = spans[tp] if is_newest else [*spans[tp], *late[tp]]
        position = None if cursor is None else cursor[tp.partition]
        lanes.append(Lane(tp, _cut(wanted, position, is_newest=is_newest)))
    budget = Budget()
    if is_newest:
        await _fill_backwards(hub, window, lanes, budget)
    else:
        await _fill(hub, window, lanes, budget)
    taken, rest = _merge(lanes, window)
    unsearched = sum(late_stop - start for tp in spans for start, late_stop in late[tp])
    return taken, {
        "order": window.order,
        "cursor": rest,
        "read_bytes": budget.read_bytes,
        "read_records": budget.read_records,
        "offsets_left": sum(lane.left for lane in lanes),
        "late_unsearched": unsearched if is_newest else 0,
        "late_by_segments": is_by_segments,
        "partitions_left_out": len(left_out),
    }


def _cut(spans: Sequence[Span], position: int | None, *, is_newest: bool) -> list[Span]:
    """The spans from a cursor's position on, or up to it where the newest come first."""
    if position is None:
        return [span for span in spans if span[0] < span[1]]
    if is_newest:
        cut = [(start, min(stop, position)) for start, stop in spans]
    else:
        cut = [(max(start, position), stop) for start, stop in spans]
    return [span for span in cut if span[0] < span[1]]


async def _spans(
    hub: Hub, window: Window, partitions: Sequence[TopicPartition]
) -> tuple[dict[TopicPartition, list[Span]], dict[TopicPartition, list[Span]], bool]:
    """(the window's offsets, where late records of it can be, whether segments say the latter)."""
    admin = hub.admin
    starts = await admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
    ends = await admin.list_offsets(dict.fromkeys(partitions, LATEST))
    firsts = (
        await admin.list_offsets(dict.fromkeys(partitions, max(0, window.from_ms)))
        if window.from_ms is not None
        else starts
    )
    stops = (
        await admin.list_offsets(dict.fromkeys(partitions, max(0, window.to_ms)))
        if window.to_ms is not None
        else ends
    )
    spans: dict[TopicPartition, list[Span]] = {}
    late: dict[TopicPartition, list[Span]] = {}
    for tp in partitions:
        end = hit.offset if (hit := ends[tp]) else 0
        first = hit.offset if (hit := firsts[tp]) else end
        stop = hit.offset if (hit := stops[tp]) else end
        spans[tp] = [(first, max(first, stop))]
        late[tp] = [(max(first, stop), end)] if max(first, stop) < end else []
    by_segments = False
    if any(late.values()) and window.to_ms is not None:
        by_segments = await _prune(hub, window, late)
    return spans, late, by_segments


async def _prune(hub: Hub, window: Window, late: dict[TopicPartition, list[Span]]) -> bool:
    """Leave of the spans what lies in segments with records of the window, if a Tidelog says."""
    if not (await hub.kind()).has_metrics_port:
        return False
    for tp in [tp for tp, spans in late.items() if spans][:PARTITIONS_MAX]:
        asked = {"topic": tp.topic, "partition": tp.partition, "limit": _SEGMENTS_MAX}
        try:
            document = await hub.ask_tidelog("/segments", asked)
        except ClientError:
            return False
        start, end = late[tp][0]
        late[tp] = [
            span
            for one in document["segments"]
            if _can_hold(one, window)
            and (span := (max(start, one["base_offset"]), min(end, one["next_offset"])))
            and span[0] < span[1]
        ]
        if document.get("next") is not None:
            late[tp].append((max(start, document["segments"][-1]["next_offset"]), end))
    return True


def _can_hold(segment: Mapping[str, Any], window: Window) -> bool:
    low, high = segment["min_timestamp"], segment["data_max_timestamp"]
    is_after = low is not None and window.to_ms is not None and low >= window.to_ms
    is_before = high is not None and window.from_ms is not None and high < window.from_ms
    return not (is_after or is_before)


async def _fill(hub: Hub, window: Window, lanes: Sequence[Lane], budget: Budget) -> None:
    """Read forwards until each lane has a page's records or nothing left."""
    while not budget.is_spent:
        hungry = [lane for lane in lanes if lane.spans and len(lane.rows) < window.limit]
        if not hungry:
            return
        offsets = {lane.partition: lane.spans[0][0] for lane in hungry}
        found = await hub.admin.read_records(
            offsets, max_bytes=_ANSWER_BYTES, partition_max_bytes=_share(len(hungry))
        )
        deadline = max(budget.deadline, time.monotonic() + _EXAMINED_S)
        for lane in hungry:
            read = found.get(lane.partition)
            spans = lane.spans
            # Without bytes a partition has none left, or the others have filled the answer.
            records = (
                _advance(lane, read, budget)
                if read is not None and read.size_bytes
                else await _read_alone(hub, lane, budget)
            )
            selected, unexamined = await select(records, window.holds, deadline)
            lane.rows += selected
            if unexamined is not None:
                lane.spans = [(unexamined.offset, spans[0][1]), *spans[1:]]


async def select(
    records: Sequence[ConsumerRecord],
    holds: Callable[[ConsumerRecord], bool],
    deadline: float | None = None,
) -> tuple[list[ConsumerRecord], ConsumerRecord | None]:
    """(the records that `holds` accepts, the first that the deadline left unexamined).

    A filter by content decodes each record, so other requests get their turn in between, and at
    least one record is examined.
    """
    selected: list[ConsumerRecord] = []
    turn_ends = time.monotonic() + _TURN_S
    for record in records:
        now = time.monotonic()
        if deadline is not None and now >= deadline and record is not records[0]:
            return selected, record
        if now >= turn_ends:
            await asyncio.sleep(0)
            turn_ends = time.monotonic() + _TURN_S
        if holds(record):
            selected.append(record)
    return selected, None


def _advance(lane: Lane, read: ReadRecords, budget: Budget) -> list[ConsumerRecord]:
    """The records of an answer that are in the lane's span, which starts after them then."""
    start, stop = lane.spans[0]
    budget.spend(read.size_bytes, len(read.records))
    # Nothing came although offsets are left: compaction has removed them.
    reached = read.next_offset if read.next_offset > start else stop
    rest = [(reached, stop)] if reached < stop else []
    lane.spans = [*rest, *lane.spans[1:]]
    return [record for record in read.records if record.offset < stop]


async def _read_alone(hub: Hub, lane: Lane, budget: Budget) -> list[ConsumerRecord]:
    found = await hub.admin.read_records(
        {lane.partition: lane.spans[0][0]},
        max_bytes=_ANSWER_BYTES,
        partition_max_bytes=_ANSWER_BYTES,
    )
    return _advance(lane, found[lane.partition], budget)


def _share(partitions: int) -> int:
    return max(16 * 1024, min(_PARTITION_BYTES, _ANSWER_BYTES // partitions))


async def _fill_backwards(
    hub: Hub, window: Window, lanes: Sequence[Lane], budget: Budget
) -> None:
    """Read from the ends back until each lane has a page's records or nothing left."""
    step = window.limit
    while not budget.is_spent:
        hungry = [lane for lane in lanes if lane.spans and len(lane.rows) < window.limit]
        if not hungry:
            return
        for lane in hungry:
            start, stop = lane.spans[0]
            low = max(start, stop - step)
            block: list[ConsumerRecord] = []
            part = Lane(lane.partition, [(low, stop)])
            while part.spans and not budget.is_spent:
                block += await _read_alone(hub, part, budget)
            if part.spans:
                return  # the budget ended inside the block: it is read again for the next page
            selected, _ = await select(block, window.holds)
            lane.rows = selected + lane.rows
            lane.spans = [(start, low)] if start < low else []
        step = min(4 * step, 100_000)


def _merge(
    lanes: Sequence[Lane], window: Window
) -> tuple[list[ConsumerRecord], dict[str, int] | None]:
    """The page's records from the heads of all lanes, and where the next page starts."""
    is_newest = window.order == "newest"
    ordered = [lane.rows[::-1] if is_newest else lane.rows for lane in lanes]
    heads = [
        (_rank(rows[0], window.order), index) for index, rows in enumerate(ordered) if rows
    ]
    heapq.heapify(heads)
    taken: list[ConsumerRecord] = []
    used = [0] * len(lanes)
    while heads and len(taken) < window.limit:
        _, index = heapq.heappop(heads)
        taken.append(ordered[index][used[index]])
        used[index] += 1
        if used[index] < len(ordered[index]):
            heapq.heappush(heads, (_rank(ordered[index][used[index]], window.order), index))
    cursor = {}
    for index, lane in enumerate(lanes):
        if used[index] < len(ordered[index]):
            offset = ordered[index][used[index]].offset
            cursor[str(lane.partition.partition)] = offset + 1 if is_newest else offset
        elif lane.spans:
            cursor[str(lane.partition.partition)] = lane.spans[-1][1] if is_newest else (
                lane.spans[0][0]
            )
    if window.order != "offset":
        # A late record is where the log has it; on its page it stands where its time is.
        taken.sort(key=lambda record: _rank(record, window.order))
    return taken, cursor or None


def _rank(record: ConsumerRecord, order: str) -> tuple[int, int, int]:
    if order == "offset":
        return (record.partition, record.offset, 0)
    if order == "newest":
        return (-record.timestamp_ms, record.partition, -record.offset)
    return (record.timestamp_ms, record.partition, record.offset)


async def read_one(
    hub: Hub, partition: TopicPartition, offset: int
) -> tuple[ConsumerRecord, Entry]:
    """The record at an offset, and the header of its batch.

    Raises:
        InvalidUse: there is none: compaction removed it, or a marker is there.
        BrokerRefused: the offset is outside the log.
    """
    found = await hub.admin.read_records(
        {partition: offset}, max_bytes=_ANSWER_BYTES, partition_max_bytes=64 * 1024
    )
    read = found[partition]
    for record in read.records:
        if record.offset == offset and read.first_batch is not None:
            return record, read.first_batch
    raise InvalidUse(
        f"{partition} has no record at offset {offset}: it was removed by compaction or retention, "
        "is the mark of a transaction, or does not exist yet"
    )


async def neighbours_of(
    hub: Hub, partition: TopicPartition, offset: int
) -> tuple[ConsumerRecord | None, ConsumerRecord | None]:
    """The records before and after an offset, also where compaction has left gaps between them.

    None is the end of the log, or a gap that is too wide to look across.
    """
    try:
        starts = await hub.admin.list_offsets({partition: EARLIEST})
        ends = await hub.admin.list_offsets({partition: LATEST})
        first = hit.offset if (hit := starts[partition]) else 0
        end = hit.offset if (hit := ends[partition]) else 0
        return await _last_before(hub, partition, first, offset), await _first_in(
            hub, Lane(partition, [(offset + 1, end)] if offset + 1 < end else [])
        )
    except BrokerRefused:
        return None, None


async def _first_in(hub: Hub, lane: Lane) -> ConsumerRecord | None:
    budget = Budget(bytes_left=_ANSWER_BYTES)
    while lane.spans and not budget.is_spent:
        if found := await _read_batch(hub, lane, budget):
            return found[0]
    return None


async def _last_before(
    hub: Hub, partition: TopicPartition, first: int, offset: int
) -> ConsumerRecord | None:
    budget = Budget(bytes_left=_ANSWER_BYTES)
    stop, step = offset, 1
    while first < stop:
        lane = Lane(partition, [(max(first, stop - step), stop)])
        last: ConsumerRecord | None = None
        stop, step = lane.spans[0][0], step * _GAP_FACTOR
        while lane.spans:
            if budget.is_spent:
                return None
            found = await _read_batch(hub, lane, budget)
            last = found[-1] if found else last
        if last is not None:
            return last
    return None


async def _read_batch(hub: Hub, lane: Lane, budget: Budget) -> list[ConsumerRecord]:
    found = await hub.admin.read_records({lane.partition: lane.spans[0][0]}, partition_max_bytes=1)
    return _advance(lane, found[lane.partition], budget)


def batch_of(entry: Entry) -> dict[str, Any]:
    """The facts about a record's batch; a wrapper of the old formats counts as one."""
    is_v2 = entry.magic >= MAGIC_V2
    return {
        # The header of an old wrapper has the last offset alone.
        "first_offset": entry.base_offset if is_v2 else None,
        "last_offset": entry.last_offset,
        "records": entry.records_count if is_v2 else None,
        "size_bytes": entry.size,
        "format": entry.magic,
        "codec": entry.codec.name.lower(),
        "producer_id": entry.producer_id if is_v2 and entry.producer_id >= 0 else None,
        "base_sequence": entry.base_sequence if is_v2 and entry.producer_id >= 0 else None,
        "is_transactional": is_v2 and bool(entry.attributes & TRANSACTIONAL_BIT),
    }

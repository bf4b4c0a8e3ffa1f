"""Groups: how far behind they are in records and in time, whether that grows, and moving them.

Lag in time is the age of the first record that is not committed. A record's time at an offset never
changes, so it is read once for each committed offset. The trend is a line through the last samples,
which are taken every ten seconds while the pages of groups are used.
"""

import asyncio
import time
from array import array
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from statistics import StatisticsError, linear_regression
from typing import Any, Final, NamedTuple

from client.core.offsets import EARLIEST, LATEST
from client.descriptions import GroupInfo, GroupListing
from client.errors import BrokerRefused, ClientError, InvalidUse
from client.types import OffsetAndMetadata, TopicPartition
from console.data.decoders import preview
from console.data.hub import Hub
from protocol.error_codes import ErrorCode
from protocol.records.layout import NO_TIMESTAMP

SAMPLE_S: Final = 10.0
SAMPLES_KEPT: Final = 360
TREND_SAMPLES: Final = 10
SERIES_MAX: Final = 2000
READS_MAX: Final = 100
"""Committed offsets whose record is read for its time, in one refresh."""
GROUPS_MAX: Final = 50
STEP_BACK_MS: Final = 60_000
"""Samples further ahead of the clock than this are from before it was set back."""
IDLE_S: Final = 600.0
"""Without a question for so long, sampling ends."""
STEADY: Final = 0.05
"""A trend below this share of real time is none."""

PREVIEWS_MAX: Final = 50
"""Positions of a preview whose records are read."""


class Sample(NamedTuple):
    """How a group stood at a time: all its partitions together."""

    at_ms: int
    records: int
    lag_ms: int
    committed: int
    ends: int


_WIDTH: Final = len(Sample._fields)


class Trend(NamedTuple):
    """Where the lag is going.

    Attributes:
        slope: seconds of lag per second; None with too few samples.
        catch_up_s: until it is gone at this rate, None for never or unknown.
        sentence: the same in words.
    """

    slope: float | None
    catch_up_s: float | None
    sentence: str


def trend_of(samples: Sequence[Sample]) -> Trend:
    """The trend of the newest samples, by least squares."""
    recent = samples[-TREND_SAMPLES:]
    if len(recent) < 3:
        return Trend(None, None, "The trend needs three samples, ten seconds apart.")
    seconds = [sample.at_ms / 1000 for sample in recent]
    slope = slope_of(seconds, [sample.lag_ms / 1000 for sample in recent])
    committed = slope_of(seconds, [sample.committed for sample in recent])
    produced = slope_of(seconds, [sample.ends for sample in recent])
    last = recent[-1]
    if last.records == 0:
        return Trend(slope, 0.0, "The group has read everything.")
    gain = committed - produced
    catch_up_s = last.records / gain if gain > 0 else None
    if abs(slope) <= STEADY:
        sentence = "The lag is steady."
    elif slope < 0:
        sentence = "The lag shrinks."
    elif recent[-1].records <= recent[0].records and produced <= 0:
        sentence = "The lag grows in time but not in records: nothing new is produced."
    elif committed <= 0:
        sentence = "The lag grows: the group has stopped."
    else:
        sentence = "The lag grows: the group is slower than the producers."
    return Trend(slope, catch_up_s, sentence)


def slope_of(at: Sequence[float], values: Sequence[float]) -> float:
    """The slope of the line of least squares; 0 where all points are at one time."""
    try:
        return linear_regression(at, values).slope
    except StatisticsError:
        return 0.0


class Series:
    """The newest samples of one group, at most `SAMPLES_KEPT`, as numbers in one array.

    As tuples those of `SERIES_MAX` groups would be 170 MB; so they are 29 MB.
    """

    __slots__ = ("_numbers",)

    def __init__(self) -> None:
        """Without samples."""
        self._numbers = array("q")

    def __len__(self) -> int:
        """How many samples there are."""
        return len(self._numbers) // _WIDTH

    def add(self, sample: Sample) -> None:
        """Keep a sample; the oldest one goes when there are too many."""
        if len(self) >= SAMPLES_KEPT:
            del self._numbers[:_WIDTH]
        self._numbers.extend(sample)

    def drop_after(self, time_ms: int) -> None:
        """Forget the samples that are later than a time."""
        while self._numbers and self._numbers[-_WIDTH] > time_ms:
            del self._numbers[-_WIDTH:]

    def samples(self) -> list[Sample]:
        """The samples, oldest first."""
        numbers = iter(self._numbers)
        return [Sample(*values) for values in zip(*[numbers] * _WIDTH, strict=True)]

    @property
    def newest_ms(self) -> int | None:
        """The time of the newest sample."""
        return self._numbers[-_WIDTH] if self._numbers else None


class LagWatch:
    """Describes groups, and keeps samples of their lag. Belongs to one event loop."""

    def __init__(self, hub: Hub) -> None:
        """Watch nothing yet."""
        self._hub = hub
        self._series: OrderedDict[str, Series] = OrderedDict()
        self._times: OrderedDict[tuple[TopicPartition, int], int] = OrderedDict()
        self._asked_at = 0.0
        self._sampler: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """End sampling."""
        if self._sampler is not None:
            self._sampler.cancel()
            await asyncio.gather(self._sampler, return_exceptions=True)

    async def listed(self) -> dict[str, Any]:
        """All groups by name, the first of them with their lag, and the latest of each topic."""
        self._keep_sampling()
        groups = await self._hub.admin.groups()
        rows = [
            {
                "group": one.group_id,
                "state": one.state,
                "type": one.group_type or "classic",
                "protocol": one.protocol_type,
            }
            for one in groups
        ]
        lags = await asyncio.gather(*(self._summary(one) for one in groups[:GROUPS_MAX]))
        latest: dict[str, dict[str, Any]] = {}
        for row, (lag, of_topics) in zip(rows, lags, strict=False):
            row |= lag
            for topic, behind in of_topics.items():
                if topic not in latest or _is_later(behind, latest[topic]):
                    latest[topic] = {"group": row["group"], **behind}
        return {"groups": rows, "with_lag": min(len(rows), GROUPS_MAX), "topics": latest}

    async def _summary(
        self, group: GroupListing
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """(the group's lag, its lag in each topic)."""
        group_id = group.group_id
        try:
            rows = await self._positions(group_id, None, is_share=_is_share(group))
        except ClientError as error:
            return {"error": str(error)}, {}
        sample = _sample(rows, await self._hub.now_ms())
        self._keep(group_id, sample)
        by_topic: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            if row["position"] is not None:
                by_topic.setdefault(row["topic"], []).append(row)
        of_topics = {topic: _lag_of(some) for topic, some in by_topic.items()}
        lag = _lag_of(rows)
        slope = self._trend(group_id, lag).slope
        return {**lag, "slope": slope}, of_topics

    def _trend(self, group_id: str, lag: Mapping[str, Any]) -> Trend:
        if lag["lag_ms"] is None:
            return Trend(None, None, "The next records carry no time, or could not be read, so the lag has none.")
        return trend_of(self._series[group_id].samples())

    async def described(self, group_id: str) -> dict[str, Any]:
        """One group: members, positions with both lags, samples and the trend."""
        self._keep_sampling()
        is_share = any(
            one.group_id == group_id and _is_share(one) for one in await self._hub.admin.groups()
        )
        if is_share:
            info = await self._hub.admin.describe_share_group(group_id)
        else:
            info = await self._hub.admin.describe_group(group_id)
        rows = await self._positions(group_id, info, is_share=is_share)
        self._keep(group_id, _sample(rows, await self._hub.now_ms()))
        samples = self._series[group_id].samples()
        return {
            "group": group_id,
            "is_share": is_share,
            "state": info.state,
            "protocol": info.protocol_type,
            "assignor": info.assignor,
            "members": [
                {
                    "member_id": member.member_id,
                    "instance_id": member.instance_id,
                    "client_id": member.client_id,
                    "host": member.client_host,
                    "partitions": [str(tp) for tp in member.partitions],
                }
                for member in info.members
            ],
            "positions": rows,
            "samples": [[s.at_ms, s.records, s.lag_ms] for s in samples],
            **_lag_of(rows),
            "trend": self._trend(group_id, _lag_of(rows))._asdict(),
        }

    async def _positions(
        self, group_id: str, info: GroupInfo | None, *, is_share: bool
    ) -> list[dict[str, Any]]:
        """The partitions of a group with both lags.

        What retention has deleted unread is in no lag; `lost` counts it. The position of a share
        group is its first record that is not done, and its lag leaves out those done after it.
        """
        places = await self._places(group_id, is_share=is_share)
        owners: dict[TopicPartition, list[str]] = {}
        for member in info.members if info else ():
            for tp in member.partitions:
                owners.setdefault(tp, []).append(member.client_id)
        topics = await self._hub.named({tp.topic for tp in {*places, *owners}})
        partitions = [
            tp
            for tp in sorted({*places, *owners})
            if tp.topic in topics and tp.partition in topics[tp.topic].partitions
        ]
        admin = self._hub.admin
        ends = await admin.list_offsets(dict.fromkeys(partitions, LATEST))
        starts = await admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
        rows: list[dict[str, Any]] = []
        behind: dict[TopicPartition, int] = {}
        for tp in partitions:
            position, open_records = places.get(tp, (None, None))
            end = hit.offset if (hit := ends[tp]) else 0
            start = hit.offset if (hit := starts[tp]) else 0
            first = None if position is None else max(position, min(start, end))
            lag = None if first is None else max(0, end - first)
            if lag is not None and open_records is not None:
                lag = min(lag, open_records)
            if lag and first is not None:
                behind[tp] = first
            rows.append(
                {
                    "topic": tp.topic,
                    "partition": tp.partition,
                    "position": position,
                    "lost": 0 if position is None or first is None else first - position,
                    "end": end,
                    "lag": lag,
                    "client_id": ", ".join(sorted(set(owners.get(tp, ())))) or None,
                }
            )
        times = await self._times_at(behind)
        now_ms = await self._hub.now_ms()
        for row in rows:
            tp = TopicPartition(row["topic"], row["partition"])
            row["first_ms"] = times.get(tp)
            row["lag_ms"] = _age(row["first_ms"], now_ms, is_behind=tp in behind)
        return rows

    async def _places(
        self, group_id: str, *, is_share: bool
    ) -> dict[TopicPartition, tuple[int | None, int | None]]:
        """(position, for a share group how many records from there on are not done) by partition."""
        if is_share:
            found = await self._hub.admin.share_group_offsets(group_id)
            return {tp: (one.start_offset, one.lag) for tp, one in found.items()}
        committed = await self._hub.admin.group_offsets(group_id)
        return {tp: (one.offset, None) for tp, one in committed.items()}

    async def _times_at(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The times of the records at these offsets, or of the next ones."""
        unknown = [tp for tp in offsets if (tp, offsets[tp]) not in self._times][:READS_MAX]
        await asyncio.gather(*(self._read_time(tp, offsets[tp]) for tp in unknown))
        while len(self._times) > SERIES_MAX:
            self._times.popitem(last=False)
        return {
            tp: self._times[tp, offset]
            for tp, offset in offsets.items()
            if (tp, offset) in self._times
        }

    async def _read_time(self, tp: TopicPartition, offset: int) -> None:
        # A position that retention has passed, or a topic that has just been deleted: no time.
        with suppress(ClientError):
            found = await self._hub.admin.read_records({tp: offset}, partition_max_bytes=1)
            if found[tp].records:
                self._times[tp, offset] = found[tp].records[0].timestamp_ms

    # Samples.

    def _keep(self, group_id: str, sample: Sample) -> None:
        series = self._series.setdefault(group_id, Series())
        series.drop_after(sample.at_ms + STEP_BACK_MS)
        newest_ms = series.newest_ms
        if newest_ms is None or sample.at_ms - newest_ms >= SAMPLE_S * 900:
            series.add(sample)
        self._series.move_to_end(group_id)
        while len(self._series) > SERIES_MAX:
            self._series.popitem(last=False)

    def _keep_sampling(self) -> None:
        self._asked_at = time.monotonic()
        if self._sampler is None or self._sampler.done():
            self._sampler = asyncio.get_running_loop().create_task(self._sample_groups())

    async def _sample_groups(self) -> None:
        while time.monotonic() - self._asked_at < IDLE_S:
            await asyncio.sleep(SAMPLE_S)
            with suppress(ClientError):
                for group in (await self._hub.admin.groups())[:GROUPS_MAX]:
                    await self._summary(group)


def _is_share(group: GroupListing) -> bool:
    return group.group_type.lower() == "share"


def _age(first_ms: int | None, now_ms: int, *, is_behind: bool) -> int | None:
    """The age of the first record that is not committed; None without one, or without its time."""
    if not is_behind:
        return 0
    return None if first_ms is None or first_ms == NO_TIMESTAMP else max(0, now_ms - first_ms)


def _lag_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The lag of positions together; that in time is None where none of those behind has one."""
    records = sum(row["lag"] or 0 for row in rows)
    ages = [row["lag_ms"] for row in rows if row["lag"] and row["lag_ms"] is not None]
    return {"records": records, "lag_ms": max(ages, default=None if records else 0)}


def _is_later(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    def rank(lag: Mapping[str, Any]) -> tuple[int, int]:
        return lag["lag_ms"] or 0, lag["records"]

    return rank(one) > rank(other)


def _sample(rows: Sequence[Mapping[str, Any]], now_ms: int) -> Sample:
    known = [row for row in rows if row["position"] is not None]
    return Sample(
        at_ms=now_ms,
        records=sum(row["lag"] for row in known),
        lag_ms=max((row["lag_ms"] or 0 for row in known), default=0),
        committed=sum(row["position"] for row in known),
        ends=sum(row["end"] for row in known),
    )


async def readers_of(hub: Hub, topic: str) -> dict[str, Any]:
    """The positions of groups in a topic, as far as the first `GROUPS_MAX` groups have some.

    `groups_unknown` is how many groups may have others: further ones, and those that the brokers
    did not answer for.
    """
    groups = await hub.admin.groups()
    asked = groups[:GROUPS_MAX]
    answers = await asyncio.gather(*(_offsets_of(hub, one.group_id) for one in asked))
    return {
        "readers": [
            {"group": group.group_id, "partition": tp.partition, "position": position.offset}
            for group, positions in zip(asked, answers, strict=True)
            for tp, position in (positions or {}).items()
            if tp.topic == topic
        ],
        "groups_unknown": len(groups) - len(asked) + answers.count(None),
    }


async def _offsets_of(
    hub: Hub, group_id: str
) -> dict[TopicPartition, OffsetAndMetadata] | None:
    try:
        return await hub.admin.group_offsets(group_id)
    except BrokerRefused:
        return None


# Moving a group.


async def preview_reset(
    hub: Hub, group_id: str, target: int, topics: Sequence[str]
) -> dict[str, Any]:
    """Where each position would go, and the record found there; nothing is changed.

    `target` is a time in ms, or `EARLIEST` or `LATEST`.

    Raises:
        InvalidUse: the group has no positions, and no topic is named.
    """
    await hub.admin.require_no_members(group_id)
    committed = await hub.admin.group_offsets(group_id)
    known = await hub.named({*topics, *(tp.topic for tp in committed)}, is_fresh=True)
    partitions = [tp for tp in committed if not topics or tp.topic in topics]
    partitions += [
        TopicPartition(name, number)
        for name in topics
        if name in known
        for number in known[name].partitions
    ]
    partitions = sorted(
        {tp for tp in partitions if tp.topic in known and tp.partition in known[tp.topic].partitions}
    )
    if not partitions:
        raise InvalidUse(f"group {group_id} has no positions to move: name a topic")
    wanted = dict.fromkeys(partitions, target)
    found = await hub.admin.first_records(wanted)
    ends = await hub.admin.list_offsets(dict.fromkeys(partitions, LATEST))
    rows = []
    for tp in partitions:
        end = hit.offset if (hit := ends[tp]) else 0
        there = found[tp]
        then = end if there is None else there.offset
        now = committed[tp].offset if tp in committed else None
        rows.append(
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "now": now,
                "then": then,
                "moved": 0 if now is None else now - then,
                "is_end": there is None or then >= end,
            }
        )
    await asyncio.gather(*(add_neighbours(hub, row) for row in rows[:PREVIEWS_MAX]))
    return {"group": group_id, "target": target, "positions": rows}


async def add_neighbours(hub: Hub, row: dict[str, Any]) -> None:
    """The record that would be read next, and the one before it."""
    tp = TopicPartition(row["topic"], row["partition"])
    first = max(0, row["then"] - 1)
    with suppress(ClientError):
        try:
            found = await hub.admin.read_records({tp: first}, partition_max_bytes=1)
        except BrokerRefused:
            found = await hub.admin.read_records({tp: row["then"]}, partition_max_bytes=1)
        records = found[tp].records
        if records and records[-1].offset < row["then"] and not row["is_end"]:
            more = await hub.admin.read_records({tp: row["then"]}, partition_max_bytes=1)
            records = records + more[tp].records
        for record in records:
            if record.offset < row["then"]:
                row["before"] = _neighbour(record)
            elif "at" not in row:
                row["at"] = _neighbour(record)


def _neighbour(record: Any) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "time_ms": record.timestamp_ms,
        "key": preview(record.key),
    }


async def commit_reset(
    hub: Hub, group_id: str, positions: Mapping[TopicPartition, tuple[int | None, int]]
) -> dict[str, Any]:
    """Move the positions from the previewed offsets to the previewed ones: (now, then) of each.

    Raises:
        InvalidUse: a position is not where the preview saw it.
        BrokerRefused: the group has members.
    """
    await hub.admin.require_no_members(group_id)
    committed = await hub.admin.group_offsets(group_id)
    for tp, (now, _) in positions.items():
        present = committed[tp].offset if tp in committed else None
        if present != now:
            raise InvalidUse(
                f"{group_id} has moved since the preview: {tp} is at {present}, was at {now}; "
                "look again"
            )
    await hub.admin.alter_group_offsets(
        group_id, {tp: then for tp, (_, then) in positions.items()}
    )
    return {"group": group_id, "moved": len(positions)}


TARGETS: Final = {"earliest": EARLIEST, "latest": LATEST}

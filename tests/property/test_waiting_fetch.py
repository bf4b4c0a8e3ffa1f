"""Whatever happens while a fetch waits: the lane of Fetch answers as the general way does.

As in `test_fetch_lane`, two brokers with the same logs get the same requests. One reader on each
waits at the end of what it reads, while records come, time passes, topics lose records or go away,
and the reader sends more or leaves. `WAITING_FETCH_SEEDS` says how many such runs there are.
"""

import os
import random
from pathlib import Path
from typing import Any

import pytest

from protocol.api.api_versions import ApiVersionsRequest
from protocol.api.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.property.test_fetch_lane import LANES, Client, Side, _append, _pair

SEEDS = int(os.environ.get("WAITING_FETCH_SEEDS", "2"))
STEPS = 120
READ = ("plain", "segmented", "zstd", "open", "aborted", "cut", "empty")


class Reader(Client):
    """Asks for what comes after the end of some partitions."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.session: tuple[int, int, bool] | None = None

    def waiting(self, side: Side) -> tuple[FetchRequest, int]:
        rng = self.random
        version = rng.choice(range(4, 19))
        topics = []
        names = READ if self.chance(0.4) else ("plain", "segmented", "cut")
        for name in rng.sample(names, rng.choice([1, 1, 1, 2])):
            topic = side.broker.topics.find(name)
            if topic is None:
                continue
            asked = []
            for number in rng.sample(range(2), rng.choice([1, 1, 2])):
                end = topic.logs[number].log_end_offset
                offset = end if self.chance(0.97) else end + rng.choice([-1, 1])
                size = 1_048_576 if self.chance(0.9) else 100
                asked.append(
                    FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=size)
                )
            topics.append(FetchTopic(topic=name, topic_id=topic.topic_id, partitions=asked))
        message = FetchRequest(
            max_wait_ms=rng.choice([100, 1_000, 400_000]),
            min_bytes=rng.choice([1, 1, 1, 0, 200, 5_000]),
            max_bytes=50_000_000,
            isolation_level=rng.choice([0, 0, 1]),
            topics=topics,
        )
        if version >= 7 and self.chance(0.8):
            message.session_epoch = 0
            if self.session is not None and self.session[2] == (version >= 13):
                message.session_id, message.session_epoch = self.session[:2]
                if self.chance(0.3):
                    message.topics = []
        return message, version


def sessions_of(side: Side) -> list[Any]:
    """The sessions without their last use, which the lane notes with the answer."""
    *_, sessions = side.fetch_state()
    return sorted((*before, targets) for *before, _, targets in sessions)


class Pair:
    """Does the same to both brokers, and compares what they write."""

    def __init__(self, sides: list[Side]) -> None:
        self.sides = sides
        self.ids = [{topic.name: topic.topic_id for topic in side.broker.topics} for side in sides]

    def read(self, data: bytes, reads: int = 1) -> None:
        """Let both readers send `data` in so many reads, with the ids of their own topics."""
        other = data
        for name, known in self.ids[0].items():
            other = other.replace(known, self.ids[1][name])
        size = -(-len(data) // reads)
        for side, sent in zip(self.sides, (data, other), strict=True):
            for position in range(0, len(sent), size):
                side.read(sent[position : position + size])

    async def compare(self) -> tuple[bytes, bool]:
        (answers, closed), (others, others_closed) = (side.written() for side in self.sides)
        for name, known in self.ids[0].items():
            others = others.replace(self.ids[1][name], known)
        assert others.hex() == answers.hex()
        assert others_closed == closed
        busy = [side.connection.is_busy for side in self.sides]
        assert busy[0] == busy[1]
        waiters = [len(side.dispatcher.context.fetch_waiters) for side in self.sides]
        assert waiters[0] == waiters[1]
        if not busy[0]:
            assert sessions_of(self.sides[1]) == sessions_of(self.sides[0])
            assert self.sides[1].fetch_state()[:6] == self.sides[0].fetch_state()[:6]
        return answers, closed

    def append(self, name: str, partition: int, seed: int) -> None:
        """Append a batch, and let those that wait for it know."""
        for side in self.sides:
            log = side.broker.topics.led_log(name, partition)
            size = log.segments.active.size
            _append(log, name, 7, random.Random(seed))
            grown = max(1, log.segments.active.size - size)
            side.broker.group_commit.appended(log, grown)

    async def lose(self, name: str) -> None:
        """Delete the first records of a topic, as DeleteRecords does."""
        for side in self.sides:
            log = side.broker.topics.led_log(name, 0)
            log.advance_log_start(log.high_watermark)
            side.dispatcher.context.fetch_waiters.log_changed(log)

    async def delete(self, name: str) -> None:
        for side in self.sides:
            await side.broker.topics.delete(name)

    def reconnect(self) -> None:
        """Connect again, without the sessions: one whose fetch had no answer is of no more use."""
        for side in self.sides:
            side.dispatcher.context.fetch_sessions._sessions.clear()
            side.connection.connection_lost(None)
            side.written()
            side.connect()

    def advance(self, delta_ms: int) -> None:
        """Let time pass; both brokers have the same clock."""
        self.sides[0].dispatcher.context.clock.advance(delta_ms)  # type: ignore[attr-defined]


@pytest.mark.parametrize("flavour", LANES)
@pytest.mark.parametrize("seed", range(SEEDS))
async def test_the_lane_answers_a_fetch_that_waited_as_the_general_way_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flavour: str, seed: int
) -> None:
    sides = await _pair(tmp_path, monkeypatch, flavour)
    pair, reader = Pair(sides), Reader(seed)
    rng, kinds = reader.random, dict.fromkeys(("append", "time", "more", "leave", "other"), 0)
    gone: set[str] = set()
    try:
        for step in range(STEPS):
            pair.read(reader.frame(*reader.waiting(sides[0])))
            _, closed = await pair.compare()
            for _ in range(8):
                if not sides[0].connection.is_busy or closed:
                    break
                chance = rng.random()
                if chance < 0.6:
                    name = rng.choice([name for name in READ if name not in gone])
                    pair.append(name, rng.randrange(2), rng.randrange(1_000))
                    kinds["append"] += 1
                elif chance < 0.8:
                    pair.advance(rng.choice([10, 100, 2_000]))
                    kinds["time"] += 1
                elif chance < 0.87:
                    second = reader.waiting(sides[0]) if reader.chance(0.5) else None
                    made: tuple[Any, int] = second or (ApiVersionsRequest(), 0)
                    pair.read(reader.frame(*made), reads=rng.choice([1, 2]))
                    kinds["more"] += 1
                elif chance < 0.9:
                    pair.reconnect()
                    kinds["leave"] += 1
                elif chance < 0.95:
                    await pair.lose(rng.choice([name for name in READ if name not in gone]))
                    kinds["other"] += 1
                elif step > STEPS // 2 and len(gone) < 2:
                    gone.add(name := rng.choice([name for name in READ if name not in gone]))
                    await pair.delete(name)
                    kinds["other"] += 1
                _, closed = await pair.compare()
            while sides[0].connection.is_busy and not closed:
                pair.advance(400_000)
                _, closed = await pair.compare()
            if closed:
                pair.reconnect()
            known = list(sides[0].dispatcher.context.fetch_sessions._sessions.values())
            found = rng.choice(known) if known else None
            reader.session = (
                None if found is None else (found.id, found.next_epoch, found.uses_topic_ids)
            )
    finally:
        for side in sides:
            side.connection.connection_lost(None)
            await side.broker.stop()
    assert min(kinds.values()) > 1, kinds
    assert sides[0].fetches > STEPS // 2
    assert sides[0].fetches - sides[1].fetches > 15, "the lane served too few requests"

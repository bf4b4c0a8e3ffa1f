"""Whatever a client fetches: the lane of Fetch answers as the general way does.

Two brokers with the same logs get the same bytes in the same reads, one through `Connection` alone,
one through `LaneConnection`. After each read the answers have to be equal, the sessions and the
counters.
"""

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from broker.group_commit import GroupCommit
from broker.node import Broker
from broker.replies import turns
from protocol.api.api_versions import ApiVersionsRequest
from protocol.api.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from protocol.api_keys import ApiKey
from protocol.declare.primitives import message_spec
from protocol.headers import RequestHeader, encode_request_header
from protocol.records.builder import build_batch
from protocol.records.layout import Codec
from protocol.records.record import Record
from protocol.registry import encode_request
from storage.append.plan import Origin
from tests.property import test_produce_lane as produce_side
from tests.support.clock import FrozenClock
from tests.support.logs import marker

NOW_MS = produce_side.NOW_MS
PARTITIONS = produce_side.PARTITIONS
TOPICS = {
    "plain": "only usual batches",
    "large": "batches of up to 200 KB",
    "segmented": "many segments",
    "zstd": "some batches of zstd",
    "open": "a transaction that has not ended",
    "aborted": "a transaction that was aborted",
    "cut": "its first records are deleted",
    "empty": "nothing",
}

USUAL = ["plain", "large", "segmented", "aborted"]

LANES = produce_side.LANES


class Side(produce_side.Side):
    """One of the two brokers; it counts the Fetch requests that go the general way."""

    def __init__(self, broker: Broker, lanes: produce_side.Lanes | None) -> None:
        self.fetches = self.large_bytes = 0
        super().__init__(broker, lanes)
        dispatch = self.dispatcher.dispatch
        count_read = broker.connections.turns.count_read

        def counted_read(size_bytes: int) -> None:
            self.large_bytes += size_bytes
            count_read(size_bytes)

        broker.connections.turns.count_read = counted_read  # type: ignore[method-assign]

        def counted(frame: bytearray | memoryview, requester: Any) -> Any:
            self.fetches += int(bytes(frame[:2]) == b"\0\1")
            return dispatch(frame, requester)

        self.dispatcher.dispatch = counted  # type: ignore[method-assign]
        self.connect()

    def fetch_state(self) -> Any:
        broker, metrics = self.broker, self.broker.metrics
        return (
            metrics.bytes_fetched,
            sum(metrics.api(ApiKey.FETCH).latency_ns.counts),
            broker.connections.bytes_sent,
            broker.connections.answers.made_bytes,
            broker.connections.memory_bytes,
            self.large_bytes,
            [
                (
                    session.id,
                    session.next_epoch,
                    session.used_ms,
                    [
                        (
                            target.topic, target.partition, target.asked,
                            target.reported_high_watermark, target.reported_log_start_offset,
                        )
                        for target in session
                    ],
                )
                for session in self.dispatcher.context.fetch_sessions._sessions.values()
            ],
        )  # fmt: skip


def fill(broker: Broker, rng: random.Random) -> None:
    """Append what the table above says."""
    for name in TOPICS:
        for partition in range(PARTITIONS):
            log = broker.topics.led_log(name, partition)
            if name == "empty":
                continue
            for number in range(25):
                _append(log, name, number, rng)
            if name == "cut":
                log.advance_log_start(min(2, log.high_watermark))


def _append(log: Any, name: str, number: int, rng: random.Random) -> None:
    size = rng.choice([0, 100, 3_000]) if name != "large" else rng.choice([100, 70_000, 200_000])
    records = [
        Record(index, NOW_MS, None, rng.randbytes(size), ()) for index in range(rng.choice([1, 2]))
    ]
    fields: dict[str, Any] = {}
    if name == "zstd" and rng.random() < 0.3:
        fields["codec"] = Codec.ZSTD
    if name in ("open", "aborted") and number in (3, 4):
        fields |= {
            "is_transactional": True,
            "producer_id": 7,
            "producer_epoch": 0,
            "base_sequence": 0 if number == 3 else 2,
        }
        records = [Record(index, NOW_MS, None, b"t", ()) for index in range(2)]
    log.append(memoryview(bytearray(build_batch(records, **fields))), now_ms=NOW_MS)
    if name == "aborted" and number == 5:
        abort = memoryview(marker(commit=False, producer_id=7, timestamp_ms=NOW_MS))
        log.append(abort, now_ms=NOW_MS, origin=Origin.COORDINATOR)


class Client:
    """Makes fetches of every kind, most of them usual."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.correlation_id = 0
        self.sessions: list[tuple[int, int, bool]] = []

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def asked(self, index: int) -> FetchPartition:
        rng = self.random
        return FetchPartition(
            partition=index,
            fetch_offset=rng.randrange(26) if self.chance(0.99) else rng.choice([-1, 10**6]),
            partition_max_bytes=rng.choice([17_000, 1_048_576, 1_048_576, 100, 0])
            if self.chance(0.995)
            else -5,
            current_leader_epoch=rng.choice([-1, 0, 0]) if self.chance(0.99) else 7,
            last_fetched_epoch=-1 if self.chance(0.995) else 0,
            log_start_offset=rng.choice([-1, 0]),
            high_watermark=2**63 - 1 if self.chance(0.99) else 3,
        )

    def topics(self, ids: dict[str, bytes]) -> list[FetchTopic]:
        rng = self.random
        names = rng.sample(list(TOPICS) if self.chance(0.5) else USUAL, rng.choice([1, 1, 1, 2, 3]))
        if self.chance(0.03):
            names.append(rng.choice(["nobody", "ü", names[0]]))
        made = []
        for name in names:
            indexes = rng.sample(range(PARTITIONS), rng.choice([1, 1, PARTITIONS]))
            if self.chance(0.02):
                indexes = rng.choice([[], [0, 0], [PARTITIONS], [-1]])
            made.append(
                FetchTopic(
                    topic=name,
                    topic_id=ids.get(name, bytes(16)),
                    partitions=[self.asked(index) for index in indexes],
                )
            )
        return made

    def fetch(self, ids: dict[str, bytes]) -> tuple[FetchRequest, int]:
        rng = self.random
        message = FetchRequest(
            replica_id=-1 if self.chance(0.98) else rng.choice([-2, 1]),
            max_wait_ms=0 if self.chance(0.9) else -1,
            min_bytes=rng.choice([0, 500, 60_000, 3_000_000]) if self.chance(0.2) else 1,
            max_bytes=rng.choice([50_000_000, 50_000_000, 1_000_000, 20_000, 500, 0, -3])
            if self.chance(0.3)
            else 50_000_000,
            isolation_level=rng.choice([0, 0, 0, 1]) if self.chance(0.99) else 5,
            topics=self.topics(ids),
            rack_id=rng.choice(["", "a"]) if self.chance(0.97) else "ü",
        )
        version = rng.choice([*range(4, 19)] * 4 + [0])
        if version >= 15 and self.chance(0.05):
            message.replica_state = ReplicaState(replica_id=rng.choice([-1, 1]))
        if version >= 7:
            self.choose_session(message, version, ids)
        return message, version

    def choose_session(self, message: FetchRequest, version: int, ids: dict[str, bytes]) -> None:
        """Open a session, continue one, or neither."""
        rng, kind = self.random, self.random.random()
        if kind < 0.1:
            message.session_epoch = 0
        elif kind < 0.12:
            message.session_epoch = rng.choice([-(2**31), -2, 1, 2**31 - 1])
        elif kind < 0.6 and self.sessions:
            chosen = rng.choice(self.sessions)
            session_id, epoch, has_ids = chosen
            if has_ids != (version >= 13) and self.chance(0.95):
                return
            message.session_id, message.session_epoch = session_id, epoch
            if self.chance(0.6):
                message.topics = []
            if self.chance(0.03):
                message.forgotten_topics_data = [
                    ForgottenTopic(topic="plain", topic_id=ids["plain"], partitions=[0])
                ]
            if self.chance(0.05):
                message.session_epoch = rng.choice([-1, 0, message.session_epoch + 1])

    def frame(self, message: Any, version: int) -> bytes:
        self.correlation_id += 1
        header = RequestHeader(
            api_key=message_spec(type(message)).api_key,
            api_version=version,
            correlation_id=self.correlation_id,
            client_id=self.random.choice(["client", "", None]) if self.chance(0.97) else "ü",
        )
        body = encode_request_header(header) + encode_request(message, version)
        if self.chance(0.02):
            body += self.random.choice([b"\0", b"\1\2", bytes(9)])
        return len(body).to_bytes(4, "big") + body


async def _pair(directory: Path, monkeypatch: pytest.MonkeyPatch, flavour: str) -> list[Side]:
    monkeypatch.setattr(turns, "SLICE_NS", 10**15)
    monkeypatch.setattr(turns, "SHORT_SLICE_NS", 10**15)
    monkeypatch.setattr(
        produce_side,
        "TOPICS",
        {name: {"segment.bytes": "20000"} if name == "segmented" else {} for name in TOPICS},
    )
    clock = FrozenClock(wall_ms=NOW_MS)
    sides = []
    for name, chosen in (("general", None), ("lane", LANES[flavour])):
        broker = await produce_side._start(directory / name, "os", clock, False, flavour)
        fill(broker, random.Random(5))
        side = Side(broker, chosen)
        # Which partition comes first is chance; both have to meet the same.
        monkeypatch.setattr(side.dispatcher.context.random, "randrange", lambda count: count // 2)
        monkeypatch.setattr(side.dispatcher.context.fetch_sessions, "_random", random.Random(1))
        sides.append(side)
    return sides


@pytest.mark.parametrize("flavour", LANES)
@pytest.mark.parametrize("seed", [0, 1])
async def test_the_lane_answers_as_the_general_way_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flavour: str, seed: int
) -> None:
    sides = await _pair(tmp_path, monkeypatch, flavour)
    client = Client(seed)
    ids = [{topic.name: topic.topic_id for topic in side.broker.topics} for side in sides]
    unified = {ids[1][name]: ids[0][name] for name in TOPICS}
    sent = 0
    try:
        for _ in range(250):
            reads: list[bytes] = [b"", b""]
            for _ in range(client.random.choice([1, 1, 3])):
                if client.chance(0.03):
                    made: tuple[Any, int] = ApiVersionsRequest(), 0
                else:
                    made = client.fetch(ids[0])
                    sent += 1
                data = client.frame(*made)
                reads[0] += data
                for name in TOPICS:
                    data = data.replace(ids[0][name], ids[1][name])
                reads[1] += data
            for side, data in zip(sides, reads, strict=True):
                side.read(data)
                await side.settle()
                await asyncio.sleep(0)  # the round of the loop ends
            (answers, closed), (others, others_closed) = (side.written() for side in sides)
            for known, same in unified.items():
                others = others.replace(known, same)
            assert others.hex() == answers.hex()
            assert others_closed == closed
            assert sides[1].fetch_state() == sides[0].fetch_state()
            client.sessions = [
                (session.id, session.next_epoch, session.uses_topic_ids)
                for session in sides[0].dispatcher.context.fetch_sessions._sessions.values()
            ]
            if closed:
                for side in sides:
                    side.connection.connection_lost(None)
                    side.connect()
    finally:
        for side in sides:
            side.connection.connection_lost(None)
            await side.broker.stop()
    assert sides[0].fetches > 0.9 * sent
    assert sides[0].fetches - sides[1].fetches > 60, "the lane served too few requests"


@pytest.mark.parametrize("flavour", LANES)
async def test_an_answer_has_a_quarter_of_the_memory_that_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flavour: str
) -> None:
    """Of `queued.max.response.bytes`; the first batch of all may be larger."""
    sides = await _pair(tmp_path, monkeypatch, flavour)
    client = Client(0)
    asked = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10**9)]
    topics = [FetchTopic(topic="large", partitions=asked)]
    data = client.frame(FetchRequest(max_wait_ms=0, max_bytes=10**9, topics=topics), 11)
    try:
        sizes = []
        for limit_bytes in (10**9, 4_000_000, 1_000):
            answers = []
            for side in sides:
                side.dispatcher.context.answers.limit_bytes = limit_bytes
                side.read(data)
                await side.settle()
                answers.append(side.written())
            assert answers[0] == answers[1]
            sizes.append(len(answers[0][0]))
        assert sides[1].fetches == 0, "they are usual"
        assert sizes[0] > 1_500_000
        assert 500_000 < sizes[1] < 1_001_000
        assert sizes[2] < 500_000
    finally:
        for side in sides:
            side.connection.connection_lost(None)
            await side.broker.stop()


@pytest.mark.parametrize("flavour", LANES)
async def test_a_fetch_in_a_full_round_is_the_general_ways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flavour: str
) -> None:
    """Large ones wait there for the next round, so that no reader holds up the others."""
    sides = await _pair(tmp_path, monkeypatch, flavour)
    side, client = sides[1], Client(0)
    topics = [FetchTopic(topic="large", partitions=[FetchPartition(partition=0)])]
    try:
        for is_full in (False, True):
            if is_full:
                side.dispatcher.context.turns.count_read(turns.ROUND_READ_BYTES)
            side.read(client.frame(FetchRequest(max_wait_ms=0, topics=topics), 11))
            assert side.fetches == is_full
            await side.settle()
    finally:
        for side in sides:
            side.connection.connection_lost(None)
            await side.broker.stop()


@pytest.mark.parametrize("flavour", LANES)
async def test_a_fetch_that_reaches_acknowledged_records_is_the_general_ways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flavour: str
) -> None:
    """It waits for them. One whose bytes end before the visible end needs no wait."""
    sides = await _pair(tmp_path, monkeypatch, flavour)
    side = sides[1]
    log = side.broker.topics.led_log("large", 0)
    monkeypatch.setattr(GroupCommit, "acknowledged_end", lambda _, asked: log.log_end_offset + 1)
    client = Client(0)
    try:
        for max_bytes, generals in ((1_000, 0), (50_000_000, 1)):
            asked = FetchPartition(partition=0, fetch_offset=20, partition_max_bytes=max_bytes)
            topics = [FetchTopic(topic="large", partitions=[asked])]
            side.read(client.frame(FetchRequest(max_wait_ms=0, topics=topics), 11))
            assert side.fetches == generals
    finally:
        side.connection.connection_lost(None)
        for each in sides:
            await each.broker.stop()


@pytest.mark.parametrize("flavour", LANES)
async def test_the_lane_says_nothing_is_there_to_a_reader_that_does_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flavour: str
) -> None:
    sides = await _pair(tmp_path, monkeypatch, flavour)
    ends = [side.broker.topics.led_log("large", 0).log_end_offset for side in sides]
    asked = FetchPartition(partition=0, fetch_offset=ends[0])
    topics = [FetchTopic(topic="large", partitions=[asked])]
    client = Client(0)
    try:
        for wait_ms, min_bytes in ((0, 1), (-1, 1), (0, 500)):
            message = FetchRequest(max_wait_ms=wait_ms, min_bytes=min_bytes, topics=topics)
            data = client.frame(message, 11)
            for side in sides:
                side.read(data)
                await side.settle()
            answers, others = (side.written() for side in sides)
            assert others == answers
            assert answers[0]
        assert sides[0].fetches == 3
        assert sides[1].fetches == 0, "they are usual"
        data = client.frame(FetchRequest(max_wait_ms=1, topics=topics), 11)
        sides[1].read(data)
        assert sides[1].fetches == 1, "one that waits is parked"
    finally:
        for side in sides:
            side.connection.connection_lost(None)
            await side.broker.stop()

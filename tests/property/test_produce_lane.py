"""Whatever a client sends: the lane of Produce does what the general way does.

Two brokers get the same bytes in the same reads, one through `Connection` alone, one through
`LaneConnection`. After each read the answers have to be equal, the state in memory, the counters,
and, when both have stopped, the files.
"""

import asyncio
import errno
import importlib.util
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, cast
from unittest.mock import patch

import pytest

from broker import node
from broker.group_commit import GroupCommit
from broker.net import (
    connection,
    fetch_lane,
    lane_connection,
    produce_lane,
    receive,
    request_fields,
)
from broker.net.connection import Connection
from broker.node import Broker
from broker.replies import turns
from config import load
from protocol.acl import Acl, Operation, PatternType, Permission, ResourceType
from protocol.api.api_versions import ApiVersionsRequest
from protocol.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from protocol.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.api_keys import ApiKey
from protocol.declare.primitives import message_spec
from protocol.headers import RequestHeader, encode_request_header
from protocol.records.builder import build_batch, build_message_set
from protocol.records.checksums import crc32c
from protocol.records.layout import Codec
from protocol.records.record import Record
from protocol.registry import encode_request
from storage.append import plain
from storage.disk.files import RealFile
from storage.log import lane as log_lane
from storage.log.log import Log
from tests.support.broker import broker_settings
from tests.support.clock import FrozenClock

NOW_MS = 1_700_000_000_000

TOPICS = {
    "plain": {"segment.bytes": "60000", "index.interval.bytes": "1000"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "compact": {"cleanup.policy": "compact"},
    "narrow": {"max.message.time.difference.ms": "1000", "max.message.bytes": "3000"},
    "gzip": {"compression.type": "gzip"},
    "lz4": {"compression.type": "lz4", "segment.ms": "5000"},
    "dense": {"time.index.variant": "minute", "index.interval.bytes": "500"},
    "indexed": {"segment.index.bytes": "400", "index.interval.bytes": "100"},
}
USUAL = ["plain", "compact", "lz4", "dense", "indexed"]
PARTITIONS = 3
ENDLESS_NS = 10**15
ROOT = Path(__file__).parents[2]


class FakeTransport:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.closed = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 5555) if name == "peername" else default

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def writelines(self, parts: list[bytes]) -> None:
        for part in parts:
            self.written += part

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close


class Lanes(NamedTuple):
    """The modules of the lanes, compiled or not."""

    connection: Any
    produce_lane: Any
    fetch_lane: Any
    lane_connection: Any


class Side:
    """One of the two brokers, and the connection that the bytes come in by."""

    def __init__(self, broker: Broker, lanes: Lanes | None) -> None:
        self.broker = broker
        self.dispatcher = next(iter(broker._dispatchers.values()))
        self.lanes = lanes
        if lanes is not None:
            place = self.dispatcher.context, lanes.lane_connection.SCRATCH
            self.lane = lanes.produce_lane.ProduceLane(*place)
            self.fetch_lane = lanes.fetch_lane.FetchLane(*place)
        self.general = 0
        dispatch = self.dispatcher.dispatch

        def counted(frame: bytearray | memoryview, requester: Any) -> Any:
            self.general += int(bytes(frame[:2]) == b"\0\0")
            return dispatch(frame, requester)

        self.dispatcher.dispatch = counted  # type: ignore[method-assign]
        self.connect()

    def connect(self) -> None:
        self.transport = FakeTransport()
        connections = self.broker.connections
        self.connection: Connection
        if self.lanes is None:
            homes = {lanes.connection.Connections: lanes.connection for lanes in LANES.values()}
            self.connection = homes[type(connections)].Connection(self.dispatcher, connections)
        else:
            self.connection = self.lanes.lane_connection.LaneConnection(
                self.dispatcher, connections, None, self.lane, self.fetch_lane
            )
        self.connection.connection_made(cast(asyncio.BaseTransport, self.transport))

    def read(self, data: bytes) -> None:
        """Feed `data` as the transport would, in as few reads as the buffers allow."""
        position = 0
        while position < len(data):
            buffer = self.connection.get_buffer(65536)
            count = min(len(buffer), len(data) - position)
            buffer[:count] = data[position : position + count]
            del buffer
            self.connection.buffer_updated(count)
            position += count

    async def settle(self) -> None:
        """Wait until every request is answered and every log is synced."""
        while self.connection.is_busy:
            await asyncio.sleep(0)
        await self.broker.group_commit.drain()

    def written(self) -> tuple[bytes, bool]:
        data = bytes(self.transport.written)
        self.transport.written.clear()
        return data, self.transport.closed

    def state(self) -> Any:
        """What the appends have changed in memory, as comparable values."""
        metrics, connections = self.broker.metrics, self.broker.connections
        return {
            "metrics": (
                metrics.batches_appended,
                metrics.records_appended,
                metrics.bytes_appended,
                dict(metrics.appends_rejected),
                sum(metrics.api(ApiKey.PRODUCE).latency_ns.counts),
                metrics.commits.acks_completed,
                metrics.client_times.rows,
                connections.bytes_sent,
                self.broker.security.audit.refusals,
                connections.memory_bytes,
                connections.answers.made_bytes,
            ),
            "logs": {
                (log.topic, log.partition): _state_of(log)
                for log in self.broker.topics.logs()
                if not log.topic.startswith("__")
            },
        }


def _state_of(log: Log) -> Any:
    segments = [
        {
            name: getattr(segment, name)
            for name in (
                "base_offset", "next_offset", "size", "max_timestamp", "max_timestamp_offset",
                "min_timestamp", "data_max_timestamp", "appended_ms", "records",
                "bytes_since_index", "first_timestamp",
            )
        }
        | {"index": segment.offset_index.last(), "time_index": segment.time_index.last()}
        for segment in log.segments
    ]  # fmt: skip
    producers = [
        (p.producer_id, p.producer_epoch, p.last_timestamp, p.txn_first_offset, list(p.batches))
        for p in log.producers.state
    ]
    return (
        log.log_start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset,
        log.durable_offset, log.shown_position, log.producers.state.map_end_offset,
        segments, producers,
    )  # fmt: skip


# --- random requests ----------------------------------------------------------------------------


class Client:
    """Makes requests of every kind, nearly all of them usual."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.producers: dict[tuple[str, int, int], tuple[int, int]] = {}
        self.correlation_id = 0

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def batch(self, topic: str, partition: int) -> bytes | None:
        rng = self.random
        count = rng.choice([1, 1, 2, 5, 40])
        size = rng.choice([0, 10, 100, 700])
        time_ms = NOW_MS + rng.choice([0] * 60 + [-500, 500, -100_000, 90_000, 3_700_000])
        records = [
            Record(
                index,
                time_ms + rng.randrange(-20, 20) if self.chance(0.998) else -1,
                None if self.chance(0.002) else b"k" * rng.randrange(9),
                None if self.chance(0.02) else rng.randbytes(size),
                (("h", b"v"),) if self.chance(0.1) else (),
            )
            for index in range(count)
        ]
        fields: dict[str, Any] = {}
        if topic in ("gzip", "lz4"):
            fields["codec"] = Codec[topic.upper()]
        elif self.chance(0.15):
            fields["codec"] = rng.choice(list(Codec))
        if self.chance(0.3):
            fields |= self.producer(topic, partition, count)
        if self.chance(0.005):
            fields |= {"is_transactional": True, "producer_id": 99, "producer_epoch": 0}
            fields.setdefault("base_sequence", 0)
        if self.chance(0.01):
            fields |= {"producer_id": -2, "producer_epoch": 0, "base_sequence": 0}
        if self.chance(0.005):
            fields["is_control"] = True
        made = bytearray(build_batch(records, **fields))
        return None if self.chance(0.005) else self.damaged(made, records)

    def producer(self, topic: str, partition: int, count: int) -> dict[str, Any]:
        """The fields of an idempotent producer: the next sequence, or now and then another."""
        rng = self.random
        producer_id = rng.randrange(1, 4)
        key = (topic, partition, producer_id)
        epoch, sequence = self.producers.get(key, (0, 0))
        if self.chance(0.04):
            epoch, sequence = epoch + 1, 0
        if self.chance(0.97):
            self.producers[key] = epoch, (sequence + count) & 0x7FFFFFFF
        elif self.chance(0.2):
            epoch -= 1
        else:
            sequence = max(0, sequence + rng.choice([-count, 1, 7, -1]))
        return {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}

    def damaged(self, made: bytearray, records: list[Record]) -> bytes:
        """The batch with one fault, in some cases."""
        kind = self.random.randrange(300)
        if kind == 0:
            made[self.random.randrange(len(made))] ^= 1 << self.random.randrange(8)
        elif kind == 1:
            made = made[: self.random.randrange(len(made))]
        elif kind == 2:
            made = made + made
        elif kind == 3:
            made[:8] = (5).to_bytes(8, "big")
        elif kind == 4:
            return bytes(build_message_set(records, 1, Codec.NONE))
        elif kind in (5, 6, 7):  # header fields that are covered by the checksum
            place, bits = self.random.choice([(35, 1), (26, 1), (60, 1), (22, 8), (21, 1)])
            made[place] ^= bits
            made[17:21] = crc32c(memoryview(made)[21:]).to_bytes(4, "big")
        return bytes(made)

    def produce(self, ids: dict[str, bytes]) -> tuple[ProduceRequest, int]:
        rng = self.random
        version = rng.choice([*range(3, 14)] * 5 + [0, 1, 2])
        names = rng.sample(USUAL, rng.choice([1, 1, 1, 1, 1, 1, 2, 3]))
        if self.chance(0.05):
            names.append(rng.choice([name for name in TOPICS if name not in names]))
        if self.chance(0.02):
            names.append(rng.choice(["nobody", "__consumer_offsets", names[0]]))
        topics = [
            TopicProduceData(
                name=name,
                topic_id=ids.get(name, bytes(16)),
                partition_data=[
                    PartitionProduceData(index=index, records=self.batch(name, index))
                    for index in self.partitions()
                ],
            )
            for name in names
        ]
        message = ProduceRequest(
            transactional_id="t" if version >= 3 and self.chance(0.02) else None,
            acks=rng.choice([1, 1, -1, -1, -1, 0] if self.chance(0.99) else [2, -2]),
            timeout_ms=rng.choice([0, 1_000, 30_000]),
            topic_data=topics,
        )
        return message, version

    def partitions(self) -> list[int]:
        rng = self.random
        if self.chance(0.02):
            return rng.choice([[], [0, 0], [PARTITIONS], [-1]])
        return rng.sample(range(PARTITIONS), rng.choice([1, 1, 1, 1, 1, 2, PARTITIONS]))

    def frame(self, message: Any, version: int, client_id: str | None) -> bytes:
        self.correlation_id += 1
        key = message_spec(type(message)).api_key
        header = RequestHeader(
            api_key=key,
            api_version=version,
            correlation_id=self.correlation_id,
            client_id=client_id,
        )
        body = encode_request_header(header) + encode_request(message, version)
        return len(body).to_bytes(4, "big") + body

    def list_offsets(self) -> tuple[Any, int]:
        """A request whose answer depends on the appends before it."""
        name = self.random.choice(list(TOPICS))
        partitions = [ListOffsetsPartition(partition_index=0, timestamp=-1)]
        topics = [ListOffsetsTopic(name=name, partitions=partitions)]
        return ListOffsetsRequest(replica_id=-1, topics=topics), 5

    def read(self, ids: list[dict[str, bytes]]) -> list[bytes]:
        """The bytes of one read, for each side: the topics' ids differ."""
        rng = self.random
        frames: list[list[bytes]] = [[] for _ in ids]
        for _ in range(rng.choice([1, 1, 2, 4, 9])):
            client_id = rng.choice(["client", "", None, "ü"] if self.chance(0.05) else ["client"])
            if self.chance(0.03):
                made = self.frame(ApiVersionsRequest(), 0, client_id)
                for side in frames:
                    side.append(made)
                continue
            message, version = self.produce(ids[0])
            for side, known in zip(frames, ids, strict=True):
                for topic in message.topic_data:
                    topic.topic_id = known.get(topic.name, bytes(16))
                side.append(self.frame(message, version, client_id))
                self.correlation_id -= 1
            self.correlation_id += 1
        if self.chance(0.2):
            # The last one: it may wait for the disk, and none may depend on when it has.
            made = self.frame(*self.list_offsets(), "client")
            for side in frames:
                side.append(made)
        return [b"".join(side) for side in frames]


# --- the comparison -----------------------------------------------------------------------------


def interpreted(*modules: ModuleType) -> list[ModuleType]:
    """The `modules` run from their sources; each imports those before it."""
    found = []
    with patch.dict(sys.modules):
        for module in modules:
            source = Path(str(module.__file__)).parent / f"{module.__name__.rpartition('.')[2]}.py"
            spec = importlib.util.spec_from_file_location(module.__name__, source)
            assert spec is not None
            assert spec.loader is not None
            loaded = sys.modules[module.__name__] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(loaded)
            assert not loaded.COMPILED
            found.append(loaded)
    return found


PARTS = (connection, produce_lane, fetch_lane, lane_connection)
LANES = {
    "loaded": Lanes(*PARTS),
    "interpreted": Lanes(*interpreted(plain, log_lane, request_fields, receive, *PARTS)[-4:]),
}


def _files(directory: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(directory.rglob("*")):
        topic = path.parent.name.rpartition("-")[0]
        if topic in TOPICS and path.is_file() and path.name != "partition.metadata":
            yield f"{path.parent.name}/{path.name}", path.read_bytes()


RULES = [
    Acl(ResourceType.TOPIC, name, PatternType.LITERAL, "User:*", "*", operation, permission)
    for name, operation, permission in (
        ("*", Operation.ALL, Permission.ALLOW),
        ("plain", Operation.WRITE, Permission.DENY),
        ("lz4", Operation.ALL, Permission.DENY),
    )
]


async def _start(
    directory: Path, policy: str, clock: FrozenClock, has_rules: bool, flavour: str
) -> Broker:
    settings = {
        "log_flush_policy": policy,
        "auto_create_topics_enable": "false",
        "log_initial_task_delay_ms": str(10**9),
        "advertised_listeners": "PLAINTEXT://127.0.0.1:9092",  # refusals name the leader
    }
    if has_rules:
        settings["authorizer_class_name"] = (
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
        )
    with patch.object(node, "Connections", LANES[flavour].connection.Connections):
        broker = Broker(load(command_line=broker_settings(directory, settings)), clock=clock)
    await broker.start()
    if broker.security.access is not None:
        broker.security.access.add(RULES[:1])
    for name, overrides in TOPICS.items():
        await broker.topics.create(name, PARTITIONS, overrides)
    await broker.topics.create("__consumer_offsets", 1) if broker.topics.find(
        "__consumer_offsets"
    ) is None else None
    return broker


def change_rules(rng: random.Random, brokers: list[Broker]) -> None:
    """Now and then, put a rule that denies into force or out of it, or allow nothing for a read."""
    allowing, *denying = RULES
    chance, changed = rng.random(), rng.choice(denying)
    for broker in brokers:
        access = broker.security.access
        assert access is not None
        if allowing not in access:
            access.add([allowing])
        elif chance < 0.03:
            access.remove([allowing])
        elif chance < 0.1 or (changed in access and chance < 0.4):
            (access.remove if changed in access else access.add)([changed])


@pytest.mark.parametrize("flavour", LANES)
@pytest.mark.parametrize("policy", ["os", "batch"])
@pytest.mark.parametrize(
    ("seed", "has_rules", "slice_ns"),
    [(0, False, ENDLESS_NS), (1, False, ENDLESS_NS), (2, True, ENDLESS_NS), (3, False, 0)],
)
async def test_the_lane_does_what_the_general_way_does(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    flavour: str,
    policy: str,
    seed: int,
    has_rules: bool,
    slice_ns: int,
) -> None:
    """A whole read at once, however slow the machine is, or one request in each turn."""
    monkeypatch.setattr(turns, "SLICE_NS", slice_ns)
    monkeypatch.setattr(turns, "SHORT_SLICE_NS", slice_ns)
    clock = FrozenClock(wall_ms=NOW_MS)
    directories = [tmp_path / "general", tmp_path / "lane"]
    brokers = [
        await _start(directory, policy, clock, has_rules, flavour) for directory in directories
    ]
    sides = [Side(brokers[0], None), Side(brokers[1], LANES[flavour])]
    client = Client(seed)
    ids = [{topic.name: topic.topic_id for topic in broker.topics} for broker in brokers]
    try:
        for number in range(80):
            clock.jump_wall(client.random.choice([0, 0, 1, 700]))
            if has_rules:
                change_rules(client.random, brokers)
            for side, data in zip(sides, client.read(ids), strict=True):
                side.read(data)
                await side.settle()
            (answers, closed), (others, others_closed) = (side.written() for side in sides)
            for known, unified in zip(ids[1].values(), ids[0].values(), strict=True):
                others = others.replace(known, unified)
            assert others.hex() == answers.hex()
            assert others_closed == closed
            if number % 4 == 3:
                assert sides[1].state() == sides[0].state()
            if closed:
                for side in sides:
                    side.connection.connection_lost(None)
                    side.connect()
    finally:
        for side in sides:
            side.connection.connection_lost(None)
        for broker in brokers:
            await broker.stop()
    files = dict(_files(directories[1]))
    assert files == dict(_files(directories[0]))
    assert {".counts", ".density"} <= {Path(name).suffix for name in files}
    assert sides[0].general - sides[1].general > 25, "the lane served too few requests"


UNCOMPILED = """
import importlib.util, pathlib, sys, pytest, setup

class Sources:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in setup.COMPILED:
            source = pathlib.Path(*name.split(".")).with_suffix(".py")
            return importlib.util.spec_from_file_location(name, source)

sys.meta_path.insert(0, Sources)
from storage.segment import feed
assert not feed.COMPILED
# The plugin of the fixtures would rewrite the modules that are imported here already.
quiet = ["-W", "ignore::pytest.PytestAssertRewriteWarning", "-p", "no:cacheprovider"]
sys.exit(pytest.main(["-q", *quiet, "-k", "0-False and loaded", sys.argv[1]]))
"""


def test_without_any_compiled_module_it_does_the_same() -> None:
    """The bases of segments and indexes, too, which both sides share above."""
    command = [sys.executable, "-c", UNCOMPILED, str(Path(__file__).relative_to(ROOT))]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "2 passed" in ended.stdout


def produced(client: Client, values: list[bytes], version: int = 9, acks: int = 1) -> bytes:
    """A frame with one record for each of the first partitions of a topic."""
    partitions = [
        PartitionProduceData(
            index=index, records=bytes(build_batch([Record(0, NOW_MS, None, value, ())]))
        )
        for index, value in enumerate(values)
    ]
    topics = [TopicProduceData(name="plain", partition_data=partitions)]
    message = ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=topics)
    return client.frame(message, version, "client")


MALFORMED = {
    "size": b"\xff\xff\xff\xff",
    "api": b"\x00\x00\x00\x0a\x7f\xff\x00\x00\x00\x00\x00\x01\x00\x00",
    "body": b"\x00\x00\x00\x0a\x00\x00\x00\x08\x00\x00\x00\x01\x00\x00",
    # Metadata that is decoded in the side thread, of more topics than it has room for.
    "long body": (2_000_018).to_bytes(4, "big")
    + b"\x00\x03\x00\x0c\x00\x00\x00\x01\xff\xff\x00\xff\xff\xff\xff\x0f"
    + bytes(2_000_002),
}


@pytest.mark.parametrize("malformed", MALFORMED)
@pytest.mark.parametrize("policy", ["os", "batch"])
@pytest.mark.parametrize("way", ["general", *LANES])
async def test_requests_before_a_malformed_frame_are_answered(
    tmp_path: Path, way: str, policy: str, malformed: str
) -> None:
    """Their clients learn the offsets, however many frames are in the read; none after it is."""
    flavour = way if way in LANES else "loaded"
    broker = await _start(tmp_path, policy, FrozenClock(wall_ms=NOW_MS), False, flavour)
    side = Side(broker, LANES.get(way))
    try:
        client = Client(0)
        first, *others, after = [produced(client, [b"v"], acks=-1) for _ in range(5)]
        side.read(first)  # the general way starts the segment
        await side.settle()
        assert not side.written()[1]
        side.read(b"".join(others) + MALFORMED[malformed] + after)
        await side.settle()
        answers, closed = side.written()
        assert closed
        assert list(correlation_ids(answers)) == [2, 3, 4]
        assert broker.topics.led_log("plain", 0).log_end_offset == 4
    finally:
        side.connection.connection_lost(None)
        await broker.stop()


def correlation_ids(answers: bytes) -> Iterator[int]:
    while answers:
        end = 4 + int.from_bytes(answers[:4], "big")
        yield int.from_bytes(answers[4:8], "big")
        answers = answers[end:]


@pytest.mark.parametrize("flavour", LANES)
async def test_a_log_that_cannot_be_closed_costs_no_other_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flavour: str
) -> None:
    """It is offline, so no offset is given twice; the others are as after any read."""
    broker = await _start(tmp_path, "os", FrozenClock(wall_ms=NOW_MS), False, flavour)
    side = Side(broker, LANES[flavour])
    try:
        client = Client(0)
        values = [b"v"] * PARTITIONS
        side.read(produced(client, values))
        await side.settle()
        side.written()
        logs = [broker.topics.led_log("plain", index) for index in range(PARTITIONS)]
        show_end = Log.show_end
        appended = []

        def fail_for_one(log: Log) -> int:
            if log is logs[1]:
                raise AssertionError("planted")
            return int(show_end(log))

        with monkeypatch.context() as planted:
            planted.setattr(Log, "show_end", fail_for_one)
            planted.setattr(Log, "wants_commit", lambda _: True)
            planted.setattr(GroupCommit, "appended", lambda _, log, size: appended.append(log))
            with pytest.raises(AssertionError, match="planted"):
                side.read(produced(client, values))
        assert [log.offline is None for log in logs] == [True, False, True]
        assert broker.metrics.records_appended == 2 * PARTITIONS
        assert sorted(appended, key=logs.index) == [logs[0], logs[2]]
        side.connection.connection_lost(None)
        side.connect()
        general = side.general
        for _ in range(2):
            side.read(produced(client, values[:1]))
        assert side.general == general, "the lane serves the first log"
        side.read(produced(client, values))
        await side.settle()
        assert [log.log_end_offset for log in logs] == [5, 2, 3]
        assert [log.high_watermark for log in logs] == [5, 1, 3]
    finally:
        side.connection.connection_lost(None)
        await broker.stop()


@pytest.mark.parametrize("flavour", LANES)
@pytest.mark.parametrize("policy", ["os", "batch"])
async def test_a_failed_write_keeps_what_the_same_read_appended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flavour: str, policy: str
) -> None:
    append = RealFile.append

    def failing(file: RealFile, data: bytes) -> None:
        if b"refused" in bytes(data):
            append(file, data[:70])  # the disk is full half-way
            raise OSError(errno.ENOSPC, "no space")
        append(file, data)

    monkeypatch.setattr(RealFile, "append", failing)
    clock = FrozenClock(wall_ms=NOW_MS)
    directories = [tmp_path / "general", tmp_path / "lane"]
    brokers = [await _start(directory, policy, clock, False, flavour) for directory in directories]
    sides = [Side(brokers[0], None), Side(brokers[1], LANES[flavour])]
    client = Client(0)

    def frame(values: list[bytes], version: int = 9) -> bytes:
        return produced(client, values, version, client.random.choice([1, -1]))

    good = [b"a" * 300, b"b"]
    try:
        for data in (
            frame(good),
            frame(good) + frame([b"refused", b"b"]) + frame(good),
            frame([b"a", b"refused"]) + frame([b"refused", b"refused"], 3) + frame(good, 5),
            frame(good),
        ):
            for side in sides:
                side.read(data)
                await side.settle()
            assert sides[1].written() == sides[0].written()
            assert sides[1].state() == sides[0].state()
        assert sides[1].general < sides[0].general
    finally:
        for side in sides:
            side.connection.connection_lost(None)
        for broker in brokers:
            await broker.stop()
    assert dict(_files(directories[1])) == dict(_files(directories[0]))

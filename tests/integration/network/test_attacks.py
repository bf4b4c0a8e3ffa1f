"""Hostile peers: whatever they send, no other client notices and no log changes.

Each test runs under `tests.support.siege`, which holds the broker to that while the attack lasts
and audits its directory afterwards. What is asserted here is only the attacker's own fate.
"""

import asyncio
import os
import random
import resource
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.net.limits import PROGRESS_WINDOW_TICKS
from protocol.api_keys import SUPPORTED, ApiKey
from protocol.declare.primitives import REQUEST_ELEMENTS_MAX
from tests.support.attacks import sized as framed
from tests.support.broker import RawClient, batch, broker_process
from tests.support.requests import create_topic, produce
from tests.support.siege import request_bytes, siege

MAY_WAIT = frozenset({ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})
"""What an honest client waits for as well; silence is no sign of a hang there."""

WRONG_INT32S = (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\x00\x00\xff\xff")
ELEMENTS_COST_BYTES = 192 << 20
"""For 100,000 elements and as many in the answer: DescribeGroups makes the most of each."""

FLOODS = int(os.environ.get("FLOODS", "1"))
OVERLONG_VARINT = b"\xff" * 10


@pytest.mark.parametrize("edge", ["min", "max"])
async def test_request_cut_anywhere_closes_its_connection(tmp_path: Path, edge: str) -> None:
    """Every prefix of a request of every API, presented as if it were whole."""

    def attacks() -> Iterator[bytes]:
        for api_key, versions in SUPPORTED.items():
            whole = request_bytes(api_key, getattr(versions, edge))
            for size in _cuts(len(whole)):
                yield framed(whole[:size])

    async with siege(tmp_path) as attack:
        outcomes = await attack.attack_all(attacks())
        answered = [sent.hex() for sent, answer in outcomes if answer is not None]
        assert answered == []
        assert attack.silent == 0
        assert attack.closed > 1000


async def test_peer_that_leaves_in_the_middle_of_a_request_leaves_nothing(tmp_path: Path) -> None:
    def attacks() -> Iterator[bytes]:
        for api_key, versions in SUPPORTED.items():
            whole = framed(request_bytes(api_key, versions.max))
            yield from (whole[:size] for size in range(1, len(whole), 7))

    async with siege(tmp_path) as attack:
        await attack.attack_all(attacks(), timeout_s=0.01)
        assert attack.answered == 0


@pytest.mark.parametrize("edge", ["min", "max"])
async def test_wrong_numbers_anywhere_are_answered_or_close(tmp_path: Path, edge: str) -> None:
    """Lengths, counts, enums, ids: four bytes of every request overwritten, at every position."""

    def attacks(api_key: ApiKey) -> Iterator[bytes]:
        whole = request_bytes(api_key, getattr(SUPPORTED[api_key], edge))
        rng = random.Random(int(api_key))
        for position in _cuts(len(whole)):
            if position >= 8:
                wrong = rng.choice(WRONG_INT32S)
                yield framed(whole[:position] + wrong + whole[position + 4 :])
                yield framed(whole[:position] + OVERLONG_VARINT + whole[position:])

    async with siege(tmp_path) as attack:
        for api_key in SUPPORTED:
            before = attack.silent
            timeout_s = 0.05 if api_key in MAY_WAIT else 5
            await attack.attack_all(attacks(api_key), timeout_s=timeout_s)
            assert attack.silent == before or api_key in MAY_WAIT, api_key.name
        assert attack.closed > 1000
        assert attack.answered > 100, "the numbers that are legal were served"


async def test_key_or_version_out_of_range_closes(tmp_path: Path) -> None:
    def attacks() -> Iterator[bytes]:
        for key in (*range(-2, 130), 32767, -32768):
            if key not in SUPPORTED:
                yield _head(key, 0)
        for api_key, versions in SUPPORTED.items():
            if api_key != ApiKey.API_VERSIONS:
                for version in (-1, versions.min - 1, versions.max + 1, 32767, -32768):
                    yield _head(api_key, version)

    async with siege(tmp_path) as attack:
        outcomes = await attack.attack_all(attacks())
        assert [sent.hex() for sent, answer in outcomes if answer is not None] == []
        assert attack.silent == 0


@pytest.mark.parametrize(
    "header",
    [
        "0003 0001 00000001 7fff 61",  # a client id longer than the frame
        "0003 0001 00000001 fffe",  # a negative size that is not null: read as null, no topics
        "0003 0001 00000001 0002 fffe 00000000",  # no UTF-8
        "0003 000c 00000001 ffff ffffffff0f",  # four billion tags
        "0003 000c 00000001 ffff ffffffffffffffffffff01",  # a tag count of eleven bytes
        "0003 000c 00000001 ffff 01 00 ffffffff0f",  # a tag longer than the frame
        "0012 0003 00000001",  # no client id at all
    ],
)
async def test_header_that_lies_closes(tmp_path: Path, header: str) -> None:
    async with siege(tmp_path) as attack:
        assert await attack.attack(framed(bytes.fromhex(header.replace(" ", "")))) is None
        assert attack.closed == 1


async def test_claims_beyond_what_is_sent_cost_nothing(tmp_path: Path) -> None:
    """A thousand peers that announce 100 MB, and as many that announce too much."""
    async with siege(tmp_path) as attack:
        connections = attack.broker.broker.connections
        peers = [
            await asyncio.open_connection(attack.broker.host, attack.broker.port)
            for _ in range(300)
        ]
        for number, (_, writer) in enumerate(peers):
            writer.write((100_000_000 + number).to_bytes(4, "big") + b"x")
        await asyncio.sleep(0.3)
        bystanders = 1
        assert connections.memory_bytes <= (len(peers) + bystanders) * 64 * 1024
        for _, writer in peers:
            writer.transport.abort()
        too_much = ((2**31 - 1).to_bytes(4, "big"), b"\xff\xff\xff\xff", b"\x16\x03\x01\x00\xc5")
        await attack.attack_all(too_much * 100)
        assert attack.closed == 300


async def test_slow_peers_are_cut_and_delay_no_other_client(tmp_path: Path) -> None:
    """Five hundred frames that begin and then grow by a byte a second."""
    async with siege(tmp_path) as attack:
        connections = attack.broker.broker.connections
        peers = [
            await asyncio.open_connection(attack.broker.host, attack.broker.port)
            for _ in range(500)
        ]
        frame = framed(request_bytes(ApiKey.METADATA, 12))
        for second in range(PROGRESS_WINDOW_TICKS + 2):
            for number, (_, writer) in enumerate(peers):
                if not writer.is_closing():
                    writer.write(frame[second : second + 1 + number % 3])
            await asyncio.sleep(0.02)
            connections.sweep()
        for reader, writer in peers:
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                async with asyncio.timeout(5):
                    await reader.readexactly(1)
            writer.transport.abort()


@pytest.mark.timeout(60 + 30 * FLOODS)
async def test_flood_of_connections_is_survived(tmp_path: Path) -> None:
    """Five hundred clients that come and go at once, then more than there is room for."""
    async with siege(tmp_path, max_connections="200") as attack:

        async def flood() -> None:
            for _ in range(25):
                _, writer = await asyncio.open_connection(attack.broker.host, attack.broker.port)
                writer.transport.abort()

        connections = attack.broker.broker.connections
        for _ in range(FLOODS):
            await asyncio.gather(*(flood() for _ in range(20)))
            hold = [
                await asyncio.open_connection(attack.broker.host, attack.broker.port)
                for _ in range(300)
            ]
            await asyncio.sleep(0.1)
            assert len(connections) == 200
            for _, writer in hold:
                writer.transport.abort()
            async with asyncio.timeout(1):  # there is room again
                while len(connections) > 1:
                    await asyncio.sleep(0.01)


async def test_no_descriptors_left_is_survived(tmp_path: Path) -> None:
    """Who is connected is served, who comes waits, and the log has a line in a second."""
    with broker_process(tmp_path / "data") as broker:
        pid = broker.process.pid
        before = await RawClient.connect("127.0.0.1", broker.port)
        await create_topic(before, "t")
        assert (await produce(before, "t", batch(b"before"))).error_code == 0
        former, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        most = max(map(int, os.listdir(f"/proc/{pid}/fd"))) + 3
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, hard))
        began_s = time.monotonic()
        waiting = [
            await asyncio.open_connection("127.0.0.1", broker.port) for _ in range(most + 10)
        ]
        while str(most - 1) not in os.listdir(f"/proc/{pid}/fd"):
            await asyncio.sleep(0.05)
        for _ in range(10):
            answer = await produce(before, "t", batch(b"no descriptor is left"))
            assert answer.error_code == 0
            await asyncio.sleep(0.15)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (former, hard))
        lasted_s = time.monotonic() - began_s
        later = await RawClient.connect("127.0.0.1", broker.port)
        assert (await produce(later, "t", batch(b"after"))).error_code == 0
        for _, writer in waiting:
            writer.transport.abort()
        await before.close()
        await later.close()
        broker.process.send_signal(signal.SIGTERM)
        _, said = await asyncio.to_thread(broker.process.communicate)
    refused = said.count("could not be accepted")
    assert 1 <= refused <= 2 + lasted_s


async def test_random_bytes_close_or_are_ignored(tmp_path: Path) -> None:
    rng = random.Random(1)
    async with siege(tmp_path) as attack:
        attacks = (framed(rng.randbytes(rng.randrange(200))) for _ in range(2000))
        await attack.attack_all(attacks)
        assert attack.silent == 0


def _cuts(size: int) -> Iterator[int]:
    """Every position in the first bytes, then fewer: the long requests repeat themselves."""
    yield from range(min(size, 60))
    yield from range(60, size, 5)


def _head(key: int, version: int) -> bytes:
    head = key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True)
    return framed(head + bytes(4) + b"\xff\xff" + bytes(60))


COUNT_TARGETS = {
    # API -> (version, a body that begins an array of the smallest elements there are).
    ApiKey.METADATA: (1, b"\0\1a"),
    ApiKey.FETCH: (4, b"\0\1a" + bytes(4)),
    ApiKey.PRODUCE: (3, b"\0\1a" + bytes(4)),
    ApiKey.DESCRIBE_GROUPS: (0, b"\0\1a"),
    ApiKey.DELETE_TOPICS: (0, b"\0\1a"),
}
BEFORE_ARRAY = {
    ApiKey.FETCH: bytes(17),
    ApiKey.PRODUCE: bytes.fromhex("ffff 0001 00000000"),
}
HOSTILE_BYTES = 32 << 20


@pytest.mark.parametrize("api_key", COUNT_TARGETS)
@pytest.mark.parametrize("share", [1, 1000], ids=["frame full of elements", "as many as allowed"])
def test_tiny_elements_do_not_become_gigabytes(tmp_path: Path, api_key: ApiKey, share: int) -> None:
    """At most four times what was received, and what `REQUEST_ELEMENTS_MAX` elements cost, once."""
    version, element = COUNT_TARGETS[api_key]
    count = min(HOSTILE_BYTES // len(element), REQUEST_ELEMENTS_MAX * (10**6 if share == 1 else 1))
    head = int(api_key).to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + b"\xff\xff"
    body = BEFORE_ARRAY.get(api_key, b"") + count.to_bytes(4, "big") + element * count
    settings = {"auto_create_topics_enable": "false"}
    with broker_process(tmp_path, **settings) as process:
        before = _peak_bytes(process.process.pid)
        with socket.create_connection(("127.0.0.1", process.port)) as peer:
            peer.settimeout(30)
            peer.sendall(framed(head + body))
            if share == 1:
                assert peer.recv(1) == b""
            else:
                peer.recv(1)
        used = _peak_bytes(process.process.pid) - before
    assert used <= 4 * len(body) + ELEMENTS_COST_BYTES, f"{used >> 20} MiB for {len(body) >> 20}"


def _peak_bytes(pid: int) -> int:
    """The most memory that the process ever had resident."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024

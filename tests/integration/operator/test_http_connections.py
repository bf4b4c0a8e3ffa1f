"""The metrics port's HTTP: keep-alive, pipelining, old versions, and peers that mean no good."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.operator import http, http_connection
from tests.support.broker import RunningBroker, running_broker

KEPT = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
LAST = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[RunningBroker]:
    async with running_broker(tmp_path / "data", metrics_listener="127.0.0.1:0") as running:
        yield running


async def opened(broker: RunningBroker) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    assert broker.ready.metrics_port is not None
    return await asyncio.open_connection("127.0.0.1", broker.ready.metrics_port)


async def exchange(broker: RunningBroker, *pieces: bytes) -> bytes:
    """Everything that the server sends until it closes."""
    reader, writer = await opened(broker)
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0.01)
    answer = await asyncio.wait_for(reader.read(), 20)
    writer.close()
    return answer


async def test_a_connection_is_kept_for_the_next_request(broker: RunningBroker) -> None:
    reader, writer = await opened(broker)
    for _ in range(3):
        writer.write(KEPT)
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        assert head.startswith(b"HTTP/1.1 200")
        assert b"close" not in head.lower()
        assert await reader.readexactly(3) == b"ok\n"
    writer.close()


async def test_pipelined_requests_are_answered_in_order(broker: RunningBroker) -> None:
    missing = KEPT.replace(b"/healthz", b"/missing")
    answer = await exchange(broker, KEPT + missing + LAST)
    assert answer.count(b"HTTP/1.1 200") == 2
    assert answer.index(b"HTTP/1.1 404") > answer.index(b"HTTP/1.1 200")
    assert answer.endswith(b"ok\n")


async def test_a_request_may_arrive_in_pieces(broker: RunningBroker) -> None:
    answer = await exchange(broker, LAST[:7], LAST[7:40], LAST[40:])
    assert answer.startswith(b"HTTP/1.1 200")


async def test_http_1_0_is_answered_and_closed(broker: RunningBroker) -> None:
    answer = await exchange(broker, b"GET /readyz HTTP/1.0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b"\r\n\r\nok\n")


async def test_head_has_the_length_and_no_body(broker: RunningBroker) -> None:
    answer = await exchange(broker, LAST.replace(b"GET", b"HEAD"))
    assert b"content-length: 3\r\n" in answer.lower()
    assert answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/1.1\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n", b"501"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 9000, b"431"),
        (b"POST /readyz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nbody", b"405"),
        (b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nbody", b"200"),
        (b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999\r\n\r\n", b"200"),
    ],
)
async def test_a_bad_request_is_answered_and_closed(
    broker: RunningBroker, request_bytes: bytes, status: bytes
) -> None:
    answer = await exchange(broker, request_bytes)
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert answer.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("sent", [b"", b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nX: ", KEPT])
async def test_a_peer_that_does_not_finish_a_request_is_closed(
    broker: RunningBroker, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connection, "PATIENCE_S", 0.3)
    answer = await exchange(broker, sent)
    assert answer.count(b"HTTP/1.1") == (1 if sent == KEPT else 0)


async def test_a_peer_that_does_not_read_is_closed(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connection, "PATIENCE_S", 0.3)
    monkeypatch.setattr(http.MetricsServer, "_exposition", large_exposition)
    reader, writer = await opened(broker)
    writer.write(KEPT.replace(b"/healthz", b"/metrics"))
    await asyncio.sleep(1)
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await asyncio.wait_for(reader.readexactly(64 << 20), 10)
    writer.close()


async def large_exposition(_: http.MetricsServer) -> bytes:
    return bytes(64 << 20)


async def test_connections_are_bounded_and_places_become_free(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "CONNECTIONS_MAX", 2)
    held = [await opened(broker) for _ in range(2)]
    for reader, writer in held:
        writer.write(KEPT)
        assert (await reader.readuntil(b"ok\n")).startswith(b"HTTP/1.1 200")
    with pytest.raises((ConnectionError, AssertionError)):
        assert await exchange(broker, LAST)
    held[0][1].close()
    for _ in range(100):
        await asyncio.sleep(0.02)
        try:
            if (await exchange(broker, LAST)).startswith(b"HTTP/1.1 200"):
                break
        except ConnectionError:
            continue
    else:
        pytest.fail("the place of the closed connection is not free")
    held[1][1].close()


async def test_a_kept_connection_does_not_hold_up_the_stop(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "data", metrics_listener="127.0.0.1:0") as running:
        reader, writer = await opened(running)
        writer.write(KEPT)
        await reader.readuntil(b"ok\n")
    assert await asyncio.wait_for(reader.read(), 1) == b""
    writer.close()

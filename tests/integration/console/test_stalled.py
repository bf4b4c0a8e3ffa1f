"""Readers of the live tail that stall: they hold no records, and their connections end."""

import asyncio
import gc
import socket
import time
import tracemalloc
from contextlib import closing

import pytest
import uvicorn

from client.producer import Producer
from console.options import ConsoleOptions
from console.web.app import build
from console.web.stalled import BoundedProtocol
from tests.integration.console.conftest import HOST, SMALL_BUFFER, serving
from tidelog.testing import InProcessBroker

READERS = 14
PARTITIONS = 4
PATIENCE_S = 30
BOUND = READERS * 320 * 1024
"""An event for each in the buffer of its connection, and the broker's buffers for an answer."""


def begin(port: int, cursor: str) -> socket.socket:
    """Ask for a tail and read nothing of it."""
    reader = socket.socket()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
    reader.connect(("127.0.0.1", port))
    ask = f"GET /api/topics/busy/tail?cursor={cursor} HTTP/1.1\r\nHost: {HOST}\r\n\r\n"
    reader.sendall(ask.encode())
    return reader


async def fill(broker: InProcessBroker) -> str:
    """More than one answer of the broker holds, in records that fill an event; their cursor."""
    await broker.create_topic("busy", partitions=PARTITIONS)
    async with Producer(broker.bootstrap) as producer:
        for number in range(PARTITIONS * 1000):
            await producer.send("busy", b"v" * 300, key=b"k" * 300, partition=number % PARTITIONS)
        await producer.flush()
    return ",".join(f"{number}:0" for number in range(PARTITIONS))


def held_bytes() -> int:
    """How much is allocated since the start of the trace."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


async def until_all_wait(server: uvicorn.Server, count: int) -> None:
    """Every connection has a full buffer."""
    while True:
        connections = server.server_state.connections
        flows = [one.flow for one in connections if isinstance(one, BoundedProtocol) and one.flow]
        if len(flows) == count and all(flow.write_paused for flow in flows):
            return
        await asyncio.sleep(0.02)


async def test_stalled_readers_hold_no_records(broker: InProcessBroker) -> None:
    cursor = await fill(broker)
    app = build(ConsoleOptions(bootstrap=broker.bootstrap, allowed_hosts=frozenset((HOST,))))
    async with serving(app) as (server, port):
        readers = [begin(port, cursor)]  # what is loaded and kept for the first one is no reader's
        await until_all_wait(server, 1)
        tracemalloc.start()
        try:
            readers += [begin(port, cursor) for _ in range(READERS)]
            await until_all_wait(server, READERS + 1)
            deadline = time.monotonic() + PATIENCE_S
            # Some still read an event that they then keep.
            while (held := held_bytes()) > BOUND and time.monotonic() < deadline:
                await asyncio.sleep(0.1)
        finally:
            tracemalloc.stop()
        for reader in readers:
            reader.close()
    assert held <= BOUND, f"{held:,} bytes for {READERS} readers"


async def test_a_reader_that_takes_nothing_is_cut_off(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.web.stalled.STALLED_S", 0.2)
    cursor = await fill(broker)
    app = build(ConsoleOptions(bootstrap=broker.bootstrap, allowed_hosts=frozenset((HOST,))))
    async with serving(app) as (server, port):
        with closing(begin(port, cursor)):
            await until_all_wait(server, 1)
            while server.server_state.connections or app.state.tails:
                await asyncio.sleep(0.02)

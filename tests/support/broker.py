"""A broker inside the test's own event loop, and a client that sends exactly what it is given.

`running_broker` starts a `Broker` on free ports over a directory of the test; `RawClient` sends
protocol messages of any version and decodes what comes back, without retries or opinions.
`BrokerProcess` runs the same broker as a process of its own, for starts, stops and kills.
"""

import asyncio
import os
import re
import signal
import ssl
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

from broker.clocks.clock import Clock
from broker.net.addresses import ReadyInfo
from broker.node import Broker
from broker.security.secret_files import read_secret_file
from config import load
from protocol.declare.primitives import message_spec
from protocol.frames import encode_frame
from protocol.headers import RequestHeader, decode_response_header, encode_request_header
from protocol.records.builder import build_batch
from protocol.records.record import Record
from protocol.registry import decode_response, encode_request

DEFAULT_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 30.0
"""How long an answer may take; a shared machine stands still now and then."""
_SIZE = struct.Struct(">i")


class ConnectionClosed(Exception):
    """The broker closed the connection instead of answering."""


class RawClient:
    """One connection; requests are answered in order, so `receive` needs no bookkeeping."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._correlation_id = 0
        self._in_flight: list[tuple[int, int, int]] = []

    @classmethod
    async def connect(cls, host: str, port: int, tls: ssl.SSLContext | None = None) -> "RawClient":
        reader, writer = await asyncio.open_connection(host, port, ssl=tls)
        return cls(reader, writer)

    async def request(self, message: Any, version: int, client_id: str | None = "test") -> Any:
        """The answer to one request."""
        self.send(message, version, client_id)
        return await self.receive()

    def send(self, message: Any, version: int, client_id: str | None = "test") -> int:
        """Send without waiting; the correlation id."""
        api_key = message_spec(type(message)).api_key
        return self.send_body(api_key, version, encode_request(message, version), client_id)

    def send_body(
        self, api_key: int, version: int, body: bytes, client_id: str | None = "test"
    ) -> int:
        """Send a body as it is, without waiting; the correlation id."""
        self._correlation_id += 1
        header = RequestHeader(
            api_key=api_key,
            api_version=version,
            correlation_id=self._correlation_id,
            client_id=client_id,
        )
        for part in encode_frame([encode_request_header(header), body]):
            self._writer.write(part)
        self._in_flight.append((api_key, version, self._correlation_id))
        return self._correlation_id

    async def receive(self, timeout_s: float = ANSWER_TIMEOUT_S) -> Any:
        """The answer to the oldest unanswered request; its correlation id has to fit."""
        api_key, version, correlation_id = self._in_flight.pop(0)
        frame = await self.receive_frame(timeout_s)
        answered_id, position = decode_response_header(frame, api_key, version)
        assert answered_id == correlation_id, "answers come in the order of the requests"
        return decode_response(api_key, version, memoryview(frame), position)

    def forget_last(self) -> None:
        """The last request has no answer (Produce with acks=0)."""
        self._in_flight.pop()

    def send_raw(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._writer.write(data)

    async def receive_frame(self, timeout_s: float = ANSWER_TIMEOUT_S) -> bytes:
        """The next frame without its size."""
        try:
            async with asyncio.timeout(timeout_s):
                (size,) = _SIZE.unpack(await self._reader.readexactly(_SIZE.size))
                return await self._reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionResetError) as error:
            raise ConnectionClosed from error

    @property
    def has_received(self) -> bool:
        """Whether bytes of the broker are waiting to be read, or the end of the stream."""
        return bool(self._reader._buffer) or self._reader.at_eof()  # type: ignore[attr-defined]

    async def is_closed_by_broker(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> bool:
        """Whether the broker closes the connection within `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._reader.read(1) == b""
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False

    async def close(self) -> None:
        self._writer.close()
        with suppress(ConnectionResetError, BrokenPipeError):
            await self._writer.wait_closed()


class RunningBroker:
    """A started broker and its address."""

    def __init__(self, broker: Broker, ready: ReadyInfo) -> None:
        self.broker = broker
        self.ready = ready
        self.host = "127.0.0.1"
        self.port = ready.port
        self._clients: list[RawClient] = []

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    async def client(self, tls: ssl.SSLContext | None = None) -> RawClient:
        """A new connection; closed with the broker."""
        client = await RawClient.connect(self.host, self.port, tls)
        self._clients.append(client)
        return client

    async def close_clients(self) -> None:
        for client in self._clients:
            await client.close()


@asynccontextmanager
async def running_broker(
    directory: Path, *, clock: Clock | None = None, **settings: str
) -> AsyncIterator[RunningBroker]:
    """A broker over `directory` with `settings`, whose dots are written as underscores.

    Without a `clock`, no background job starts by itself in the time of a test: the records of
    tests are decades old, and retention would take them from a test that lasts 30 seconds.
    """
    if clock is None:
        settings = {"log_initial_task_delay_ms": "3600000", **settings}
    given = broker_settings(directory, settings)
    config = load(command_line=given, read_file=read_secret_file)
    async with served(Broker(config, clock=clock)) as running:
        yield running


@asynccontextmanager
async def served(broker: Broker) -> AsyncIterator[RunningBroker]:
    """`broker`, started, and stopped at the end."""
    running = RunningBroker(broker, await broker.start())
    try:
        yield running
    finally:
        await running.close_clients()
        await broker.stop()


def broker_settings(directory: Path, settings: dict[str, str]) -> dict[str, str]:
    """Settings of a broker for tests: free ports, this directory, and what the test asks for."""
    defaults = {
        "log.dirs": str(directory),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "metrics.listener": "",
    }
    return defaults | {name.replace("_", "."): value for name, value in settings.items()}


def batch(*values: bytes | str, timestamp: int = 1_000, **fields: Any) -> bytes:
    """A v2 batch with one record per value."""
    records = [
        Record(
            offset=index,
            timestamp=timestamp,
            key=None,
            value=value.encode() if isinstance(value, str) else value,
            headers=(),
        )
        for index, value in enumerate(values)
    ]
    return bytes(build_batch(records, **fields))


class BrokerProcess:
    """`python -m broker`, or another module that takes its arguments, in a process of its own.

    What it logs goes into the file `log`, else into a pipe. With 64 KiB in it the broker waits.
    """

    def __init__(
        self, directory: Path, *, module: str = "broker", log: str = "", **settings: str
    ) -> None:
        arguments = [f"{k}={v}" for k, v in broker_settings(directory, settings).items()]
        self.directory = directory
        self.started_s = time.perf_counter()
        with ExitStack() as stack:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdout=subprocess.PIPE,
                stderr=stack.enter_context(Path(log).open("a")) if log else subprocess.PIPE,
                text=True,
                cwd=Path(__file__).parents[2],
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                # Under nohup it is ignored, and a broker leaves that as it is.
                preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
            )
        self.port = 0
        self.ports: list[int] = []
        self.metrics_port = 0
        self.metrics_ports: list[int] = []
        self.ready_after_s = 0.0

    def wait_ready(self) -> int:
        """The port, once the broker has announced itself."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        match = re.match(r"ready \S+:(\d+)", line)
        assert match is not None, self.process.communicate()[1]
        self.ready_after_s = time.perf_counter() - self.started_s
        self.port = int(match[1])
        self.metrics_ports = [int(port) for port in re.findall(r"metrics (\d+)", line)]
        self.metrics_port = self.metrics_ports[0] if self.metrics_ports else 0
        self.ports = [int(port) for port in re.findall(r":(\d+) metrics", line)]
        return self.port

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait; the exit status."""
        self.process.send_signal(number)
        self.process.communicate(timeout=30)
        return self.process.returncode


@contextmanager
def broker_process(directory: Path, *, log: str = "", **settings: str) -> Iterator[BrokerProcess]:
    """A ready broker process, killed at the end if it still runs."""
    process = BrokerProcess(directory, log=log, **settings)
    try:
        process.wait_ready()
        yield process
    finally:
        if process.process.poll() is None:
            process.stop()

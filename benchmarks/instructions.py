"""What one request costs in instructions, in user space, counted by callgrind.

Times on a shared machine are noise; instructions are nearly the same in every run. The broker runs
in one process without sockets: a `LaneConnection` is fed with frames, one for each read, and its
transport throws the answers away. What this driver does is counted, too: about 3,000 instructions
for each request, and one for each byte that it copies into the receive buffer. System calls count
as nothing. It needs valgrind. Start and warm-up run before counting is switched on.

`python -m benchmarks.instructions [--rows TEXT;TEXT] [--requests N] [--flush-policy os|batch]
[--functions N]`; the functions are known as long as no request has waited.
"""

import argparse
import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import uvloop

from benchmarks import request_cost
from benchmarks.harness import report
from broker.net.fetch_lane import FetchLane
from broker.net.lane_connection import LaneConnection
from broker.net.produce_lane import ProduceLane
from broker.net.receive import SCRATCH
from broker.node import Broker
from config import load
from protocol.api.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.api.fetch import FetchPartition, FetchRequest, FetchTopic

WARM_UP = 30
MARK = "getpgid"
"""A function of the C library that nothing here uses; callgrind writes its counts at each call."""

_READY, _POLL_S, _SETTLE_S = "ready", 0.02, 10
_ONE, _MANY = "one", "many"
_NEW_TOPICS, _NEW_PARTITIONS = 3, 200
_CREATE_V = 5
_FETCH_SESSION_V = 12
_TAIL, _WAITED = "Fetch that waits, and the Produce of the record it gets", "waited"
_SUMMARY = re.compile(r"^(?:summary|totals): (\d+)", re.MULTILINE)


class Sink:
    """A transport that throws answers away."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """The address of a peer."""
        return ("127.0.0.1", 5555) if name == "peername" else default

    def set_write_buffer_limits(self, high: int) -> None:
        """Nothing waits here."""

    def get_write_buffer_size(self) -> int:
        """Nothing is unread."""
        return 0

    def writelines(self, parts: Iterable[Any]) -> None:
        """The answers have left."""

    def pause_reading(self) -> None:
        """Reads are fed from outside."""

    def resume_reading(self) -> None:
        """See `pause_reading`."""

    def is_closing(self) -> bool:
        """It stays open."""
        return False

    def close(self) -> None:
        """The driver closes it."""

    abort = close


class Keeper(Sink):
    """A transport that keeps the last answer, whose copy is counted too."""

    last = b""

    def writelines(self, parts: Iterable[Any]) -> None:
        """See `last`."""
        self.last = b"".join(parts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.instructions", description=__doc__)
    parser.add_argument("--rows", default="", help="only rows whose title contains one of these;")
    parser.add_argument("--requests", type=int, default=100, help="for each row")
    parser.add_argument("--flush-policy", choices=("os", "batch"), default="os")
    parser.add_argument("--functions", type=int, default=0, help="print so many of each row")
    parser.add_argument("--drive", metavar="FOLDER", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.drive is not None:
        uvloop.run(_drive(options.drive, options.rows, options.requests, options.flush_policy))
        return 0
    with tempfile.TemporaryDirectory(prefix="bench-instructions-") as folder:
        lines = _counted(Path(folder), options)
    print(report.table(["request", f"instructions, flush.policy={options.flush_policy}"], lines))
    return 0


def _rows(wanted: str, requests: int) -> Iterator[tuple[str, list[bytes]]]:
    """(title, frames) of each row; a frame that changes something new is sent once."""
    parts = wanted.split(";")
    for row in (*request_cost.produce_rows(_ONE, _MANY), *request_cost.read_rows(_ONE)):
        if any(part in row.title for part in parts):
            yield row.title, [row.frame] * requests
    title = f"Create {_NEW_PARTITIONS} partitions"
    if any(part in title for part in parts):
        yield title, [_creation(f"made-{n}", _NEW_PARTITIONS) for n in range(_NEW_TOPICS)]
    title = f"Produce to {_NEW_PARTITIONS} new partitions"
    if any(part in title for part in parts):
        batches = [request_cost.batch(1, 100)] * _NEW_PARTITIONS
        yield title, [request_cost.produce(f"new-{n}", batches) for n in range(_NEW_TOPICS)]
    if any(part in _TAIL for part in parts):
        one = request_cost.batch(1, 100)
        yield _TAIL, [request_cost.produce(_WAITED, [one])] * requests


class Reader:
    """A consumer that has read all of a topic of one partition, on a connection of its own."""

    def __init__(self, broker: Broker) -> None:
        """Connect; `begin` opens its session."""
        self._sink = Keeper()
        self._connection = _connection(broker, self._sink)
        self._frames: list[bytes] = []

    async def begin(self, requests: int) -> None:
        """Read the one record that the topic has; prepare so many more requests."""
        await _serve(self._connection, _next_fetch(0, 0))
        # The size, the correlation id, no tags, throttle time and error come before it.
        session_id = int.from_bytes(self._sink.last[15:19], "big")
        self._frames = [_next_fetch(session_id, number) for number in range(requests, 0, -1)]

    def wait(self) -> None:
        """Ask for the next record."""
        _feed(self._connection, self._frames.pop())
        if not self._connection.is_busy:
            raise SystemExit("the Fetch was answered before there was a record")

    async def read(self) -> None:
        """Return when it was answered."""
        await _settle(self._connection)

    def close(self) -> None:
        """Disconnect."""
        self._connection.connection_lost(None)


def _next_fetch(session_id: int, number: int) -> bytes:
    """The request for record `number`, which is as well the epoch in the session."""
    partition = FetchPartition(partition=0, fetch_offset=number, partition_max_bytes=1_048_576)
    message = FetchRequest(
        max_wait_ms=60_000,
        min_bytes=1,
        max_bytes=52_428_800,
        session_id=session_id,
        session_epoch=number,
        topics=[FetchTopic(topic=_WAITED, partitions=[partition])],
    )
    return request_cost.framed(message, _FETCH_SESSION_V)


def _creation(name: str, partitions: int) -> bytes:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=60_000)
    return request_cost.framed(request, _CREATE_V)


def _counted(folder: Path, options: argparse.Namespace) -> list[list[str]]:
    """A line for each row. The counts between two marks are a row's, or what comes between."""
    command = [
        "valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/counts",
        "--instr-atstart=no", f"--dump-before={MARK}",
        sys.executable, "-m", "benchmarks.instructions", "--drive", f"{folder}/data",
        "--rows", options.rows, "--requests", str(options.requests),
        "--flush-policy", options.flush_policy,
    ]  # fmt: skip
    ready = Path(folder, _READY)
    with Path(folder, "errors").open("w+", encoding="utf-8") as errors:
        # The places of keys in dictionaries are the same in every run.
        seeded = {**os.environ, "PYTHONHASHSEED": "0"}
        driver = subprocess.Popen(command, stdout=errors, stderr=errors, env=seeded)
        while not ready.exists() and driver.poll() is None:
            time.sleep(_POLL_S)
        if driver.poll() is None:
            switch = ["callgrind_control", "--instr=on", str(driver.pid)]
            subprocess.run(switch, stdout=errors, stderr=errors, check=False)
            ready.unlink()
        if driver.wait():
            errors.seek(0)
            raise SystemExit(f"{' '.join(command)} failed:\n{errors.read()}")
    lines = []
    for number, (title, frames) in enumerate(_rows(options.rows, options.requests)):
        counts = Path(folder, f"counts.{2 * number + 2}")
        found = _SUMMARY.search(counts.read_text(encoding="utf-8"))
        if found is None:
            raise SystemExit(f"{counts.name} has no summary: is this another version of valgrind?")
        lines.append([title, f"{int(found[1]) / len(frames):,.0f}"])
        if options.functions:
            command = ["callgrind_annotate", str(counts)]
            listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            _, _, functions = listed.partition("file:function\n")
            print(title, *functions.splitlines()[: options.functions + 1], sep="\n")
    return lines


async def _drive(folder: str, wanted: str, requests: int, flush_policy: str) -> None:
    """Serve the requests of all rows, between marks."""
    os.mkdir(folder)
    settings = {
        "log.dirs": folder,
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "metrics.listener": "",
        "log.flush.policy": flush_policy,
    }
    broker = Broker(load(command_line=settings))
    await broker.start()
    connection = _connection(broker, Sink())
    news = [(f"new-{number}", _NEW_PARTITIONS) for number in range(_NEW_TOPICS)]
    topics = [(_ONE, 1), (_MANY, 16), (_WAITED, 1)]
    for name, count in topics + (news if "new" in wanted or not wanted else []):
        await _serve(connection, _creation(name, count))
    fill = next(request_cost.produce_rows(_ONE, _MANY)).frame
    for _ in range(WARM_UP):
        await _serve(connection, fill)
    await _serve(connection, request_cost.produce(_WAITED, [request_cost.batch(1, 100)]))
    reader = Reader(broker)
    await reader.begin(WARM_UP + requests)
    is_counted = False
    for title, frames in _rows(wanted, requests):
        waiting = reader if title == _TAIL else None
        if len(frames) > _NEW_TOPICS:
            await _serve_all(connection, frames[:WARM_UP], waiting)
        if not is_counted:
            is_counted = await _wait_for_counting(Path(folder).with_name(_READY))
        os.getpgid(0)
        await _serve_all(connection, frames, waiting)
        os.getpgid(0)
    reader.close()
    connection.connection_lost(None)
    await broker.stop()


async def _wait_for_counting(ready: Path) -> bool:
    """Let the parent switch counting on. It is heard between system calls, so none may be long.

    Before that the broker loads what it loads in the background after a start.
    """
    await asyncio.sleep(_SETTLE_S)
    ready.touch()
    while ready.exists():
        time.sleep(_POLL_S)  # no await: the functions of a later step all count as the loop's
    return True


def _connection(broker: Broker, sink: Sink) -> LaneConnection:
    """A connection as the broker's listener makes it, without its socket."""
    dispatcher = next(iter(broker._dispatchers.values()))
    context = dispatcher.context
    lanes = ProduceLane(context, SCRATCH), FetchLane(context, SCRATCH)
    connection = LaneConnection(dispatcher, broker.connections, None, *lanes)
    connection.connection_made(cast("asyncio.BaseTransport", sink))
    return connection


async def _serve_all(
    connection: LaneConnection, frames: Sequence[bytes], reader: Reader | None
) -> None:
    """Serve the frames one after the other, each with the `reader` waiting for its record."""
    for frame in frames:
        if reader is not None:
            reader.wait()
        await _serve(connection, frame)
        if reader is not None:
            await reader.read()


async def _serve(connection: LaneConnection, frame: bytes) -> None:
    """Feed `frame`, and wait for its answer."""
    _feed(connection, frame)
    await _settle(connection)


async def _settle(connection: LaneConnection) -> None:
    while connection.is_busy:
        await asyncio.sleep(0)


def _feed(connection: LaneConnection, frame: bytes) -> None:
    """Feed `frame` as a transport would, in as few reads as the buffers allow."""
    position = 0
    while position < len(frame):
        buffer = connection.get_buffer(65_536)
        count = min(len(buffer), len(frame) - position)
        buffer[:count] = frame[position : position + count]
        del buffer
        connection.buffer_updated(count)
        position += count


if __name__ == "__main__":
    sys.exit(main())

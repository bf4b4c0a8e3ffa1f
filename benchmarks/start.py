"""How soon a broker is of use, and what it costs to have it wait.

For each broker, several times on a new data directory and once more on a used one: milliseconds
from spawning the process until it answers an ApiVersions request, until it has acknowledged the
first record (acks=all, to a topic that it creates on the way), and its resident memory two
seconds later. `python -m benchmarks.start [--runs N] [--brokers a,b]`
"""

import argparse
import contextlib
import json
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from benchmarks import brokers, loads, machine, report, wire

TOPIC = "first"
SETTLE_S = 2.0

console = Console(highlight=False, stderr=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One start of one broker."""

    ready_ms: float
    first_ack_ms: float
    idle_mb: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.start", description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--brokers", default="kafka,tidelog-synced")
    parser.add_argument("--write", action="store_true", help="renew docs/benchmarks.md")
    options = parser.parse_args(arguments)
    brokers.end_with_us()
    rows = []
    with tempfile.TemporaryDirectory(prefix="bench-start-") as name:
        folder = Path(name)
        for broker in options.brokers.split(","):
            contender = brokers.BY_NAME[broker]
            new = [_start(contender, folder / f"{broker}-{run}") for run in range(options.runs)]
            used = [_start(contender, folder / f"{broker}-0") for _ in range(options.runs)]
            rows += [_row(contender, "new", new), _row(contender, "used", used)]
        facts = machine.markdown(machine.describe(folder))
    head = ["broker", "data", "ready", "first acknowledged record", "idle resident"]
    text = f"{facts}\n\n{report.table(head, rows)}\n\nMedians (and worst) of {options.runs} runs."
    print(text)
    if options.write:
        report.replace_section("start", text)
    return 0


def _row(contender: brokers.Contender, data: str, starts: Sequence[Start]) -> list[str]:
    def shown(values: list[float], unit: str) -> str:
        return f"{statistics.median(values):,.0f} ({max(values):,.0f}) {unit}"

    return [
        contender.title,
        data,
        shown([start.ready_ms for start in starts], "ms"),
        shown([start.first_ack_ms for start in starts], "ms"),
        shown([start.idle_mb for start in starts], "MB"),
    ]


def _start(contender: brokers.Contender, folder: Path) -> Start:
    """Starts, produces one record, waits, stops."""
    new = not folder.exists()
    with contextlib.ExitStack() as stack:
        running = stack.enter_context(contender.start(folder))
        connection = _answering(running.bootstrap)
        ready = time.perf_counter()
        stack.callback(connection.close)
        _produce_first(running.bootstrap, connection, new=new)
        acknowledged = time.perf_counter()
        time.sleep(SETTLE_S)
        result = Start(
            ready_ms=(ready - running.spawned_at) * 1_000,
            first_ack_ms=(acknowledged - running.spawned_at) * 1_000,
            idle_mb=running.resident_bytes() / 1e6,
        )
    console.print(json.dumps({"broker": contender.name, "ready_ms": round(result.ready_ms)}))
    return result


def _answering(bootstrap: str) -> wire.Connection:
    """A connection on which an ApiVersions request was answered without an error."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            connection = wire.Connection(bootstrap)
            if struct.unpack_from(">h", connection.ask(wire.api_versions_request()), 4)[0] == 0:
                return connection
            connection.close()
        time.sleep(0.005)
    raise loads.LoadFailed(f"{bootstrap} did not answer within a minute")


def _produce_first(bootstrap: str, connection: wire.Connection, *, new: bool) -> None:
    """One record, acknowledged; the topic is made first where this is the first start."""
    if new:
        loads.create_topic(bootstrap, TOPIC, 1)
    batch = wire.record_batch([b"first"], [int(time.time() * 1000)])
    frame = wire.produce_request(TOPIC, 0, batch)
    deadline = time.monotonic() + 60
    while (error := wire.produce_error(connection.ask(frame))) != 0:
        if time.monotonic() > deadline:
            raise loads.LoadFailed(f"the first record was refused with error {error}")
        time.sleep(0.005)


if __name__ == "__main__":
    sys.exit(main())

"""How soon a broker is of use, and what it costs to have it wait.

For each broker, several times on a new data directory and once more on a used one: milliseconds
from spawning the process until it answers an ApiVersions request, until it has acknowledged the
first record (acks=all, to a topic that it creates on the way), the CPU that it used until then, and
its resident memory two seconds later. All requests are plain bytes over one connection, so that no
client's own time is counted. The brokers take turns. One start of each comes first and is not
counted: in a fresh checkout it compiles the code, which an installation has done, and it reads the
files of both brokers from the disk. With `--segments N` also on a directory with a log of that
many segments. `python -m benchmarks.start [--runs N] [--brokers a,b] [--segments N]`
"""

import argparse
import contextlib
import json
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from benchmarks.harness import brokers, loads, machine, report, wire
from values.words import format_count

TOPIC = "first"
LONG_TOPIC = "long"
SEGMENT_BYTES = 16_384
SETTLE_S = 2.0

console = Console(highlight=False, stderr=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One start of one broker."""

    ready_ms: float
    first_ack_ms: float
    cpu_ms: float
    idle_mb: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.start", description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--brokers", default="kafka,tidelog-synced")
    parser.add_argument("--segments", type=int, default=0, help="of a log, for a start with it")
    parser.add_argument("--write", action="store_true", help="renew docs/benchmarks.md")
    options = parser.parse_args(arguments)
    brokers.end_with_us()
    contenders = [brokers.BY_NAME[name] for name in options.brokers.split(",")]
    with tempfile.TemporaryDirectory(prefix="bench-start-") as name:
        document = measure(Path(name), contenders, options.runs, options.segments)
    text = f"{machine.markdown(document['machine'])}\n\n{tables(document)}"
    print(text)
    if options.write:
        report.replace_section("start", text)
    return 0


def measure(
    folder: Path, contenders: Sequence[brokers.Contender], runs: int, segments: int = 0
) -> report.Document:
    """Start each of the brokers `runs` times on each kind of data directory, by turns."""
    present = []
    for contender in contenders:
        with brokers.without_missing(contender.name):
            _start(contender, folder / contender.name / "uncounted")
            present.append(contender)
    contenders = present
    kinds = ("new", "used", *([f"{segments:,} segments"] if segments else ()))
    starts: dict[str, dict[str, list[Start]]] = {
        data: {contender.name: [] for contender in contenders} for data in kinds
    }
    for contender in contenders if segments else ():
        _fill(contender, folder / contender.name / "long", segments)
    for run in range(runs):
        for data, by_name in starts.items():
            for contender in contenders:
                place = {"new": f"{run}", "used": "0"}.get(data, "long")
                by_name[contender.name].append(_start(contender, folder / contender.name / place))
    return {
        "kind": "start",
        "when": time.strftime("%Y-%m-%d %H:%M"),
        "machine": machine.describe(folder),
        "titles": {contender.name: contender.title for contender in contenders},
        "starts": {
            data: {name: [asdict(start) for start in found] for name, found in by_name.items()}
            for data, by_name in starts.items()
        },
    }


def median(document: report.Document, data: str, name: str, field: str) -> float | None:
    """The median of a field of `Start`, of a broker on one kind of directory."""
    found = document["starts"].get(data, {}).get(name)
    return statistics.median(start[field] for start in found) if found else None


def tables(document: report.Document) -> str:
    """The table of a run."""
    rows = [
        [document["titles"][name], data, *_columns(found)]
        for data, by_name in document["starts"].items()
        for name, found in by_name.items()
    ]
    head = ["broker", "data", "ready", "first acknowledged record", "CPU", "idle resident"]
    runs = max(len(found) for by_name in document["starts"].values() for found in by_name.values())
    return (
        f"{report.table(head, rows)}\n\nMeasured {document['when']}, medians (and worst) of "
        f"{format_count(runs, 'run')}."
    )


def _columns(found: Sequence[dict[str, float]]) -> list[str]:
    units = {"ready_ms": "ms", "first_ack_ms": "ms", "cpu_ms": "ms", "idle_mb": "MB"}
    columns = []
    for field, unit in units.items():
        values = [start[field] for start in found]
        columns.append(f"{statistics.median(values):,.0f} ({max(values):,.0f}) {unit}")
    return columns


def _fill(contender: brokers.Contender, folder: Path, segments: int) -> None:
    """Write a log of so many segments, each of one batch, and the topic of the first record."""
    with contender.start(folder) as running:
        loads.create_topic(running.bootstrap, TOPIC, 1)
        loads.create_topic(running.bootstrap, LONG_TOPIC, 1, segment_bytes=str(SEGMENT_BYTES))
        loads.raw_produce(
            running.bootstrap,
            LONG_TOPIC,
            total_bytes=segments * SEGMENT_BYTES,
            batch_bytes=SEGMENT_BYTES - 2_000,
        )


def _start(contender: brokers.Contender, folder: Path) -> Start:
    """Starts, produces one record, waits, stops."""
    new = not folder.exists()
    with contextlib.ExitStack() as stack:
        running = stack.enter_context(contender.start(folder))
        connection = _answering(running.bootstrap)
        ready = time.perf_counter()
        stack.callback(connection.close)
        _produce_first(connection, new=new)
        acknowledged = time.perf_counter()
        cpu_seconds = running.cpu_seconds()
        time.sleep(SETTLE_S)
        result = Start(
            ready_ms=(ready - running.spawned_at) * 1_000,
            first_ack_ms=(acknowledged - running.spawned_at) * 1_000,
            cpu_ms=cpu_seconds * 1_000,
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


def _produce_first(connection: wire.Connection, *, new: bool) -> None:
    """One record, acknowledged; the topic is made first where this is the first start."""
    if new:
        _until_accepted(connection, wire.create_topic_request(TOPIC), wire.create_topic_error)
    batch = wire.record_batch([b"first"], [int(time.time() * 1000)])
    _until_accepted(connection, wire.produce_request(TOPIC, 0, batch), wire.produce_error)


def _until_accepted(
    connection: wire.Connection, frame: bytes, error_of: Callable[[bytes], int]
) -> None:
    """Send the request again until its answer has no error: a broker may still be starting."""
    deadline = time.monotonic() + 60
    while (error := error_of(connection.ask(frame))) != 0:
        if time.monotonic() > deadline:
            raise loads.LoadFailed(f"the first record was refused with error {error}")
        time.sleep(0.005)


if __name__ == "__main__":
    sys.exit(main())

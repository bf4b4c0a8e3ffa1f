"""Two thousand idle connections: what they hold, and whether the active ones notice them.

Each connection has introduced itself (ApiVersions) and then says nothing. One more connection
produces single records of 100 bytes, acknowledged one at a time, before and beside them.
`python -m benchmarks.idle_connections [--brokers a,b] [--connections N]`
"""

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import brokers, loads, machine, report, wire

TOPIC = "active"
REQUESTS = 2_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints a Markdown table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.idle_connections", description=__doc__
    )
    parser.add_argument("--brokers", default="kafka,tidelog")
    parser.add_argument("--connections", type=int, default=2_000)
    parser.add_argument("--write", action="store_true", help="renew docs/benchmarks.md")
    options = parser.parse_args(arguments)
    brokers.end_with_us()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    names = options.brokers.split(",")
    with tempfile.TemporaryDirectory(prefix="bench-idle-") as name:
        folder = Path(name)
        rows = [_row(brokers.BY_NAME[each], folder / each, options.connections) for each in names]
        facts = machine.markdown(machine.describe(folder))
    head = ["broker", "memory per connection", "p50, p99 alone", "p50, p99 beside them"]
    head.append("CPU of 5 s idling")
    text = f"{facts}\n\n{options.connections:,} connections.\n\n{report.table(head, rows)}"
    print(text)
    if options.write:
        report.replace_section("idle", text)
    return 0


def _row(contender: brokers.Contender, folder: Path, connections: int) -> list[str]:
    with contender.start(folder) as running:
        loads.create_topic(running.bootstrap, TOPIC, 1)
        _until_accepted(running)
        _latencies(running)  # warm-up
        alone = _latencies(running)
        memory = running.resident_bytes()
        idle = [wire.Connection(running.bootstrap) for _ in range(connections)]
        for connection in idle:
            connection.ask(wire.api_versions_request())
        per_connection = (running.resident_bytes() - memory) / connections
        beside = _latencies(running)
        before = running.cpu_seconds()
        time.sleep(5)
        cpu = running.cpu_seconds() - before
        for connection in idle:
            connection.close()
    return [contender.title, f"{per_connection / 1e3:.1f} KB", alone, beside, f"{cpu:.2f} s"]


def _frame() -> bytes:
    batch = wire.record_batch([b"x" * 100], [int(time.time() * 1000)])
    return wire.produce_request(TOPIC, 0, batch)


def _until_accepted(running: brokers.Running) -> None:
    """Kafka refuses for a moment after a topic was created."""
    connection = wire.Connection(running.bootstrap)
    for _ in range(600):
        if wire.produce_error(connection.ask(_frame())) == 0:
            break
        time.sleep(0.05)
    connection.close()


def _latencies(running: brokers.Running) -> str:
    connection = wire.Connection(running.bootstrap)
    frame = _frame()
    times = []
    for _ in range(REQUESTS):
        started = time.perf_counter()
        answer = connection.ask(frame)
        times.append(time.perf_counter() - started)
        if wire.produce_error(answer) != 0:
            raise loads.LoadFailed(f"produce was refused: error {wire.produce_error(answer)}")
    connection.close()
    times.sort()
    return f"{times[len(times) // 2] * 1e3:.2f}, {times[len(times) * 99 // 100] * 1e3:.2f} ms"


if __name__ == "__main__":
    sys.exit(main())

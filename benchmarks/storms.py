"""Storms of small requests: how many a second, how late the slowest are, what they cost.

Four processes with a connection each ask for the metadata of one topic, or send heartbeats of a
member that the group does not know, one request after another. Those are what a restart of many
clients and a large group look like to a broker.
`python -m benchmarks.storms [--brokers a,b] [--requests N]`
"""

import argparse
import contextlib
import itertools
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness import brokers, loads, machine, report, wire
from benchmarks.request_cost import read_rows

PARALLEL = 4
STORMS = ("Metadata of one topic", "Heartbeat")
TOPIC = "storm"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.storms", description=__doc__)
    parser.add_argument("--brokers", default="kafka,tidelog")
    parser.add_argument("--requests", type=int, default=20_000, help="of each connection")
    options = parser.parse_args(arguments)
    rows = []
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-storms-")))
        pool = stack.enter_context(multiprocessing.get_context("spawn").Pool(PARALLEL))
        for name in options.brokers.split(","):
            running = stack.enter_context(brokers.BY_NAME[name].start(folder / name))
            loads.create_topic(running.bootstrap, TOPIC, 1)
            for row in read_rows(TOPIC):
                if row.title in STORMS:
                    work = [(running.bootstrap, row.frame, options.requests)] * PARALLEL
                    pool.starmap(_ask, work)  # warm-up
                    before, started = running.cpu_seconds(), time.perf_counter()
                    times = sorted(itertools.chain(*pool.starmap(_ask, work)))
                    elapsed = time.perf_counter() - started
                    cost = (running.cpu_seconds() - before) / len(times) * 1e6
                    rows.append([
                        row.title,
                        brokers.BY_NAME[name].title,
                        f"{len(times) / elapsed:,.0f}/s",
                        f"{times[len(times) // 2] * 1e3:.2f} ms",
                        f"{times[len(times) * 99 // 100] * 1e3:.2f} ms",
                        f"{cost:.1f} us",
                    ])  # fmt: skip
        facts = machine.markdown(machine.describe(folder))
    head = ["request", "broker", f"rate, {PARALLEL} connections", "p50", "p99", "CPU each"]
    print(f"{facts}\n\n{report.table(head, sorted(rows))}")
    return 0


def _ask(bootstrap: str, frame: bytes, requests: int) -> list[float]:
    """Seconds that each request took."""
    connection = wire.Connection(bootstrap)
    times = []
    for _ in range(requests):
        started = time.perf_counter()
        connection.ask(frame)
        times.append(time.perf_counter() - started)
    connection.close()
    return times


if __name__ == "__main__":
    sys.exit(main())

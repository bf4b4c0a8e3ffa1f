"""Lookups by time through the wire, beside Apache Kafka in the same run.

A topic of one partition gets N records of 100 bytes, 10 ms apart, in segments of 1 MiB (about
112 for a million). Then ListOffsets requests for random times: one connection asking one time
after another, for the latency, and four processes at once, for the rate. The records are regular,
so every answer is checked against arithmetic.
`python -m benchmarks.lookup [--records 1000000,10000000] [--lookups N] [--brokers a,b]`
"""

import argparse
import contextlib
import multiprocessing
import random
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from benchmarks.harness import brokers, loads, machine, report, wire

STEP_MS = 10
PARALLEL = 4
RECORD_BYTES = 100
SEGMENT_BYTES = 1 << 20

console = Console(highlight=False, stderr=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Where to ask: a topic whose record i has the timestamp `base + i * STEP_MS`."""

    bootstrap: str
    topic: str
    base: int
    records: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lookup", description=__doc__)
    parser.add_argument("--brokers", default="kafka,tidelog-synced")
    parser.add_argument("--records", default="1000000,10000000")
    parser.add_argument("--lookups", type=int, default=20_000)
    parser.add_argument("--write", action="store_true", help="renew docs/benchmarks.md")
    options = parser.parse_args(arguments)
    brokers.end_with_us()
    names = options.brokers.split(",")
    rows = []
    with tempfile.TemporaryDirectory(prefix="bench-lookup-") as folder:
        with contextlib.ExitStack() as stack:
            running = []
            for name in names:
                with brokers.without_missing(name):
                    running.append(
                        stack.enter_context(brokers.BY_NAME[name].start(Path(folder) / name))
                    )
            for count in map(int, options.records.split(",")):
                rows += [_measure(broker, count, options.lookups) for broker in running]
        facts = machine.markdown(machine.describe(Path(folder)))
    head = ["records", "broker", "p50", "p99", "highest", f"rate, {PARALLEL} connections"]
    head.append("CPU per 1,000 lookups")
    text = f"{facts}\n\n{report.table(head, rows)}"
    print(text)
    if options.write:
        report.replace_section("lookup", text)
    return 0


def _measure(broker: brokers.Running, records: int, lookups: int) -> list[str]:
    topic = f"lookup-{uuid.uuid4().hex[:8]}"
    settings = {"segment_bytes": str(SEGMENT_BYTES), "retention_ms": "-1"}
    loads.create_topic(broker.bootstrap, topic, 1, **settings)
    base = int(time.time() * 1000) - records * STEP_MS - 60_000
    loads.librdkafka_produce(
        broker.bootstrap, topic, records=records, size=RECORD_BYTES, base=base, step=STEP_MS
    )
    asked = Asked(bootstrap=broker.bootstrap, topic=topic, base=base, records=records)
    _ask(asked, lookups // 4, seed=0)  # warm-up
    before = broker.cpu_seconds()
    times = sorted(_ask(asked, lookups, seed=1))
    with multiprocessing.get_context("spawn").Pool(PARALLEL) as pool:
        pool.starmap(_ask, [(asked, 1, 2)] * PARALLEL)  # imports are over before the clock starts
        started = time.perf_counter()
        pool.starmap(_ask, [(asked, lookups // PARALLEL, seed) for seed in range(3, 3 + PARALLEL)])
        rate = lookups / (time.perf_counter() - started)
    cpu = (broker.cpu_seconds() - before) / (2 * lookups) * 1_000
    loads.delete_topic(broker.bootstrap, topic)
    console.print(f"{records:,} records, {broker.name}: {rate:,.0f} lookups/s")
    return [
        f"{records:,}",
        brokers.BY_NAME[broker.name].title,
        f"{times[len(times) // 2] * 1e3:.2f} ms",
        f"{times[len(times) * 99 // 100] * 1e3:.2f} ms",
        f"{times[-1] * 1e3:.1f} ms",
        f"{rate:,.0f}/s",
        f"{cpu:.2f} s",
    ]


def _ask(asked: Asked, lookups: int, seed: int) -> list[float]:
    """Seconds that each lookup took.

    Raises:
        loads.LoadFailed: an answer is not the first record at or after the asked time.
    """
    chosen = random.Random(seed)
    connection = wire.Connection(asked.bootstrap)
    times = []
    for _ in range(lookups):
        offset = chosen.randrange(asked.records)
        early = chosen.randrange(STEP_MS)
        timestamp = asked.base + offset * STEP_MS - early
        frame = wire.list_offsets_request(asked.topic, 0, [timestamp])
        started = time.perf_counter()
        response = connection.ask(frame)
        times.append(time.perf_counter() - started)
        expected = [(0, timestamp + early, offset)]
        if wire.list_offsets_answers(response) != expected:
            found = wire.list_offsets_answers(response)
            raise loads.LoadFailed(f"lookup of {timestamp}: {found}, expected {expected}")
    connection.close()
    return times


if __name__ == "__main__":
    sys.exit(main())

"""The bundled client beside aiokafka and confluent-kafka, on Tidelog and on Apache Kafka.

Each load is a process of its own: so many records of 100 bytes into a topic of three partitions,
and all of them back. CPU is that of the client's process and that of the broker's, for a million
records. Clients and brokers take turns; the first round is discarded, so that a JVM is warm. On a
machine of few cores client and broker share them, and rates say less than CPU.

`python -m benchmarks.clients [--brokers a,b] [--records N] [--bytes B] [--rounds N] [--write]`
"""

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness import brokers, loads, machine, report
from benchmarks.harness.client_loads import LOADS

PARTITIONS = 3
MILLION = 1_000_000
PATIENCE_S = 300
PAGE = report.DOCS / "client.md"

Figures = tuple[float, float, float]
"""Records per second, CPU seconds of the client and of the broker for a million records."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.clients", description=__doc__)
    parser.add_argument("--brokers", default="kafka,tidelog")
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--bytes", type=int, default=100, help="of a record's value")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="renew docs/client.md")
    options = parser.parse_args(arguments)
    brokers.end_with_us()
    machine.touch_memory()
    found: dict[tuple[str, str, str], list[Figures]] = {}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-clients-")))
        running = [
            stack.enter_context(brokers.BY_NAME[name].start(folder / name))
            for name in options.brokers.split(",")
        ]
        for number in range(options.rounds + 1):
            for client, role in LOADS:
                for broker in running:
                    topic = f"{client}-{number}"
                    if role == "produce":
                        loads.create_topic(broker.bootstrap, topic, PARTITIONS)
                    figures = _measure(broker, client, role, topic, options.records, options.bytes)
                    if number:
                        found.setdefault((role, client, broker.name), []).append(figures)
        facts = machine.describe(folder)
    text = f"{_conditions(facts, options)}\n\n{_table(found)}"
    print(text)
    if options.write:
        report.replace_section("clients", text, PAGE)
    return 0


def _measure(
    broker: brokers.Running, client: str, role: str, topic: str, records: int, size: int
) -> Figures:
    """Run one load; exits if it fails."""
    command = [
        sys.executable, "-m", "benchmarks.harness.client_loads",
        client, role, broker.bootstrap, topic, str(records), str(size),
    ]  # fmt: skip
    before = broker.cpu_seconds()
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    figures = json.loads(done.stdout)
    million = MILLION / records
    broker_s = broker.cpu_seconds() - before
    return figures["rate"], figures["cpu_s"] * million, broker_s * million


def _conditions(facts: dict[str, str], options: argparse.Namespace) -> str:
    shown = ("processor", "Python", "Apache Kafka", "Tidelog", "librdkafka")
    named = ", ".join(f"{name} {facts[name]}" for name in shown)
    return (
        f"{options.records:,} records of {options.bytes} B, {PARTITIONS} partitions, medians of "
        f"{options.rounds} rounds; {named}. CPU in seconds for a million records."
    )


def _table(found: dict[tuple[str, str, str], list[Figures]]) -> str:
    names = dict.fromkeys(broker for _, _, broker in found)
    head = ["load"]
    for name in names:
        head += [f"{name}: records/s", "CPU client", "CPU broker"]
    rows = []
    for role, client in dict.fromkeys((role, client) for role, client, _ in found):
        row = [f"{role}, {client}"]
        for name in names:
            rate, client_s, broker_s = map(
                statistics.median, zip(*found[role, client, name], strict=True)
            )
            row += [report.number(rate), f"{client_s:.2f}", f"{broker_s:.2f}"]
        rows.append(row)
    return report.table(head, rows)


if __name__ == "__main__":
    sys.exit(main())

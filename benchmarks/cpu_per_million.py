"""What a million records cost the broker: CPU seconds, by codec and record size.

librdkafka produces 1,000,000 records (acks=all, batches of up to 1 MB) and reads them again, with
each codec, for records of 100 bytes and of 1 KB. Where the load takes a core of its own, as on
two cores it does, throughput says more about the client than about the broker; this figure does
not. The broker verifies every batch, decompressing what is compressed.
`python -m benchmarks.cpu_per_million [--brokers a,b] [--records N]`
"""

import argparse
import contextlib
import sys
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks import brokers, loads, machine, report

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SIZES = (100, 1_024)
WARM_UP_RECORDS = 300_000

console = Console(highlight=False, stderr=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cpu_per_million")
    parser.add_argument("--brokers", default="kafka,tidelog,tidelog-synced")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--write", action="store_true", help="renew docs/benchmarks.md")
    options = parser.parse_args(arguments)
    brokers.end_with_us()
    names = options.brokers.split(",")
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-cpu-"))
        running = [
            stack.enter_context(brokers.BY_NAME[name].start(Path(folder) / name)) for name in names
        ]
        for broker in running:
            _cost(broker, records=WARM_UP_RECORDS, size=SIZES[0], codec="lz4")
        rows = [
            _row(running, records=options.records, size=size, codec=codec)
            for size in SIZES
            for codec in CODECS
        ]
        facts = machine.markdown(machine.describe(Path(folder)))
    titles = [brokers.BY_NAME[name].title for name in names]
    head = ["records", *(f"{title}: {part}" for title in titles for part in ("in", "out"))]
    note = "Broker CPU seconds per 1,000,000 records; in: produced, out: consumed."
    text = f"{facts}\n\n{note}\n\n{report.table(head, rows)}"
    print(text)
    if options.write:
        report.replace_section("cpu", text)
    return 0


def _row(running: Sequence[brokers.Running], *, records: int, size: int, codec: str) -> list[str]:
    label = "100 B" if size == 100 else "1 KB"
    cells = []
    for broker in running:
        costs = _cost(broker, records=records, size=size, codec=codec)
        cells += [f"{cost * 1e6 / records:.2f} s" for cost in costs]
        console.print(f"{label} {codec}: {broker.name} {cells[-2]} in, {cells[-1]} out")
    return [f"{label}, {codec}", *cells]


def _cost(broker: brokers.Running, *, records: int, size: int, codec: str) -> tuple[float, float]:
    """(CPU seconds to take the records in, to give them out)."""
    topic = f"cpu-{uuid.uuid4().hex[:8]}"
    loads.create_topic(broker.bootstrap, topic, 1)
    begun = broker.cpu_seconds()
    loads.librdkafka_produce(broker.bootstrap, topic, records=records, size=size, codec=codec)
    produced = broker.cpu_seconds()
    loads.librdkafka_consume(broker.bootstrap, topic, records=records)
    consumed = broker.cpu_seconds()
    loads.delete_topic(broker.bootstrap, topic)
    return produced - begun, consumed - produced


if __name__ == "__main__":
    sys.exit(main())

"""How long the broker takes to count a topic of 10^9 records by time (`GET /histogram`).

The topic is simulated: in each partition so many closed segments, whose logs are files with holes,
and whose counts have 256 buckets each, with records in disorder so that all segments overlap. The
broker opens the directory, rests while the warm-up after a start loads code in a thread, and then
bars are asked for over HTTP, for all of it and for a day. CPU is of the process, which is broker
and client. With `--rest 0` the first question shares the processor with the warm-up.
`python -m benchmarks.histogram [--partitions N] [--segments N] [--records N] [--questions N]`
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from benchmarks.harness import machine, report
from broker.node import Broker
from client.admin import Admin
from config import load
from storage.disk.file_names import LOG_SUFFIX, TIME_COUNTS_SUFFIX, segment_file_path
from storage.disk.files import RealFiles
from storage.segment.auxiliary_index import Coverage
from storage.segment.facts import SegmentFacts
from storage.segment.manifest import Manifest
from storage.segment.time_counts import BUCKETS_MAX, Buckets, encode_counts

TOPIC = "flights"
HEADINGS = ["question", "first", "its CPU", "median", "its CPU", "highest", "bars"]
START_MS = 1_700_000_000_000
WIDTH_MS = 900_000
DAY_MS = 86_400_000
SEGMENT_BYTES = 1 << 30


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.histogram", description=__doc__)
    parser.add_argument("--partitions", type=int, default=10)
    parser.add_argument("--segments", type=int, default=100, help="of each partition")
    parser.add_argument("--records", type=int, default=10**9, help="of the whole topic")
    parser.add_argument("--questions", type=int, default=20, help="of each kind, from 2")
    parser.add_argument("--rest", type=float, default=5, help="seconds after the start")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="bench-histogram-") as folder:
        rows = asyncio.run(_measure(Path(folder), options))
        facts = machine.markdown(machine.describe(Path(folder)))
    print(f"{facts}\n\n{report.table(HEADINGS, rows)}")
    return 0


async def _measure(folder: Path, options: argparse.Namespace) -> list[list[str]]:
    async with _Running(folder) as running, Admin(running.bootstrap) as admin:
        await admin.create_topic(TOPIC, partitions=options.partitions)
    for partition in range(options.partitions):
        _simulate(
            folder / f"{TOPIC}-{partition}",
            options.segments,
            options.records // options.partitions // options.segments,
        )
    span_ms = options.segments * WIDTH_MS
    middle = START_MS + span_ms // 2
    questions = {
        "all of it": f"topic={TOPIC}",
        "a day": f"topic={TOPIC}&from={middle}&to={middle + DAY_MS}&buckets=96",
        "a day, one partition": f"topic={TOPIC}&partition=0&from={middle}&to={middle + DAY_MS}",
    }
    rows = []
    async with _Running(folder) as running:
        await asyncio.sleep(options.rest)
        for words, query in questions.items():
            seconds, processor = [], []
            for _ in range(options.questions):
                begun, used = time.perf_counter(), time.process_time()
                found = await asyncio.to_thread(running.ask, query)
                seconds.append(time.perf_counter() - begun)
                processor.append(time.process_time() - used)
            assert found["is_complete"], found["missing"][:1]
            if query == f"topic={TOPIC}":
                assert found["records"] == options.records, found["records"]
            shown = (
                *(seconds[0], processor[0]),
                *(median(seconds[1:]), median(processor[1:])),
                max(seconds[1:]),
            )
            bars = str(len(found["buckets"]))
            rows.append([words, *(f"{one * 1e3:.0f} ms" for one in shown), bars])
    return rows


class _Running:
    """A broker in this process, on the directory."""

    def __init__(self, folder: Path) -> None:
        self._broker = Broker(
            load(
                command_line={
                    "log.dirs": str(folder),
                    "listeners": "PLAINTEXT://127.0.0.1:0",
                    "metrics.listener": "127.0.0.1:0",
                    "log.retention.ms": "-1",
                }
            )
        )

    async def __aenter__(self) -> "_Running":
        ready = await self._broker.start()
        self.bootstrap = f"127.0.0.1:{ready.port}"
        self._url = f"http://127.0.0.1:{ready.metrics_port}/histogram"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._broker.stop()

    def ask(self, query: str) -> dict[str, Any]:
        """The answer to a question."""
        with urllib.request.urlopen(f"{self._url}?{query}", timeout=60) as answer:
            document: dict[str, Any] = json.load(answer)
        return document


def _simulate(folder: Path, segments: int, records: int) -> None:
    """Make a partition of closed segments with `records` each, in place of an empty one."""
    for path in folder.iterdir():
        path.unlink()
    files, directory = RealFiles(), str(folder)
    manifest = Manifest(directory, files)
    for number in range(segments):
        base = number * records
        newest_ms = START_MS + number * WIDTH_MS + DAY_MS
        with open(segment_file_path(directory, base, LOG_SUFFIX), "wb") as log:
            log.truncate(SEGMENT_BYTES)
        coverage = Coverage(SEGMENT_BYTES, base + records, newest_ms)
        content = encode_counts(_buckets(number, records, newest_ms), [], coverage)
        Path(segment_file_path(directory, base, TIME_COUNTS_SUFFIX)).write_bytes(content)
        manifest.remember(
            SegmentFacts(
                base_offset=base,
                next_offset=base + records,
                size_bytes=SEGMENT_BYTES,
                max_timestamp=newest_ms,
                max_timestamp_offset=base + records - 1,
                first_timestamp=newest_ms,
                appended_ms=newest_ms,
                records=records,
                offset_index_bytes=0,
                time_index_bytes=0,
                txn_index_bytes=0,
                offset_index_crc=0,
                time_index_crc=0,
                min_timestamp=START_MS,
                data_max_timestamp=newest_ms,
            )
        )
    manifest.remember_durable(segments * records)
    manifest.close()
    files.create(segment_file_path(directory, segments * records, LOG_SUFFIX)).close()


def _buckets(number: int, records: int, newest_ms: int) -> Buckets:
    """As many buckets as a segment may have, spread over all of the time before its newest."""
    buckets = Buckets(WIDTH_MS)
    each, rest = divmod(records, BUCKETS_MAX)
    earlier = Random(number).sample(range(1, 4 * BUCKETS_MAX), BUCKETS_MAX - 1)
    for at, steps in enumerate([0, *earlier]):
        buckets.add(newest_ms - steps * WIDTH_MS, each + (at < rest))
    return buckets


if __name__ == "__main__":
    sys.exit(main())

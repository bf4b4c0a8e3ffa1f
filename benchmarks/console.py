"""What the console costs on a large cluster: pages in ms, bytes received, memory over a session.

A broker with many topics of one partition, and one topic of very many; a console process; the
questions that each page asks, over HTTP as a browser does it. The session reads every page again
and again, with tails open and groups with lag; then it polls a group's page as tabs do that stay
open: an hour of five tabs is 1800 polls. Memory is the resident set of the console. CPU is the mean
for a page after its first time, in steps of 10 ms for each measurement.
`python -m benchmarks.console [--topics N] [--partitions N] [--groups N] [--rounds N] [--polls N]`
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.harness import machine, report
from client.admin import Admin
from client.descriptions import NewTopic
from client.producer import Producer
from client.types import TopicPartition
from tests.support.kafka_peer import cpu_seconds
from tidelog.testing import running_broker

WIDE = "wide"
SHOWN = 50
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
_AT_ONCE = 200


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints Markdown tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.console", description=__doc__)
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--partitions", type=int, default=10_000, help="of the topic 'wide'")
    parser.add_argument("--groups", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=100, help="of all pages, for the memory")
    parser.add_argument("--polls", type=int, default=1800, help="of a group's page, after them")
    parser.add_argument("--tails", type=int, default=5)
    options = parser.parse_args(arguments)
    with running_broker() as broker:
        asyncio.run(_fill(broker.bootstrap, options))
        begun = time.perf_counter()
        with running_console(broker.bootstrap) as (url, pid):
            ask(url, "/")
            start_ms = (time.perf_counter() - begun) * 1e3
            rows, memory = _measure(url, (pid, broker.process.pid), options)
    facts = machine.markdown(machine.describe(Path(tempfile.gettempdir())))
    print(f"{facts}\n\nstart to first byte: {start_ms:.0f} ms\n")
    headings = ["page", "first", "median", "CPU console", "CPU broker", "received"]
    print(report.table(headings, rows))
    print()
    print(report.table(["memory", "MB"], memory))
    return 0


@contextmanager
def running_console(bootstrap: str) -> Iterator[tuple[str, int]]:
    """(the URL of a console without its last slash, its process id)."""
    words = ["console", "-b", bootstrap, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        [sys.executable, "-m", "tidelog", *words], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip().rstrip("/"), process.pid
        finally:
            process.terminate()


async def _fill(bootstrap: str, options: argparse.Namespace) -> None:
    names = [f"topic-{number:04}" for number in range(options.topics)]
    async with (
        Admin(bootstrap, request_timeout_ms=300_000, timeout_ms=300_000) as admin,
        Producer(bootstrap) as producer,
    ):
        for start in range(0, len(names), _AT_ONCE):
            part = names[start : start + _AT_ONCE]
            await admin.create_topics([NewTopic(name=name, partitions=1) for name in part])
        await admin.create_topic(WIDE, partitions=options.partitions)
        now_ms = time.time_ns() // 1_000_000
        for name in names:
            for hour in range(20, 0, -4):
                await producer.send(name, b"x" * 100, timestamp_ms=now_ms - hour * HOUR_MS)
        used = range(0, options.partitions, max(1, options.partitions // 500))
        for at, number in enumerate(used):
            time_ms = now_ms - DAY_MS + at * DAY_MS // len(used)
            await producer.send(WIDE, b"x" * 100, partition=number, timestamp_ms=time_ms)
        await producer.flush()
        for number in range(options.groups):
            some = {TopicPartition(name, 0): 2 for name in names[number :: options.groups]}
            await admin.alter_group_offsets(f"group-{number}", some)


def _measure(
    url: str, pids: tuple[int, int], options: argparse.Namespace
) -> tuple[list[list[str]], list[list[str]]]:
    """Rows of both tables; `pids` are the console's and the broker's."""
    pid = pids[0]
    names = [row["name"] for row in _json(url, "/api/topics")["topics"]][:SHOWN]
    visible = "&".join(f"name={name}" for name in names)
    pages = {
        "overview": ("/api/cluster", "/api/groups"),
        "list of topics": ("/api/topics",),
        "its details": (f"/api/topic-details?{visible}",),
        "its last 24 hours": (f"/api/topic-days?{visible}",),
        "topic": ("/api/topics/topic-0001", "/api/topics/topic-0001/timeline"),
        "topic of many partitions": (f"/api/topics/{WIDE}",),
        "its timeline": (f"/api/topics/{WIDE}/timeline",),
        "its records": (f"/api/topics/{WIDE}/records",),
        "group": ("/api/groups/group-0",),
    }
    memory = [["after the start", _resident_mb(pid)]]
    times: dict[str, list[float]] = {name: [] for name in pages}
    processor: dict[str, list[float]] = {name: [0.0, 0.0] for name in pages}
    received = {}
    for name, paths in pages.items():
        begun = time.perf_counter()
        received[name] = sum(len(ask(url, path)) for path in paths)
        times[name].append(time.perf_counter() - begun)
    memory.append(["after every page once", _resident_mb(pid)])
    stopping = threading.Event()
    asked = (url, "topic-0001", stopping)
    tails = [threading.Thread(target=follow, args=asked) for _ in range(options.tails)]
    for tail in tails:
        tail.start()
    for turn in range(options.rounds):
        for name, paths in pages.items():
            begun, used = time.perf_counter(), [cpu_seconds(one) for one in pids]
            for path in paths:
                ask(url, path)
            times[name].append(time.perf_counter() - begun)
            for at, one in enumerate(pids):
                processor[name][at] += cpu_seconds(one) - used[at]
        if turn + 1 in (options.rounds // 4, options.rounds // 2, options.rounds):
            count = f"{turn + 1} rounds, {options.tails} tails open"
            memory.append([f"after {count}", _resident_mb(pid)])
    for _ in range(options.polls):
        ask(url, "/api/groups/group-0")
    memory.append([f"after {options.polls} polls of a group", _resident_mb(pid)])
    stopping.set()
    for tail in tails:
        tail.join()
    rows = []
    for name, (first, *rest) in times.items():
        rest.sort()
        median = rest[len(rest) // 2] if rest else first
        size = f"{received[name] / 1e3:.0f} kB"
        cost = [f"{one * 1e3 / max(1, options.rounds):.0f} ms" for one in processor[name]]
        rows.append([name, f"{first * 1e3:.0f} ms", f"{median * 1e3:.0f} ms", *cost, size])
    return rows, memory


def ask(url: str, path: str) -> bytes:
    """The answer of a console to one question."""
    with urllib.request.urlopen(f"{url}{path}", timeout=60) as answer:
        body: bytes = answer.read()
    return body


def _json(url: str, path: str) -> Any:
    return json.loads(ask(url, path))


def follow(url: str, topic: str, stopping: threading.Event) -> None:
    """Read a topic's live tail as a browser does, until it is time to stop."""
    with urllib.request.urlopen(f"{url}/api/topics/{topic}/tail", timeout=60) as answer:
        while not stopping.is_set():
            answer.readline()


def _resident_mb(pid: int) -> str:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return f"{pages * os.sysconf('SC_PAGE_SIZE') / 1e6:.0f}"


if __name__ == "__main__":
    sys.exit(main())

"""What an open console costs a producer: its p99 with a console beside it and without one.

A producer sends requests at a fixed pace and takes the time from when each was due until its
acknowledgement, so that a request that waits for the one before it counts as late. The rounds of
three conditions take turns in a random order:

    none   no console
    open   tabs that stay open: live tails of the producer's topic, and the overview, the list of
           groups and a group, which ask again every ten seconds
    used   the same, and a person loads the topic's timeline and its records every two seconds

The console and the readers of its pages share the processors of this machine with the broker and
the producer, which a console elsewhere does not. Ratios are medians over the rounds, each beside
the round without a console of its turn. CPU is that of the processes, in percent of one core.
`python -m benchmarks.console_producer [--rounds N] [--seconds S] [--rate N] [--tails N]`
"""

import argparse
import asyncio
import contextlib
import multiprocessing
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.pool import Pool
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.console import ask, follow, running_console
from benchmarks.harness import brokers, loads, machine, report
from client.admin import Admin
from client.descriptions import NewTopic
from client.types import TopicPartition
from tests.support.kafka_peer import cpu_seconds
from tidelog.testing import RunningBroker, running_broker

TOPIC = "paced"
GROUP = "billing"
CONDITIONS = ("none", "open", "used")
POLLED = ("/api/activity", "/api/groups", f"/api/groups/{GROUP}")
LOADED = (f"/api/topics/{TOPIC}", f"/api/topics/{TOPIC}/timeline", f"/api/topics/{TOPIC}/records")
_POLL_S = 10.0
HEADINGS = ["console", "p50", "p99", "of each round", "p99 beside none", "CPU broker", "console"]


class Round(NamedTuple):
    """What one round found; CPU is a share of one core."""

    p50_ms: float
    p99_ms: float
    broker_cpu: float
    console_cpu: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints a Markdown table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.console_producer", description=__doc__
    )
    parser.add_argument("--rounds", type=int, default=7, help="of each condition")
    parser.add_argument("--seconds", type=float, default=15, help="of each round")
    parser.add_argument("--rate", type=int, default=200, help="requests a second, of ten records")
    parser.add_argument("--tails", type=int, default=1, help="live tails of the topic")
    parser.add_argument("--topics", type=int, default=100, help="besides the producer's")
    parser.add_argument("--look", type=float, default=2, help="seconds between two looks, if used")
    parser.add_argument("--flush-policy", default="batch", help="of the broker")
    options = parser.parse_args(arguments)
    brokers.end_with_us()
    found: dict[str, list[Round]] = {name: [] for name in CONDITIONS}
    order = random.Random(16)
    with (
        running_broker(settings={"log.flush.policy": options.flush_policy}) as broker,
        multiprocessing.get_context("spawn").Pool(1) as pool,
    ):
        asyncio.run(_fill(broker.bootstrap, options.topics))
        pool.apply(loads.paced_produce, (broker.bootstrap, TOPIC, options.rate, 1.0))
        for _ in range(options.rounds):
            for name in order.sample(CONDITIONS, len(CONDITIONS)):
                found[name].append(_measure(broker, pool, name, options))
    facts = machine.markdown(machine.describe(Path(tempfile.gettempdir())))
    print(f"{facts}\n\n{report.table(HEADINGS, rows_of(found))}")
    return 0


async def _fill(bootstrap: str, topics: int) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topics(
            [NewTopic(name=f"topic-{n:04}", partitions=1) for n in range(topics)]
        )
        await admin.create_topic(TOPIC, partitions=1)
        await admin.alter_group_offsets(GROUP, {TopicPartition(TOPIC, 0): 0})


def _measure(
    broker: RunningBroker, pool: Pool, condition: str, options: argparse.Namespace
) -> Round:
    """One round, with what its condition has open."""
    with contextlib.ExitStack() as stack:
        pids = [broker.process.pid]
        if condition != "none":
            url, pid = stack.enter_context(running_console(broker.bootstrap))
            pids.append(pid)
            look_s = options.look if condition == "used" else None
            stack.enter_context(_opened(url, options.tails, look_s))
        before = [cpu_seconds(pid) for pid in pids]
        started = time.perf_counter()
        paced = (broker.bootstrap, TOPIC, options.rate, options.seconds)
        times = pool.apply(loads.paced_produce, paced)
        took_s = time.perf_counter() - started
        used = [(cpu_seconds(pid) - cpu) / took_s for pid, cpu in zip(pids, before, strict=True)]
    times.sort()
    p50_ms, p99_ms = (times[int(len(times) * share)] * 1e3 for share in (0.5, 0.99))
    return Round(p50_ms, p99_ms, used[0], sum(used[1:]))


@contextlib.contextmanager
def _opened(url: str, tails: int, look_s: float | None) -> Iterator[None]:
    """The pages of a console, open; each has been answered once."""
    for path in (*POLLED, *LOADED):
        ask(url, path)
    stopping = threading.Event()
    threads = [threading.Thread(target=follow, args=(url, TOPIC, stopping)) for _ in range(tails)]
    threads += [threading.Thread(target=_ask_again, args=(url, POLLED, _POLL_S, stopping))]
    if look_s is not None:
        threads += [threading.Thread(target=_ask_again, args=(url, LOADED, look_s, stopping))]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopping.set()
        for thread in threads:
            thread.join()


def _ask_again(url: str, paths: Sequence[str], every_s: float, stopping: threading.Event) -> None:
    while not stopping.wait(every_s):
        for path in paths:
            ask(url, path)


def rows_of(found: Mapping[str, Sequence[Round]]) -> list[list[str]]:
    """The table's rows: medians over the rounds, ratios of rounds of the same turn."""
    rows = []
    for name, rounds in found.items():
        pairs = zip(rounds, found["none"], strict=True)
        ratio = median(one.p99_ms / other.p99_ms for one, other in pairs)
        cells = [f"{median(one.p50_ms for one in rounds):.2f} ms"]
        cells += [f"{median(one.p99_ms for one in rounds):.2f} ms"]
        cells += [", ".join(f"{one.p99_ms:.1f}" for one in rounds)]
        cells += ["" if name == "none" else f"{ratio:.2f}"]
        cells += [f"{median(one.broker_cpu for one in rounds):.1%}"]
        cells += ["" if name == "none" else f"{median(one.console_cpu for one in rounds):.1%}"]
        rows.append([name, *cells])
    return rows


if __name__ == "__main__":
    sys.exit(main())

"""What more workers bring: `workers=N` beside one, by rate and by CPU for each request.

Raw requests for the partitions of a topic, each on a connection of its own to the partition's
leader. Two figures:

* CPU of all worker processes together for one request. The load is the same whatever the number of
  workers: as many partitions and connections as the largest number has workers. Once the
  connections are driven one at a time, as if each worker had a core, and once all at the same time
  by one sender. The brokers take turns with each kind of request, in changing order;
* the rate of Produce requests of 16 KB, with a sender process and a partition for each worker.
  Senders and workers share the cores of the machine, so the rate says what this machine gains. With
  more workers than cores it says nothing.

`python -m benchmarks.workers [--workers 1,2,4,8] [--rounds N] [--seconds S] [--write]`
"""

import argparse
import contextlib
import multiprocessing
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing.synchronize import Barrier
from pathlib import Path

from benchmarks import request_cost
from benchmarks.harness import brokers, loads, machine, report, wire
from values.words import format_count

WORKERS = (1, 2, 4, 8)
ROUNDS = 5
SECONDS = 0.7
RATE_ROW = f"Produce {request_cost.KIB_BATCH // 1_000} KB of 1024 B"
WAYS = {"one connection at a time": True, "all connections together": False}
_PATIENCE_S = 120.0
"""What a sender may take to start, to connect and to send, beyond the time it sends for."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints Markdown tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.workers", description=__doc__)
    parser.add_argument("--workers", default=",".join(map(str, WORKERS)), help="compare these")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="per row and round")
    parser.add_argument("--write", action="store_true", help="renew docs/benchmarks.md")
    options = parser.parse_args(arguments)
    brokers.end_with_us()
    machine.touch_memory()
    counts = [int(count) for count in options.workers.split(",")]
    with tempfile.TemporaryDirectory(prefix="bench-workers-") as folder:
        document = measure(Path(folder), counts, options.rounds, options.seconds)
    text = f"{machine.markdown(document['machine'])}\n\n{tables(document)}"
    print(text)
    if options.write:
        report.replace_section("workers", text)
    return 0


def measure(
    folder: Path, counts: Sequence[int], rounds: int, seconds: float, deadline: float = float("inf")
) -> report.Document:
    """Start a broker with each number of workers, and drive them in turns.

    No round but the first begins after `deadline`, on time.monotonic.
    """
    costs: dict[str, dict[str, dict[str, list[float]]]] = {way: {} for way in WAYS}
    rates: dict[str, list[float]] = {str(count): [] for count in counts}
    with contextlib.ExitStack() as stack:
        work = []
        for count in counts:
            contender = brokers.tidelog_of(count)
            running = stack.enter_context(contender.start(folder / contender.name))
            work.append((str(count), running, list(_loads(running, max(counts)))))
        for number in range(rounds + 1):  # the first one warms up
            if number > 1 and time.monotonic() > deadline:
                break
            order = work[:: 1 if number % 2 else -1]
            for place in range(len(order[0][2])):
                for way, by_turns in WAYS.items():
                    for name, running, found in order:
                        load = found[place]
                        cost = _cost(running, load, seconds, by_turns=by_turns)
                        if number:
                            costs[way].setdefault(load.title, {}).setdefault(name, []).append(cost)
            for name, _, found in order:
                load = next(load for load in found if load.title == RATE_ROW)
                rate = _rate(load, int(name), seconds)
                if number:
                    rates[name].append(rate)
    return {
        "kind": "workers",
        "when": time.strftime("%Y-%m-%d %H:%M"),
        "machine": machine.describe(folder),
        "costs": costs,
        "rates": rates,
    }


def gain(document: report.Document, count: int = 2) -> float | None:
    """The rate with `count` workers beside that with one."""
    rates = {name: statistics.median(found) for name, found in document["rates"].items() if found}
    if "1" not in rates or str(count) not in rates:
        return None
    return float(rates[str(count)] / rates["1"])


def dearest(document: report.Document, way: str, count: int) -> float | None:
    """The largest CPU for a request with `count` workers beside that with one, of all kinds."""
    found = [
        statistics.median(by_count[str(count)]) / statistics.median(by_count["1"])
        for by_count in document["costs"].get(way, {}).values()
        if {"1", str(count)} <= by_count.keys()
    ]
    return max(found, default=None)


def tables(document: report.Document) -> str:
    """The tables of a run."""
    names = list(document["rates"])
    head = [f"{name} worker{'s' * (name != '1')}" for name in names]
    rounds = max((len(found) for found in document["rates"].values()), default=0)
    parts = [
        f"Measured {document['when']}, medians of {format_count(rounds, 'round')}, "
        f"`flush.policy=os`, {request_cost.IN_FLIGHT} requests in flight on each connection. "
        "CPU in microseconds for a request, of all workers together."
    ]
    for way, by_title in document["costs"].items():
        lines = [[title, *_with_ratios(found, names)] for title, found in by_title.items()]
        parts.append(report.table([f"CPU, {way}", *head], lines))
    rates = {name: [value / 1e6 for value in found] for name, found in document["rates"].items()}
    parts.append(
        report.table(
            ["rate, a sender for each worker", *head],
            [[f"{RATE_ROW}, MB/s", *_with_ratios(rates, names)]],
        )
    )
    return "\n\n".join(parts)


def _with_ratios(found: Mapping[str, Sequence[float]], names: Sequence[str]) -> list[str]:
    """The medians, and how many times the first one the others are."""
    medians = {name: statistics.median(found[name]) for name in names if found.get(name)}
    first = medians.get(names[0])
    return [
        "-"
        if name not in medians
        else f"{report.number(medians[name])}"
        + (f" ({medians[name] / first:.2f})" if first and name != names[0] else "")
        for name in names
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Load:
    """One kind of request. `streams` has a leader's address and a frame for each partition."""

    title: str
    streams: tuple[tuple[str, bytes], ...]


def _loads(broker: brokers.Running, partitions: int) -> Iterator[_Load]:
    """The requests for so many partitions, those of each worker in turn."""
    topic = f"cost-{uuid.uuid4().hex[:8]}"
    loads.create_topic(broker.bootstrap, topic, partitions, retention_bytes="200000000")
    leaders = loads.leaders(broker.bootstrap, topic)

    def load(title: str, frame: Callable[[int], bytes]) -> _Load:
        return _Load(
            title=title,
            streams=tuple((leader, frame(number)) for number, leader in enumerate(leaders)),
        )

    for size in (1_024, 100):
        records = request_cost.batch(request_cost.KIB_BATCH // (size + 10), size)
        title = f"Produce {request_cost.KIB_BATCH // 1_000} KB of {size} B"
        yield load(title, partial(_produce, topic, records))
    yield load("Produce 1 record of 100 B", partial(_produce, topic, request_cost.batch(1, 100)))
    size = request_cost.KIB_BATCH + 1_000
    yield load(f"Fetch {size // 1_000} KB", partial(request_cost.fetch, topic, size))


def _produce(topic: str, records: bytes, number: int) -> bytes:
    return request_cost.produce(topic, [records], number)


def _cost(broker: brokers.Running, load: _Load, seconds: float, *, by_turns: bool) -> float:
    """Microseconds of CPU per request, of all worker processes together."""
    workers = broker.workers or (broker,)
    pairs = [(wire.Connection(leader), frame) for leader, frame in load.streams]
    shares = [[pair] for pair in pairs] if by_turns else [pairs]
    begun = request_cost.cpu_ns(workers)
    sent = sum(
        request_cost.drive(share, seconds / len(shares), request_cost.IN_FLIGHT) for share in shares
    )
    used = request_cost.cpu_ns(workers) - begun
    for connection, _ in pairs:
        connection.close()
    return used / sent / 1_000


def _rate(load: _Load, senders: int, seconds: float) -> float:
    """Bytes per second that all workers take together, each from a sender of its own.

    The senders are fresh processes: a forked one would have librdkafka's handles without its
    threads, and closing one of them never ends.
    """
    streams = dict(load.streams)  # one for each leader
    assert len(streams) == senders, "a worker leads no partition"
    context = multiprocessing.get_context("spawn")
    together = context.Barrier(senders)
    with ProcessPoolExecutor(
        senders, context, initializer=_begin_together, initargs=(together,)
    ) as pool:
        sent = [pool.submit(_send, leader, frame, seconds) for leader, frame in streams.items()]
        return sum(one.result(seconds + 2 * _PATIENCE_S) for one in sent)


_together: Barrier
"""Where the senders wait for each other; set in each of their processes."""


def _begin_together(together: Barrier) -> None:
    """What each sender's process does first."""
    global _together
    _together = together


def _send(bootstrap: str, frame: bytes, seconds: float) -> float:
    """Bytes per second of one sender, which begins with the others; in a process of its own."""
    connection = wire.Connection(bootstrap)
    _together.wait(_PATIENCE_S)
    started = time.monotonic()
    sent = request_cost.drive([(connection, frame)], seconds, request_cost.IN_FLIGHT)
    elapsed = time.monotonic() - started
    connection.close()
    return sent * len(frame) / elapsed


if __name__ == "__main__":
    sys.exit(main())

"""Ten thousand partitions: start, describe, a produce to each, and what they hold of memory.

Topics of 500 partitions (`--per-topic`), one request each. Measured are creating them, describing
them (one Metadata request), one record to every partition with acks=all in a request per topic, the
memory after that, and a clean stop and start on the data, until an ApiVersions request is answered.
Another connection asks for ApiVersions all the while; the longest it waited, in the making and in
the producing, says whether the others are held up.
`python -m benchmarks.partitions [--brokers a,b] [--partitions N]`

With `--first N` something else is measured: one request with a record to each of N new partitions,
with no other client. CPU of the broker, user and system apart, until the answer and until the
broker is idle again (with flush.policy=os it syncs the new files afterwards); medians of `--rounds`
in which the brokers take turns, each with a topic of its own. The times of the kernel's clock are
in steps of 10 ms.
"""

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness import brokers, loads, machine, report, wire
from benchmarks.request_cost import batch, cpu_ns, framed, produce
from protocol.api.metadata import MetadataRequest, MetadataRequestTopic
from protocol.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.api_keys import ApiKey
from protocol.error_codes import ErrorCode
from protocol.headers import decode_response_header
from protocol.registry import decode_response

PRODUCE_V, METADATA_V = 11, 12
START_TIMEOUT_S = 240
BYSTANDER_PAUSE_S = 0.002
QUIET_SPAN_S, QUIET_CPU_NS = 0.5, 15_000_000
"""A broker is idle when it used no more than this CPU in this span."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.partitions", description=__doc__)
    parser.add_argument("--brokers", default="kafka,tidelog,tidelog-synced")
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--per-topic", type=int, default=500)
    parser.add_argument("--first", type=int, default=0, help="one request to so many new ones")
    parser.add_argument("--rounds", type=int, default=5, help="with --first")
    parser.add_argument("--write", action="store_true", help="renew docs/benchmarks.md")
    options = parser.parse_args(arguments)
    brokers.end_with_us()
    names = options.brokers.split(",")
    if options.first:
        machine.touch_memory()
        print(_first_records(names, options.first, options.rounds))
        return 0
    with tempfile.TemporaryDirectory(prefix="bench-partitions-") as name:
        folder = Path(name)
        rows = [
            _row(brokers.BY_NAME[each], folder / each, options.partitions, options.per_topic)
            for each in names
        ]
        facts = machine.markdown(machine.describe(folder))
    head = ["broker", "create", "describe", "produce to each", "another waits", "memory", "CPU"]
    head.append("start again")
    about = f"{options.partitions:,} partitions in topics of {options.per_topic:,}."
    text = f"{facts}\n\n{about}\n\n{report.table(head, rows)}"
    print(text)
    if options.write:
        report.replace_section("partitions", text)
    return 0


def _row(contender: brokers.Contender, folder: Path, partitions: int, per_topic: int) -> list[str]:
    with contender.start(folder) as running:
        began = time.perf_counter()
        topics = [f"partitions-{number}" for number in range(partitions // per_topic)]
        with _Bystander(running.bootstrap) as making:
            for topic in topics:
                with contextlib.suppress(loads.LoadFailed):  # not visible yet: see below
                    loads.create_topic(running.bootstrap, topic, per_topic)
            connection = wire.Connection(running.bootstrap)
            _until_described(connection, topics, partitions)
        created = time.perf_counter()
        _describe(connection, topics, partitions)
        described = time.perf_counter()
        with _Bystander(running.bootstrap) as producing:
            _produce_to_each(connection, topics, per_topic)
        produced = time.perf_counter()
        connection.close()
        memory, cpu = running.resident_bytes(), running.cpu_seconds()
    with contender.start(folder) as running:
        connection = _answering(running)
        started = time.perf_counter()
        _describe(connection, topics, partitions)
        connection.close()
    return [
        contender.title,
        f"{created - began:.2f} s",
        f"{(described - created) * 1e3:,.0f} ms",
        f"{produced - described:.2f} s",
        f"{making.longest_s * 1e3:,.0f}, {producing.longest_s * 1e3:,.0f} ms",
        f"{memory / 1e6:,.0f} MB",
        f"{cpu:.1f} s",
        f"{started - running.spawned_at:.2f} s",
    ]


class _Bystander:
    """A connection in a thread of its own that asks all the time; how long it waited at most."""

    def __init__(self, bootstrap: str) -> None:
        self.longest_s = 0.0
        self._bootstrap = bootstrap
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)

    def __enter__(self) -> "_Bystander":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _ask(self) -> None:
        connection = wire.Connection(self._bootstrap)
        while not self._over.wait(BYSTANDER_PAUSE_S):
            asked = time.perf_counter()
            connection.ask(wire.api_versions_request())
            self.longest_s = max(self.longest_s, time.perf_counter() - asked)
        connection.close()


def _until_described(connection: wire.Connection, topics: Sequence[str], partitions: int) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        with contextlib.suppress(loads.LoadFailed):
            return _describe(connection, topics, partitions)
        time.sleep(0.05)
    raise loads.LoadFailed("the topics did not become visible")


def _describe(connection: wire.Connection, topics: Sequence[str], partitions: int) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic) for topic in topics])
    answer = connection.ask(framed(request, METADATA_V))
    _, position = decode_response_header(answer, ApiKey.METADATA, METADATA_V)
    found = decode_response(ApiKey.METADATA, METADATA_V, memoryview(answer), position)
    described = sum(len(topic.partitions) for topic in found.topics)
    if described != partitions:
        raise loads.LoadFailed(f"{described} partitions were described")


def _produce_to_each(connection: wire.Connection, topics: Sequence[str], per_topic: int) -> None:
    batch = wire.record_batch([b"x" * 100], [int(time.time() * 1000)])
    for topic in topics:
        data = [PartitionProduceData(index=index, records=batch) for index in range(per_topic)]
        written = TopicProduceData(name=topic, partition_data=data)
        request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[written])
        frame = framed(request, PRODUCE_V)
        deadline = time.monotonic() + START_TIMEOUT_S
        while refusals := _refusals(connection.ask(frame)):
            # Kafka refuses for a while after the topic was created.
            if time.monotonic() > deadline:
                raise loads.LoadFailed(f"refused with errors {refusals}")
            time.sleep(0.05)


def _refusals(answer: bytes) -> set[int]:
    _, position = decode_response_header(answer, ApiKey.PRODUCE, PRODUCE_V)
    found = decode_response(ApiKey.PRODUCE, PRODUCE_V, memoryview(answer), position)
    codes = {response.error_code for response in found.responses[0].partition_responses}
    return codes - {ErrorCode.NONE}


def _first_records(names: Sequence[str], partitions: int, rounds: int) -> str:
    """A table of what one request to so many new partitions costs each broker."""
    costs: dict[str, list[list[float]]] = {name: [] for name in names}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-first-")))
        running = [
            stack.enter_context(brokers.BY_NAME[name].start(folder / name)) for name in names
        ]
        facts = machine.markdown(machine.describe(folder))
        frames = [produce(f"first-{number}", [batch(1, 100)] * partitions) for number in
                  range(rounds)]  # fmt: skip
        for number, frame in enumerate(frames):
            for broker in running:
                costs[broker.name].append(_first(broker, f"first-{number}", partitions, frame))
    lines = [
        [brokers.BY_NAME[name].title, *(_spread(each) for each in zip(*found, strict=True))]
        for name, found in costs.items()
    ]
    head = [
        "broker",
        "answered after",
        "user CPU",
        "system",
        "user CPU until idle",
        "system",
        "all",
    ]
    about = f"One Produce of a record to each of {partitions:,} new partitions, ms: median (all)."
    return f"{facts}\n\n{about}\n\n{report.table(head, lines)}"


def _first(broker: brokers.Running, topic: str, partitions: int, frame: bytes) -> list[float]:
    """Milliseconds: until the answer; CPU until then (user, system); until idle (also both)."""
    with contextlib.suppress(loads.LoadFailed):  # not visible yet: see below
        loads.create_topic(broker.bootstrap, topic, partitions)
    connection = wire.Connection(broker.bootstrap)
    _until_described(connection, [topic], partitions)
    _until_idle(broker)
    before, all_before, began = _user_and_system_ms(broker), cpu_ns([broker]), time.perf_counter()
    answer = connection.ask(frame)
    answered, ended = _user_and_system_ms(broker), time.perf_counter()
    if refusals := _refusals(answer):
        raise loads.LoadFailed(f"refused with errors {refusals}")
    _until_idle(broker)
    idle, all_idle = _user_and_system_ms(broker), cpu_ns([broker])
    connection.close()
    loads.delete_topic(broker.bootstrap, topic)
    _until_idle(broker)
    return [
        (ended - began) * 1e3,
        *(after - first for after, first in zip(answered, before, strict=True)),
        *(after - first for after, first in zip(idle, before, strict=True)),
        (all_idle - all_before) / 1e6,
    ]


def _user_and_system_ms(broker: brokers.Running) -> tuple[float, float]:
    stat = Path(f"/proc/{broker.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    tick_ms = 1000 / os.sysconf("SC_CLK_TCK")
    return int(stat[11]) * tick_ms, int(stat[12]) * tick_ms


def _until_idle(broker: brokers.Running) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        used = cpu_ns([broker])
        time.sleep(QUIET_SPAN_S)
        if cpu_ns([broker]) - used <= QUIET_CPU_NS:
            return
    raise loads.LoadFailed(f"{broker.name} is not idle after {START_TIMEOUT_S} s")


def _spread(values: Sequence[float]) -> str:
    listed = ", ".join(f"{value:,.0f}" for value in sorted(values))
    return f"{statistics.median(values):,.0f} ({listed})"


def _answering(running: brokers.Running) -> wire.Connection:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            connection = wire.Connection(running.bootstrap)
            connection.ask(wire.api_versions_request())
            return connection
        time.sleep(0.005)
    raise loads.LoadFailed(f"{running.name} did not answer within {START_TIMEOUT_S} s")


if __name__ == "__main__":
    sys.exit(main())

"""What one request costs the broker: microseconds of CPU, user and system, by kind of request.

Throughput on a shared machine says as much about the load as about the broker. This drives one
broker with requests built in advance, five in flight on one connection, and reads the CPU clock of
its process before and after; each row is the median of several rounds. The bare loop of `limit.py`
gets the same Produce frames, so the difference is what being a broker costs.
`python -m benchmarks.request_cost [--brokers a,b] [--rows TEXT] [--seconds S] [--rounds N]
[--in-flight N]`
"""

import argparse
import contextlib
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import brokers, loads, machine, report, wire
from protocol.api.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.api.heartbeat import HeartbeatRequest
from protocol.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.api.metadata import MetadataRequest, MetadataRequestTopic
from protocol.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.declare.primitives import message_spec
from protocol.frames import encode_frame
from protocol.headers import RequestHeader, encode_request_header
from protocol.registry import encode_request

IN_FLIGHT = 5
KIB_BATCH, MIB_BATCH = 16_000, 1_000_000
PRODUCE_V, FETCH_V, METADATA_V, HEARTBEAT_V, LIST_OFFSETS_V = 11, 12, 12, 4, 7
FILL_BYTES = 64_000_000
SENT_BYTES_MAX = 64_000_000
"""Per row and round: more would measure how the machine writes back what it cannot hold."""

CPU_CLOCK_OF_PROCESS = 2
"""CPUCLOCK_SCHED in the clock ids of clock_gettime(2): all threads, nanoseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One kind of request; its frame is sent over and over."""

    title: str
    frame: bytes


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.request_cost", description=__doc__)
    parser.add_argument("--brokers", default="limit,tidelog,tidelog-synced")
    parser.add_argument("--rows", default="", help="only rows whose title contains this")
    parser.add_argument("--seconds", type=float, default=0.7, help="per row and round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--in-flight", type=int, default=IN_FLIGHT, help="requests per connection")
    options = parser.parse_args(arguments)
    machine.touch_memory()
    contenders = brokers.BY_NAME
    names = options.brokers.split(",")
    costs: dict[str, dict[str, list[float]]] = {}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-cost-")))
        running = [stack.enter_context(contenders[name].start(folder / name)) for name in names]
        work = [(broker, list(_rows(broker, options.rows))) for broker in running]
        for number in range(options.rounds + 1):
            for broker, rows in work:
                for row in rows:
                    cost = request_cost(broker, row, options.seconds, options.in_flight)
                    if number:  # the first round warms up
                        costs.setdefault(row.title, {}).setdefault(broker.name, []).append(cost)
        facts = machine.markdown(machine.describe(folder))
    lines = [
        [title, *(_shown(found.get(name)) for name in names)] for title, found in costs.items()
    ]
    head = ["request", *(contenders[name].title for name in names)]
    print(
        f"{facts}\n\nCPU of the broker in microseconds per request.\n\n{report.table(head, lines)}"
    )
    return 0


def _shown(values: list[float] | None) -> str:
    return f"{statistics.median(values):,.1f}" if values else ""


def _rows(broker: brokers.Running, wanted: str) -> Iterator[Row]:
    speaks_kafka = not broker.name.startswith("limit")
    one, many = f"cost-{uuid.uuid4().hex[:8]}", f"cost-{uuid.uuid4().hex[:8]}"
    rows = [*produce_rows(one, many), *(read_rows(one) if speaks_kafka else ())]
    if speaks_kafka:
        loads.create_topic(broker.bootstrap, one, 1, retention_bytes="2000000000")
        loads.create_topic(broker.bootstrap, many, 16, retention_bytes="200000000")
        loads.raw_produce(broker.bootstrap, one, total_bytes=FILL_BYTES, batch_bytes=KIB_BATCH)
    return (row for row in rows if wanted in row.title)


def produce_rows(one: str, many: str) -> Iterator[Row]:
    """The requests that write, to topics of 1 and of 16 partitions."""
    for batch_bytes, size in ((KIB_BATCH, 100), (KIB_BATCH, 1_024), (MIB_BATCH, 100),
                              (MIB_BATCH, 1_024)):  # fmt: skip
        count = batch_bytes // (size + 10)
        title = f"Produce {batch_bytes // 1_000} KB of {size} B"
        yield Row(title=title, frame=produce(one, [batch(count, size)]))
    batches = [batch(KIB_BATCH // 1_034, 1_024)] * 16
    yield Row(title="Produce 16 x 16 KB of 1024 B", frame=produce(many, batches))
    yield Row(title="Produce 1 record of 100 B", frame=produce(one, [batch(1, 100)]))


def read_rows(topic: str) -> Iterator[Row]:
    """The requests that read: a topic that exists, times that do not matter."""
    now_ms = int(time.time() * 1000)
    for size in (KIB_BATCH + 1_000, MIB_BATCH):
        yield Row(title=f"Fetch {size // 1_000} KB", frame=fetch(topic, size))
    for what, timestamp in (("at a time", now_ms), ("at the end", -1), ("at the start", -2)):
        asked_for = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        lookup = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[asked_for])])
        yield Row(title=f"ListOffsets {what}", frame=framed(lookup, LIST_OFFSETS_V))
    metadata = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    yield Row(title="Metadata of one topic", frame=framed(metadata, METADATA_V))
    heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    yield Row(title="Heartbeat", frame=framed(heartbeat, HEARTBEAT_V))


def batch(count: int, size: int) -> bytes:
    """A batch of `count` records of `size` bytes."""
    now_ms = int(time.time() * 1000)
    return wire.record_batch([b"x" * size] * count, [now_ms] * count)


def fetch(topic: str, size: int, number: int = 0) -> bytes:
    """A frame that reads a partition from its start, up to `size` bytes."""
    partition = FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=size)
    asked = FetchTopic(topic=topic, partitions=[partition])
    message = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=50_000_000, topics=[asked])
    return framed(message, FETCH_V)


def produce(topic: str, batches: Sequence[bytes], first: int = 0) -> bytes:
    """A frame with a batch for each partition from `first` on."""
    data = [
        PartitionProduceData(index=number, records=batch)
        for number, batch in enumerate(batches, start=first)
    ]
    topics = [TopicProduceData(name=topic, partition_data=data)]
    return framed(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics), PRODUCE_V)


def framed(message: object, version: int) -> bytes:
    """A whole request frame of a protocol message."""
    header = RequestHeader(
        api_key=message_spec(type(message)).api_key,
        api_version=version,
        correlation_id=7,
        client_id="bench",
    )
    parts = encode_frame([encode_request_header(header), encode_request(message, version)])
    return b"".join(parts)


def request_cost(broker: brokers.Running, row: Row, seconds: float, in_flight: int) -> float:
    """Microseconds of the broker's CPU per request."""
    connection = wire.Connection(broker.bootstrap)
    begun = cpu_ns((broker,))
    sent = drive([(connection, row.frame)], seconds, in_flight)
    used = cpu_ns((broker,)) - begun
    connection.close()
    return used / sent / 1_000


def drive(pairs: Sequence[tuple[wire.Connection, bytes]], seconds: float, in_flight: int) -> int:
    """Keep `in_flight` requests on each connection for so long; how many were answered."""
    most = max(in_flight, SENT_BYTES_MAX // len(pairs[0][1]))
    sent = in_flight * len(pairs)
    for connection, frame in pairs:
        for _ in range(in_flight):
            connection.send(frame)
    end = time.monotonic() + seconds
    while sent < most and time.monotonic() < end:
        for connection, frame in pairs:
            connection.receive()
            connection.send(frame)
        sent += len(pairs)
    for connection, _ in pairs:
        for _ in range(in_flight):
            connection.receive()
    return sent


def cpu_ns(workers: Sequence[brokers.Running]) -> int:
    """What these processes have used since their start, all threads."""
    return sum(time.clock_gettime_ns((~one.pid << 3) | CPU_CLOCK_OF_PROCESS) for one in workers)


if __name__ == "__main__":
    sys.exit(main())

"""The loads: Apache Kafka's own perf tools, librdkafka, and prebuilt frames over a raw socket.

Each function drives one broker once and returns what the tool itself reports; the broker's CPU
and memory are watched by the caller. The tools are public, so their figures can be compared with
anybody's. Rates are records per second, latencies milliseconds.
"""

import json
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.harness import secured, wire
from tests.support.kafka_peer import tool_command

TOOL_TIMEOUT_S = 300
RAW_IN_FLIGHT = 5
PACED_RECORDS = 10
PACED_VALUE_BYTES = 1024
_WARM_UP = 0.1
"""This share of a paced load's requests is sent first and not counted."""


_PRODUCER_LINE = re.compile(
    r"(?P<records>\d+)(?: steady state)? records sent, (?P<rate>[\d.]+) records/sec "
    r"\([\d.]+ MB/sec\), "
    r"(?P<mean>[\d.]+) ms avg latency, (?P<max>[\d.]+) ms max latency, (?P<p50>\d+) ms 50th, "
    r"(?P<p95>\d+) ms 95th, (?P<p99>\d+) ms 99th, (?P<p999>\d+) ms 99\.9th"
)


class LoadFailed(Exception):
    """A load tool ended with an error or reported nothing; the message carries its output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Produced:
    """What a producing load reports."""

    records: int
    rate: float
    p50_ms: float
    p99_ms: float
    max_ms: float


def create_topic(bootstrap: str, topic: str, partitions: int, **config: str) -> None:
    """A new topic, with settings such as `segment_bytes="1048576"`."""
    named = {key.replace("_", "."): value for key, value in config.items()}
    new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=named)
    admin = _admin(bootstrap)
    admin.create_topics([new], operation_timeout=20)[topic].result(30)
    for _ in range(200):
        found = admin.list_topics(timeout=10).topics.get(topic)
        if found is not None and len(found.partitions) == partitions:
            return
        time.sleep(0.02)
    raise LoadFailed(f"topic {topic} did not become visible")


def leaders(bootstrap: str, topic: str) -> list[str]:
    """The addresses of the leaders of a topic's partitions, in order."""
    found = _admin(bootstrap).list_topics(topic, timeout=10)
    addresses = {one.id: f"{one.host}:{one.port}" for one in found.brokers.values()}
    by_number = sorted(found.topics[topic].partitions.items())
    return [addresses[partition.leader] for _, partition in by_number]


def delete_topic(bootstrap: str, topic: str) -> None:
    """Deletes a topic, so that one cell's data does not fill the disk of the next."""
    admin = _admin(bootstrap)  # kept: the request ends with it
    admin.delete_topics([topic], operation_timeout=20)[topic].result(30)


def _admin(bootstrap: str) -> AdminClient:
    named: dict[str, str | int] = {"bootstrap.servers": bootstrap, "log_level": 2}
    return AdminClient({**named, **secured.librdkafka_settings()})


def java_produce(
    bootstrap: str,
    topic: str,
    *,
    records: int,
    size: int,
    batch_bytes: int,
    codec: str = "none",
    records_per_second: int = -1,
    warm_up_records: int = 0,
) -> Produced:
    """kafka-producer-perf-test with acks=all, linger 5 ms and random letters as values.

    The first `warm_up_records` are sent and left out of what is returned.
    """
    settings = {
        "bootstrap.servers": bootstrap,
        "acks": "all",
        "linger.ms": "5",
        "batch.size": str(batch_bytes),
        "buffer.memory": "67108864",
        "compression.type": codec,
        **secured.java_settings(),
    }
    properties = [f"{key}={value}" for key, value in settings.items()]
    warm_up = ["--warmup-records", str(warm_up_records)] if warm_up_records else []
    output = _tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *["--topic", topic, "--num-records", str(records), "--record-size", str(size)],
        *["--throughput", str(records_per_second), *warm_up, "--command-property", *properties],
    )
    totals = list(_PRODUCER_LINE.finditer(output))
    if not totals:
        raise LoadFailed(f"the producer test reported nothing: {output[-800:]}")
    total = totals[-1]
    return Produced(
        records=int(total["records"]),
        rate=float(total["rate"]),
        p50_ms=float(total["p50"]),
        p99_ms=float(total["p99"]),
        max_ms=float(total["max"]),
    )


def java_consume(bootstrap: str, topic: str, *, records: int) -> float:
    """kafka-consumer-perf-test over the whole topic; records per second while fetching."""
    properties = [
        word
        for key, value in secured.java_settings().items()
        for word in ("--command-property", f"{key}={value}")
    ]
    output = _tool(
        "org.apache.kafka.tools.ConsumerPerformance",
        *["--bootstrap-server", bootstrap, "--topic", topic],
        *["--num-records", str(records), "--hide-header", "--timeout", "30000"],
        *properties,
    )
    cells = [cell.strip() for cell in output.strip().splitlines()[-1].split(",")]
    if len(cells) < 10 or int(cells[4]) < records:
        raise LoadFailed(f"the consumer test saw too little: {output[-800:]}")
    return float(cells[9])


def java_end_to_end(bootstrap: str, topic: str, *, records: int, size: int) -> dict[str, float]:
    """kafka-e2e-latency, one record at a time with acks=all: mean, p50, p99 and p99.9 in ms."""
    if secured.is_on():
        raise LoadFailed("the latency test is not set up for TLS")
    output = _tool(
        "org.apache.kafka.tools.EndToEndLatency", bootstrap, topic, str(records), "all", str(size)
    )
    mean = re.search(r"Avg latency: ([\d.]+) ms", output)
    rest = re.search(r"50th = (\d+), 99th = (\d+), 99.9th = (\d+)", output)
    if mean is None or rest is None:
        raise LoadFailed(f"the latency test reported nothing: {output[-800:]}")
    p50, p99, p999 = (float(number) for number in rest.groups())
    return {"mean_ms": float(mean[1]), "p50_ms": p50, "p99_ms": p99, "p999_ms": p999}


def librdkafka_produce(
    bootstrap: str,
    topic: str,
    *,
    records: int,
    size: int,
    codec: str = "none",
    base: int = 0,
    step: int = 0,
) -> float:
    """Records per second that librdkafka gets acknowledged (acks=all), in a process of its own.

    Record i has the timestamp `base + i * step`; with neither, that of its sending.
    """
    words = [f"records={records}", f"size={size}", f"codec={codec}", f"base={base}", f"step={step}"]
    return _librdkafka("produce", bootstrap, topic, *words)


def librdkafka_consume(bootstrap: str, topic: str, *, records: int) -> float:
    """Records per second that librdkafka reads from the start of a topic."""
    return _librdkafka("consume", bootstrap, topic, f"records={records}")


def raw_produce(
    bootstrap: str, topic: str, *, total_bytes: int, batch_bytes: int, checked: bool = True
) -> float:
    """Bytes per second of identical Produce requests, five in flight on one connection.

    With `checked` the error code of every response must be 0; the bare receive-and-append loop
    has none.
    """
    count = max(1, batch_bytes // 1_100)
    now_ms = int(time.time() * 1000)
    batch = wire.record_batch([b"x" * 1_024] * count, [now_ms] * count)
    frame = bytearray(wire.produce_request(topic, 0, batch))
    requests = max(RAW_IN_FLIGHT, total_bytes // len(frame))
    connection = wire.Connection(bootstrap, tls=secured.context())
    started = time.perf_counter()
    for number in range(requests + RAW_IN_FLIGHT):
        if number < requests:
            wire.set_correlation_id(frame, number)
            connection.send(frame)
        if number >= RAW_IN_FLIGHT:
            response = connection.receive()
            if checked and wire.produce_error(response) != 0:
                raise LoadFailed(f"produce was refused: error {wire.produce_error(response)}")
    elapsed = time.perf_counter() - started
    connection.close()
    return requests * len(frame) / elapsed


def paced_produce(bootstrap: str, topic: str, rate: int, seconds: float) -> list[float]:
    """Seconds from when each request was due to its acknowledgement; `rate` is a second's count.

    Ten records of 1 KiB each. A request that waits for the one before it counts as late.
    """
    now_ms = int(time.time() * 1000)
    values = [b"x" * PACED_VALUE_BYTES] * PACED_RECORDS
    batch = wire.record_batch(values, [now_ms] * PACED_RECORDS)
    frame = bytearray(wire.produce_request(topic, 0, batch))
    connection = wire.Connection(bootstrap, tls=secured.context())
    count = max(2, int(rate * seconds))
    times = []
    started = time.perf_counter()
    for number in range(count):
        due = started + number / rate
        time.sleep(max(0.0, due - time.perf_counter()))
        wire.set_correlation_id(frame, number)
        error = wire.produce_error(connection.ask(frame))
        if error:
            raise LoadFailed(f"produce was refused: error {error}")
        times.append(time.perf_counter() - due)
    connection.close()
    return times[int(count * _WARM_UP) :]


def describe(produced: Produced) -> Mapping[str, float]:
    """A Produced as a plain mapping, for JSON."""
    return asdict(produced)


def _tool(name: str, *arguments: str) -> str:
    done = subprocess.run(
        tool_command(name, *arguments, heap="512m"),
        capture_output=True,
        text=True,
        timeout=TOOL_TIMEOUT_S,
        check=False,
    )
    output = done.stdout + done.stderr
    if done.returncode != 0:
        raise LoadFailed(f"{name} ended with {done.returncode}: {output[-800:]}")
    return output


def _librdkafka(role: str, bootstrap: str, topic: str, *words: str) -> float:
    command = [
        sys.executable,
        "-m",
        "benchmarks.harness.librdkafka_load",
        role,
        bootstrap,
        topic,
        *words,
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False
    )
    if done.returncode != 0:
        raise LoadFailed(f"librdkafka {role} failed: {done.stderr[-800:]}")
    return float(json.loads(done.stdout)["records_per_second"])

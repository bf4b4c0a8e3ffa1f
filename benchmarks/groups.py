"""Consumer groups: how soon a member reads, how a large group rebalances, what lookups cost.

* **Join**: from making a consumer of a new group to its first record, with librdkafka and Java, by
  either group protocol, the broker's defaults. Medians; Java's first consumer loads classes and
  does not count.
* **Rebalance**: a group of a thousand members, each on a connection of its own, until the last
  has its new assignment. Of the classic protocol one whole generation (join, sync, durable
  assignment); of the consumer protocol each member's first heartbeat and those that follow, without
  pauses, until every partition has its reader.
* **Lookups**: the broker's CPU for as many ListOffsets as Spark's connector sends while it reads so
  many rows (start and end after every poll of 500), against its CPU for producing and fetching
  these rows; and for as many lookups by time.

`python -m benchmarks.groups [--members N] [--rounds N] [--rows N] [--lookups N] [--no-java]`
"""

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer

from benchmarks.harness import loads, machine, report, wire
from protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol.api.join_group import JoinGroupRequest
from protocol.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from protocol.structs import ProtocolMetadata, TopicPartitions
from tests.compat.brokers import TidelogProcess
from tests.support import kafka_peer, toolchains
from tests.support.broker import RawClient

JAVA_SOURCE = Path(__file__).parents[1] / "tests" / "compat" / "applications" / "JoinTime.java"
PROTOCOLS = ("classic", "consumer")
ASSIGNMENT = b"x" * 100
ANSWER_TIMEOUT_S = 60.0
JOIN_V, SYNC_V, HEARTBEAT_V = 3, 3, 1
ROW_BYTES = 100
EARLIEST, LATEST = -2, -1


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.groups", description=__doc__)
    parser.add_argument("--members", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--lookups", type=int, default=16_000)
    parser.add_argument("--no-java", action="store_true", help="without a JVM")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="bench-groups-") as name:
        folder = Path(name)
        with TidelogProcess(folder / "data") as broker:
            rows = _join_rows(broker.bootstrap, options.rounds, has_java=not options.no_java)
        # Long enough for every member to be in the first generation; the second one is measured.
        settings = {"group.initial.rebalance.delay.ms": "3000"}
        with TidelogProcess(folder / "members", settings=settings) as broker:
            rows += asyncio.run(_rebalance_rows(broker.bootstrap, options.members))
        with TidelogProcess(folder / "rows") as broker:
            rows += _lookup_rows(broker, options.rows, options.lookups)
        facts = machine.markdown(machine.describe(folder))
    print(f"{facts}\n\n{report.table(['what', 'measured'], rows)}")
    return 0


# -- joining -----------------------------------------------------------------------------------


def _join_rows(bootstrap: str, rounds: int, *, has_java: bool) -> list[list[str]]:
    topic = f"join-{uuid.uuid4().hex[:8]}"
    loads.create_topic(bootstrap, topic, 4)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(100):
        producer.produce(topic, b"x" * ROW_BYTES, partition=number % 4)
    producer.flush()
    rows = []
    for protocol in PROTOCOLS:
        times = [_librdkafka_join(bootstrap, topic, protocol) for _ in range(rounds)]
        rows.append([f"join to first record, librdkafka, {protocol}", _milliseconds(times)])
    for protocol in PROTOCOLS if has_java else ():
        times = _java_joins(bootstrap, topic, protocol, rounds + 1)[1:]
        rows.append([f"join to first record, Java, {protocol}", _milliseconds(times)])
    return rows


def _milliseconds(times: Sequence[float]) -> str:
    return f"{statistics.median(times):,.0f} ms ({min(times):,.0f} to {max(times):,.0f})"


def _librdkafka_join(bootstrap: str, topic: str, protocol: str) -> float:
    began = time.perf_counter()
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"join-{uuid.uuid4()}",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    while True:
        message = consumer.poll(ANSWER_TIMEOUT_S)
        if message is not None and message.error() is None:
            break
    took_ms = (time.perf_counter() - began) * 1e3
    consumer.close()
    return took_ms


def _java_joins(bootstrap: str, topic: str, protocol: str, rounds: int) -> list[float]:
    jars = kafka_peer.jars()
    classes = toolchains.java_classes([JAVA_SOURCE], jars)
    command = [toolchains.java(), "-Xmx128m", "-cp", f"{classes}:{jars}/*", "JoinTime"]
    done = subprocess.run(
        [*command, bootstrap, topic, protocol, str(rounds)],
        capture_output=True,
        text=True,
        check=True,
        timeout=ANSWER_TIMEOUT_S * 2,
    )
    return [float(line) for line in done.stdout.split()]


# -- rebalancing -------------------------------------------------------------------------------


async def _rebalance_rows(bootstrap: str, members: int) -> list[list[str]]:
    port = int(bootstrap.rpartition(":")[2])
    clients = [await RawClient.connect("127.0.0.1", port) for _ in range(members)]
    classic = await _classic(clients)
    topic = f"rebalance-{uuid.uuid4().hex[:8]}"
    await asyncio.to_thread(loads.create_topic, bootstrap, topic, members)
    consumer = await _consumers(clients, topic)
    for client in clients:
        await client.close()
    size = f"{members:,} members"
    return [
        [f"{size} rebalance, classic", f"{classic:.2f} s"],
        [f"{size} form a group and share {members:,} partitions, consumer", f"{consumer:.2f} s"],
    ]


async def _classic(clients: Sequence[RawClient]) -> float:
    """Seconds for a whole generation in which every member is known already."""
    group = f"classic-{uuid.uuid4()}"
    ids = [""] * len(clients)
    took = 0.0
    for _ in range(2):
        began = time.perf_counter()
        joined = await _ask(clients, [_join(group, member_id) for member_id in ids], JOIN_V)
        ids = [answer.member_id for answer in joined]
        given = [
            SyncGroupRequestAssignment(member_id=member_id, assignment=ASSIGNMENT)
            for member_id in ids
        ]
        synced = await _ask(
            clients,
            [
                SyncGroupRequest(
                    group_id=group,
                    generation_id=answer.generation_id,
                    member_id=answer.member_id,
                    assignments=given if answer.member_id == answer.leader else [],
                )
                for answer in joined
            ],
            SYNC_V,
        )
        took = time.perf_counter() - began
        if any(answer.error_code for answer in (*joined, *synced)):
            raise loads.LoadFailed("not every member was in the first generation")
    return took


def _join(group: str, member_id: str) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[ProtocolMetadata(name="range", metadata=ASSIGNMENT)],
    )


async def _consumers(clients: Sequence[RawClient], topic: str) -> float:
    """Seconds until every member is in the last epoch and every partition has a reader."""
    group = f"consumers-{uuid.uuid4()}"
    ids = [f"member-{number}" for number in range(len(clients))]
    epochs = [0] * len(clients)
    owned: list[list[TopicPartitions]] = [[] for _ in clients]
    began = time.perf_counter()
    while True:
        requests = [
            ConsumerGroupHeartbeatRequest(
                group_id=group,
                member_id=member_id,
                member_epoch=epoch,
                rebalance_timeout_ms=60_000 if epoch == 0 else -1,
                subscribed_topic_names=[topic] if epoch == 0 else None,
                topic_partitions=partitions,
            )
            for member_id, epoch, partitions in zip(ids, epochs, owned, strict=True)
        ]
        answers = await _ask(clients, requests, HEARTBEAT_V)
        for number, answer in enumerate(answers):
            if answer.error_code:
                raise loads.LoadFailed(f"{answer.error_code}: {answer.error_message}")
            epochs[number] = answer.member_epoch
            if answer.assignment is not None:
                owned[number] = answer.assignment.topic_partitions
        count = sum(len(each.partitions) for partitions in owned for each in partitions)
        if len(set(epochs)) == 1 and count == len(clients):
            return time.perf_counter() - began


async def _ask(clients: Sequence[RawClient], requests: Sequence[Any], version: int) -> list[Any]:
    """One request on each connection, all at once; the answers in the same order."""
    for client, request in zip(clients, requests, strict=True):
        client.send(request, version)
    return list(await asyncio.gather(*(each.receive(ANSWER_TIMEOUT_S) for each in clients)))


# -- lookups -----------------------------------------------------------------------------------


def _lookup_rows(broker: TidelogProcess, rows: int, lookups: int) -> list[list[str]]:
    topic = f"rows-{uuid.uuid4().hex[:8]}"
    loads.create_topic(broker.bootstrap, topic, 1)
    started = kafka_peer.cpu_seconds(broker.pid)
    loads.librdkafka_produce(broker.bootstrap, topic, records=rows, size=ROW_BYTES)
    filled = kafka_peer.cpu_seconds(broker.pid)
    loads.librdkafka_consume(broker.bootstrap, topic, records=rows)
    handed_out = kafka_peer.cpu_seconds(broker.pid) - filled
    moved = filled - started + handed_out
    now_ms = int(time.time() * 1000)
    ends = _lookup_cpu(broker, topic, [EARLIEST, LATEST] * (lookups // 2))
    times = _lookup_cpu(broker, topic, [now_ms - number for number in range(lookups)])
    return [
        [f"broker CPU to take in {rows:,} rows", f"{filled - started:.2f} s"],
        ["and to hand them out", f"{handed_out:.2f} s"],
        [f"broker CPU of {lookups:,} ListOffsets of start and end, as Spark asks", f"{ends:.2f} s"],
        ["their share of all three", f"{ends / (moved + ends):.1%}"],
        [f"broker CPU of {lookups:,} ListOffsets by time", f"{times:.2f} s"],
    ]


def _lookup_cpu(broker: TidelogProcess, topic: str, timestamps: Sequence[int]) -> float:
    """The broker's CPU seconds for one question after the other on one connection."""
    connection = wire.Connection(broker.bootstrap)
    before = kafka_peer.cpu_seconds(broker.pid)
    for timestamp in timestamps:
        connection.ask(wire.list_offsets_request(topic, 0, [timestamp]))
    used = kafka_peer.cpu_seconds(broker.pid) - before
    connection.close()
    return used


if __name__ == "__main__":
    sys.exit(main())

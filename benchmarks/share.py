"""Share groups: records delivered and accepted per second, and the broker's CPU for a million.

A group of raw connections takes all records of a topic, each fetch accepting what the one before
brought, as clients do with implicit acknowledgement. Every round is a new group from the first
record; the brokers take turns, and the first round is discarded, so that a JVM is warm. On a busy
machine rates say little; CPU is that of the broker's process.

`python -m benchmarks.share [--brokers a,b] [--records N] [--bytes B] [--members N] [--rounds N]`
"""

import argparse
import asyncio
import contextlib
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness import brokers, machine, report, wire
from protocol.api.find_coordinator import FindCoordinatorRequest
from tests.support.broker import RawClient
from tests.support.requests import create_topic, produce
from tests.support.share_group import ShareMember, set_group

BATCH_RECORDS = 500
ACCEPT = (1,)
SETTLED_S = 1.5
"""How long Kafka's coordinator may need to learn of a group's settings."""

PATIENCE_S = 120.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.share", description=__doc__)
    parser.add_argument("--brokers", default="kafka,tidelog")
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--bytes", type=int, default=100, help="of a record's value")
    parser.add_argument("--members", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    brokers.end_with_us()
    found: dict[str, list[tuple[float, float]]] = {}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-share-")))
        running = [
            stack.enter_context(brokers.BY_NAME[name].start(folder / name))
            for name in options.brokers.split(",")
        ]
        topics = {
            broker.name: asyncio.run(_fill(broker, options.records, options.bytes))
            for broker in running
        }
        for number in range(options.rounds + 1):
            for broker in running:
                topic, topic_id = topics[broker.name]
                figures = asyncio.run(
                    _drain(broker, topic, topic_id, options.records, options.members)
                )
                if number:
                    found.setdefault(broker.name, []).append(figures)
        facts = machine.markdown(machine.describe(folder))
    print(f"{facts}\n\n{report.table(['broker', 'records/s', 'CPU s for 10^6'], _rows(found))}")
    return 0


def _rows(found: dict[str, list[tuple[float, float]]]) -> list[list[str]]:
    rows = []
    for name, figures in found.items():
        rates, costs = zip(*figures, strict=True)
        rows.append(
            [
                name,
                f"{statistics.median(rates):,.0f}",
                f"{statistics.median(costs):.2f} ({min(costs):.2f} to {max(costs):.2f})",
            ]
        )
    return rows


async def _fill(broker: brokers.Running, records: int, value_bytes: int) -> tuple[str, bytes]:
    """A topic of one partition with so many records; its name and id."""
    topic = f"share-{uuid.uuid4().hex[:8]}"
    client = await RawClient.connect("127.0.0.1", broker.port)
    topic_id = await create_topic(client, topic)
    values = [b"x" * value_bytes] * BATCH_RECORDS
    batch = wire.record_batch(values, [int(time.time() * 1000)] * BATCH_RECORDS)
    while (await produce(client, topic, batch)).error_code:
        await asyncio.sleep(0.1)  # Kafka knows a new topic some time after its creation
    for _ in range(-(-records // BATCH_RECORDS) - 1):
        assert (await produce(client, topic, batch)).error_code == 0
    await client.close()
    return topic, topic_id


async def _drain(
    broker: brokers.Running, topic: str, topic_id: bytes, records: int, members: int
) -> tuple[float, float]:
    """Records per second, and CPU seconds of the broker per million records."""
    group = f"share-{uuid.uuid4().hex[:8]}"
    clients = [await RawClient.connect("127.0.0.1", broker.port) for _ in range(members)]
    await set_group(clients[0], group, share_auto_offset_reset="earliest")
    await asyncio.sleep(SETTLED_S)
    sharing = [
        ShareMember(client, group, topic_id, name=f"member-{number}")
        for number, client in enumerate(clients)
    ]
    async with asyncio.timeout(PATIENCE_S):
        find = FindCoordinatorRequest(key=group)  # lets Kafka create its topic
        while (await clients[0].request(find, 3)).error_code:
            await asyncio.sleep(0.1)
        for member in sharing:
            while (await member.heartbeat(topic, epoch=0)).error_code:
                await asyncio.sleep(0.1)
        left = [records]
        began_s, cpu_s = time.perf_counter(), broker.cpu_seconds()
        await asyncio.gather(*(_take(member, left) for member in sharing))
        took_s, used_s = time.perf_counter() - began_s, broker.cpu_seconds() - cpu_s
    for client in clients:
        await client.close()
    return records / took_s, used_s / records * 1e6


async def _take(member: ShareMember, left: list[int]) -> None:
    """Accept records until none is left."""
    acks: list[tuple[int, int, int, tuple[int, ...]]] = []
    while left[0] > 0 or acks:
        answer = await member.fetch_whole(0, acks=acks, max_wait_ms=100)
        assert answer.error_code == 0, answer
        acks = [
            (0, each.first_offset, each.last_offset, ACCEPT)
            for topic in answer.responses
            for part in topic.partitions
            for each in part.acquired_records
        ]
        left[0] -= sum(last - first + 1 for _, first, last, _ in acks)


if __name__ == "__main__":
    sys.exit(main())

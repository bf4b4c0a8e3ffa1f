"""A sample of a topic's times, for brokers that audit none: disorder, and times that cannot be.

Some offsets, evenly spread over each log, are read, a batch at each. A record of the sample that is
older than one before it in the sample is older than a record before it in the log too; so it is
late, and at least by so much. What lies between the batches is not seen, and when a record was
appended is not known, so a clock that was wrong in the past shows only as disorder.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from client.core.offsets import EARLIEST, LATEST
from client.errors import BrokerRefused
from client.times import find_unit_mistake
from client.types import ConsumerRecord, TopicPartition
from console.data.hub import Hub
from console.data.timeline import IN_FLIGHT, PARTITIONS_MAX, spread
from protocol.error_codes import ErrorCode
from protocol.records.lateness import Lateness, quantile
from protocol.records.layout import TimestampType

OFFSETS_MAX: Final = 200
"""Offsets of one sample, over all partitions."""
BYTES_MAX: Final = 8 * 1024 * 1024

_EACH_MIN: Final = 2
_READ_BYTES: Final = 1024 * 1024
_AHEAD_MS: Final = 60_000

Batch = tuple[int, list[ConsumerRecord]]
"""The offset that was asked for, and the records from there to the end of its batch."""


async def sample_times(hub: Hub, topic: str, chosen: frozenset[int] | None) -> dict[str, Any]:
    """Disorder of the sampled records of each partition, with the first of each kind of fault."""
    everything = await hub.partitions(topic, chosen)
    partitions = spread(everything, min(PARTITIONS_MAX, OFFSETS_MAX // _EACH_MIN))
    starts, ends, now_ms = await asyncio.gather(
        hub.admin.list_offsets(dict.fromkeys(partitions, EARLIEST)),
        hub.admin.list_offsets(dict.fromkeys(partitions, LATEST)),
        hub.now_ms(),
    )
    spans = {
        tp: (first.offset if (first := starts[tp]) else 0, last.offset if (last := ends[tp]) else 0)
        for tp in partitions
    }
    each = max(_EACH_MIN, OFFSETS_MAX // max(1, len(partitions)))
    # From coarse to fine, so that a budget that ends early leaves a spread of all of the log.
    wanted = [
        (tp, offset)
        for tp, (start, end) in spans.items()
        for offset in sampled_offsets(start, end, each)
    ]
    wanted.sort(key=lambda one: _fineness(one[1], *spans[one[0]]))
    batches: dict[TopicPartition, list[Batch]] = {tp: [] for tp in partitions}
    read_bytes = reads = 0
    for at in range(0, len(wanted), IN_FLIGHT):
        if read_bytes >= BYTES_MAX:
            break
        part = wanted[at : at + IN_FLIGHT]
        found = await asyncio.gather(*(_read(hub, tp, offset) for tp, offset in part))
        reads += len(part)
        for (tp, offset), (records, size_bytes) in zip(part, found, strict=True):
            read_bytes += size_bytes
            batches[tp].append((offset, records))
    return {
        "topic": topic,
        "now_ms": now_ms,
        "partitions_all": len(everything),
        "offsets_wanted": len(wanted),
        "offsets_read": reads,
        "read_bytes": read_bytes,
        "partitions": [
            _partition(tp.partition, spans[tp], sorted(batches[tp]), now_ms) for tp in partitions
        ],
    }


def sampled_offsets(start: int, end: int, count: int) -> list[int]:
    """At most `count` offsets of a log, evenly spread from its first to its last one."""
    count = min(count, end - start)
    if count < 2:
        return [start][:count]
    return [start + (end - 1 - start) * index // (count - 1) for index in range(count)]


def _fineness(offset: int, start: int, end: int) -> int:
    """How many halvings of the log it takes to come to an offset."""
    share = (offset - start) * 1024 // max(1, end - 1 - start)
    return 10 - min(10, (share & -share).bit_length() - 1) if share else 0


async def _read(hub: Hub, tp: TopicPartition, offset: int) -> tuple[list[ConsumerRecord], int]:
    """The rest of the batch at an offset, and its size; nothing where retention has passed.

    Raises:
        BrokerRefused: the topic may not be read.
    """
    try:
        found = await hub.admin.read_records(
            {tp: offset}, max_bytes=_READ_BYTES, partition_max_bytes=1
        )
    except BrokerRefused as error:
        if error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise
        return [], 0
    return found[tp].records, found[tp].size_bytes


def _partition(
    number: int, span: tuple[int, int], batches: Sequence[Batch], now_ms: int
) -> dict[str, Any]:
    lateness = Lateness()
    stamped = without_time = 0
    after = span[0] - 1
    ahead: ConsumerRecord | None = None
    mistaken: ConsumerRecord | None = None
    curve = []
    for _, records in batches:
        # The batch of one sampled offset may hold the next one.
        fresh = [record for record in records if record.offset > after]
        times = []
        for record in fresh:
            after = record.offset
            if record.timestamp_type is TimestampType.LOG_APPEND_TIME:
                stamped += 1
            elif record.timestamp_ms < 0:
                without_time += 1
            else:
                lateness.add(record.timestamp_ms)
                times.append(record.timestamp_ms)
                if record.timestamp_ms > max(now_ms + _AHEAD_MS, ahead.timestamp_ms if ahead else 0):
                    ahead = record
                if mistaken is None and find_unit_mistake(record.timestamp_ms):
                    mistaken = record
        if times:
            curve.append([fresh[0].offset, min(times), max(times)])
    return {
        "partition": number,
        "from_offset": span[0],
        "to_offset": span[1],
        "records": lateness.records,
        "stamped": stamped,
        "without_time": without_time,
        "out_of_order": lateness.out_of_order,
        "largest_step_back_ms": lateness.largest_step_back_ms,
        "late_p50_ms": quantile(lateness.histogram, 0.5),
        "late_p99_ms": quantile(lateness.histogram, 0.99),
        "ahead": _shown(ahead),
        "ahead_ms": 0 if ahead is None else ahead.timestamp_ms - now_ms,
        "mistaken": _shown(mistaken),
        "curve": curve,
    }


def _shown(record: ConsumerRecord | None) -> dict[str, int] | None:
    if record is None:
        return None
    return {"offset": record.offset, "timestamp_ms": record.timestamp_ms}

"""Records of several partitions from given offsets, read once: for pages, previews and samples.

One Fetch to each leader, within a bound of bytes; no position is kept and nothing is prefetched.
A consumer, which follows its partitions, is `client.consumer`.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

from client.aio.fetching import FetchOptions, PartitionReader, fetch_request
from client.core.cluster import Cluster
from client.core.records import FETCH_VERSIONS
from client.errors import BrokerRefused
from client.types import ConsumerRecord, TopicPartition
from protocol.error_codes import ErrorCode
from protocol.records.entry import Entry
from protocol.records.scan import scan_entries

_ALL = 2**31


class ReadRecords(NamedTuple):
    """What one read found in a partition.

    Attributes:
        records: in order of their offsets; markers of transactions are left out.
        next_offset: where the next read continues; equal to the asked one if nothing came.
        log_start: the earliest offset.
        end: one past the last offset that readers see.
        size_bytes: how many bytes the broker sent.
        first_batch: the header of the first batch, None if nothing came.
    """

    records: list[ConsumerRecord]
    next_offset: int
    log_start: int
    end: int
    size_bytes: int
    first_batch: Entry | None


async def read_records(
    cluster: Cluster, offsets: Mapping[TopicPartition, int], options: FetchOptions
) -> dict[TopicPartition, ReadRecords]:
    """The records of each partition from its offset on, as many as one answer holds.

    Raises:
        BadRecords: a batch is damaged.
        BrokerRefused: an offset is out of range, or a partition is unknown.
    """
    found: dict[TopicPartition, ReadRecords] = {}

    async def attempt() -> None:
        rest = [partition for partition in offsets if partition not in found]
        leaders = await cluster.by_leader(rest)
        reads = (
            _read_at(cluster, node_id, {tp: offsets[tp] for tp in partitions}, options)
            for node_id, partitions in leaders.items()
        )
        for one in await asyncio.gather(*reads):
            found.update(one)

    await cluster.retrying_at_leaders(offsets, attempt)
    return found


async def _read_at(
    cluster: Cluster, node_id: int, offsets: Mapping[TopicPartition, int], options: FetchOptions
) -> dict[TopicPartition, ReadRecords]:
    connection = await cluster.connection(node_id)
    response = await connection.call(fetch_request(offsets, options), **FETCH_VERSIONS)
    found = {}
    for topic in response.responses:
        for data in topic.partitions:
            partition = TopicPartition(topic.topic, data.partition_index)
            if data.error_code != ErrorCode.NONE:
                what = f"reading {partition} from offset {offsets[partition]}"
                raise BrokerRefused(what, data.error_code, broker=connection.address)
            found[partition] = _take(partition, offsets[partition], data, options)
    return found


def _take(partition: TopicPartition, offset: int, data: Any, options: FetchOptions) -> ReadRecords:
    reader = PartitionReader(partition, options)
    reader.seek(offset)
    reader.add(data)
    records = reader.take(_ALL)
    return ReadRecords(
        records=records,
        next_offset=max(offset, reader.fetch_offset),
        log_start=reader.log_start_offset,
        end=reader.high_watermark,
        size_bytes=len(data.records or b""),
        first_batch=next(scan_entries(data.records or b""), None),
    )

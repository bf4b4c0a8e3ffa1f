"""The first record at or after a time, counting only records that a consumer gets.

ListOffsets counts the markers that end transactions, as in Kafka, and stamps them with the broker's
clock. In a topic of transactions whose records have times of their own, the answer for a moment of
2013 is the first marker. So the answer is only a bound: no record before it is as young. Where
there is no such record at it, reading continues from there to the first one. It reads the heads of
batches and decodes only a batch that is young enough.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from client.aio.fetching import FetchOptions, PartitionReader, fetch_request
from client.core.cluster import Cluster
from client.core.offsets import Isolation, list_offsets
from client.core.records import FETCH_VERSIONS
from client.errors import BrokerRefused
from client.types import OffsetAndTimestamp, TopicPartition
from protocol.error_codes import ErrorCode

_LOOK_BYTES = 64 * 1024
_READ_BYTES = 4 * 1024 * 1024
_WAIT_MS = 500
_EMPTY_MAX = 4


async def first_records(
    cluster: Cluster,
    timestamps: Mapping[TopicPartition, int],
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    """The first record at or after each time (ms), None where there is none.

    Special timestamps of `list_offsets` (negative numbers) are answered as there.

    Raises:
        BadRecords: a batch that has to be read is damaged.
        BrokerRefused: an unknown partition, or no leader within the timeout.
    """
    found = await list_offsets(cluster, timestamps, isolation)
    doubtful = [tp for tp, hit in found.items() if hit is not None and timestamps[tp] >= 0]
    looks = (_first_from(cluster, tp, found[tp], timestamps[tp], isolation) for tp in doubtful)
    return found | dict(zip(doubtful, await asyncio.gather(*looks), strict=True))


async def _first_from(
    cluster: Cluster,
    partition: TopicPartition,
    bound: OffsetAndTimestamp | None,
    timestamp: int,
    isolation: Isolation,
) -> OffsetAndTimestamp | None:
    assert bound is not None, "there is nothing to look at"
    size, wait_ms, empty = _LOOK_BYTES, 0, 0
    reader = PartitionReader(partition, FetchOptions(isolation=isolation), oldest_ms=timestamp)
    reader.seek(bound.offset)
    while True:
        before = reader.fetch_offset
        options = FetchOptions(
            isolation=isolation, max_wait_ms=wait_ms, max_bytes=size, partition_max_bytes=size
        )
        reader.add(await _fetch(cluster, reader, options))
        while (record := reader.take_one()) is not None:
            if record.timestamp_ms >= timestamp:
                epoch = bound.leader_epoch if record.offset == bound.offset else reader.leader_epoch
                return OffsetAndTimestamp(record.offset, record.timestamp_ms, epoch)
        if reader.fetch_offset >= _visible_end(reader, isolation):
            return None
        # Below the end there are records, unless compaction has removed them.
        empty = empty + 1 if reader.fetch_offset == before else 0
        if empty == _EMPTY_MAX:
            return None
        size, wait_ms = _READ_BYTES, _WAIT_MS


def _visible_end(reader: PartitionReader, isolation: Isolation) -> int:
    """The end of the reader's records in the last answer."""
    is_committed = isolation is Isolation.READ_COMMITTED
    return reader.last_stable_offset if is_committed else reader.high_watermark


async def _fetch(cluster: Cluster, reader: PartitionReader, options: FetchOptions) -> Any:
    """The partition's part of one answer."""
    partition = reader.partition

    async def attempt() -> Any:
        connection = await cluster.connection(await cluster.leader(partition))
        request = fetch_request({partition: reader.fetch_offset}, options)
        response = await connection.call(request, **FETCH_VERSIONS)
        data = response.responses[0].partitions[0] if response.responses else None
        code = response.error_code if data is None else data.error_code
        if data is None or code != ErrorCode.NONE:
            what = f"fetching {partition} from offset {reader.fetch_offset}"
            raise BrokerRefused(
                what, code or ErrorCode.THROTTLING_QUOTA_EXCEEDED, broker=connection.address
            )
        return data

    return await cluster.retrying_at_leaders((partition,), attempt)

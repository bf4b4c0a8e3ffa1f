"""100,000 random lookups by time, through the wire, against a scan of what was written.

Sixteen partitions of a topic with small segments hold records out of order, in batches of every
codec, in message formats v1 (plain and wrapped), v2 and both mixed, some without a timestamp and
some far in the future or the past. Every ListOffsets version from 1 on is used.
"""

import itertools
import random
import time
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from protocol.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.api_keys import ApiKey
from protocol.records.builder import build_batch, build_message_set
from protocol.records.layout import NO_TIMESTAMP, Codec
from protocol.records.record import Record
from tests.compat import harness
from tests.compat.raw_client import RawClient

LOOKUPS = 100_000
PARTITIONS = 16
RECORDS = 6_000
LARGEST_BATCH = 120
SEED = 20130704
HOUR_MS = 3_600_000
PIPELINED = 32
VERSIONS = (1, 2, 3, 4, 5, 6, 7, 8, 9)
V1_CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)


@dataclass(slots=True)
class Written:
    """What went into a partition; offset i has `timestamps[i]`."""

    timestamps: list[int] = field(default_factory=list)
    highest_so_far: list[int] = field(default_factory=list)

    def extend(self, timestamps: list[int]) -> None:
        before = self.highest_so_far[-1] if self.highest_so_far else NO_TIMESTAMP
        self.timestamps += timestamps
        self.highest_so_far += itertools.accumulate(timestamps, max, initial=before)
        del self.highest_so_far[-len(timestamps) - 1]

    def find(self, timestamp: int) -> tuple[int, int]:
        """(timestamp, offset) of the first record at or after a time, or (-1, -1).

        The running maximum reaches a time exactly where the first such record stands.
        """
        offset = bisect_left(self.highest_so_far, timestamp)
        if offset == len(self.timestamps):
            return -1, -1
        return self.timestamps[offset], offset

    def scan(self, timestamp: int) -> tuple[int, int]:
        """The same answer by looking at every record."""
        for offset, found in enumerate(self.timestamps):
            if found >= timestamp:
                return found, offset
        return -1, -1


@pytest.fixture(scope="module")
def client(bootstrap: str) -> Iterator[RawClient]:
    connection = RawClient(bootstrap)
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def topic(bootstrap: str) -> str:
    name = harness.unique("lookups")
    harness.create_topic(
        bootstrap,
        name,
        PARTITIONS,
        {"segment.bytes": "65536", "index.interval.bytes": "512", "retention.ms": "-1"},
    )
    return name


@pytest.fixture(scope="module")
def written(client: RawClient, topic: str) -> list[Written]:
    chosen = random.Random(SEED)
    base = int(time.time() * 1000) - 48 * HOUR_MS
    return [
        _fill(client, topic, partition, random.Random(chosen.random()), base)
        for partition in range(PARTITIONS)
    ]


def _fill(
    client: RawClient, topic: str, partition: int, chosen: random.Random, base: int
) -> Written:
    """Writes RECORDS records; the number of the partition decides on formats and disorder."""
    written = Written()
    while len(written.timestamps) < RECORDS:
        timestamps = [
            _timestamp(chosen, base, len(written.timestamps) + i, disorder=partition % 4)
            for i in range(chosen.randint(1, LARGEST_BATCH))
        ]
        magic = (2, 1, 2, chosen.choice((1, 2)))[partition // 4]
        version, records = _encode(chosen, magic, timestamps)
        assert _produce(client, topic, partition, records, version) == len(written.timestamps)
        written.extend(timestamps)
    return written


def _timestamp(chosen: random.Random, base: int, number: int, *, disorder: int) -> int:
    """Rising with the offset, and disturbed: 0 not at all, 1 a little, 2 by hours, 3 wildly."""
    regular = base + number * 7
    if disorder == 0:
        return regular
    if disorder == 1:
        return regular + chosen.randint(-500, 500)
    if disorder == 2:
        return regular + chosen.randint(-HOUR_MS, HOUR_MS)
    dice = chosen.random()
    if dice < 0.2:
        return NO_TIMESTAMP
    if dice < 0.201:
        return regular + chosen.randint(HOUR_MS, 24 * HOUR_MS)
    return chosen.choice((regular, 0, regular // 2, regular - chosen.randint(0, 40 * HOUR_MS)))


def _encode(chosen: random.Random, magic: int, timestamps: list[int]) -> tuple[int, bytes]:
    """(Produce version, records) for one append."""
    records = [
        Record(
            offset=index,
            timestamp=timestamp,
            key=None,
            value=b"%d" % chosen.getrandbits(chosen.choice((8, 400))),
            headers=(),
        )
        for index, timestamp in enumerate(timestamps)
    ]
    if magic == 2:
        return 7, build_batch(records, codec=chosen.choice(list(Codec)))
    return 2, build_message_set(records, 1, chosen.choice(V1_CODECS))


def _produce(client: RawClient, topic: str, partition: int, records: bytes, version: int) -> int:
    """The base offset that the broker answered."""
    data = PartitionProduceData(index=partition, records=records)
    request = ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    answer = client.ask(ApiKey.PRODUCE, request, version)
    (result,) = answer.responses[0].partition_responses
    assert result.error_code == 0, f"partition {partition} refused with {result.error_code}"
    return int(result.base_offset)


def _questions(chosen: random.Random, written: list[Written]) -> list[int]:
    """A time for every partition: a record's own, just beside one, or anywhere."""
    times = []
    for partition in written:
        near = chosen.choice(partition.timestamps)
        lowest, highest = 0, partition.highest_so_far[-1] + 1_000
        anywhere = chosen.randint(lowest, highest)
        times.append(max(0, chosen.choice((near, near + 1, near - 1, anywhere))))
    return times


def _send(client: RawClient, topic: str, times: list[int], version: int) -> None:
    partitions = [
        ListOffsetsPartition(partition_index=index, timestamp=timestamp)
        for index, timestamp in enumerate(times)
    ]
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=partitions)]
    )
    client.send(ApiKey.LIST_OFFSETS, request, version)


def _answers(client: RawClient) -> list[tuple[int, int]]:
    partitions = client.receive().topics[0].partitions
    assert [partition.error_code for partition in partitions] == [0] * PARTITIONS
    ordered = sorted(partitions, key=lambda partition: partition.partition_index)
    return [(partition.timestamp, partition.offset) for partition in ordered]


@pytest.mark.core
@pytest.mark.timeout(300)
def test_random_lookups_equal_brute_force(
    client: RawClient, topic: str, written: list[Written]
) -> None:
    chosen = random.Random(SEED + 1)
    rounds = -(-LOOKUPS // PARTITIONS)
    pending: list[tuple[list[int], int]] = []
    for number in range(rounds):
        times, version = _questions(chosen, written), chosen.choice(VERSIONS)
        _send(client, topic, times, version)
        pending.append((times, version))
        if len(pending) == PIPELINED or number == rounds - 1:
            for asked, asked_version in pending:
                expected = [part.find(when) for part, when in zip(written, asked, strict=True)]
                found = _answers(client)
                assert found == expected, f"version {asked_version}, times {asked}"
            pending.clear()


def test_the_oracle_equals_a_plain_scan(written: list[Written]) -> None:
    """The shortcut that makes 100,000 comparisons quick is itself compared with a scan."""
    chosen = random.Random(SEED + 2)
    for _ in range(40):
        for partition, when in zip(written, _questions(chosen, written), strict=True):
            assert partition.find(when) == partition.scan(when)


def test_another_client_reads_the_same_timestamps(
    bootstrap: str, topic: str, written: list[Written]
) -> None:
    """What was written is what can be read, so that the oracle speaks of the log and not of us."""
    stored = harness.read_topic(bootstrap, topic, PARTITIONS)
    for number, partition in enumerate(written):
        seen = [record.timestamp for record in stored if record.partition == number]
        assert seen == partition.timestamps

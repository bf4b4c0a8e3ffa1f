"""Everything that can be in a directory, written through the protocol into any broker.

Formats, codecs, timestamp types, times out of order, idempotent and transactional producers, small
segments that roll, records deleted from the front, committed offsets. Deterministic: two brokers
given the same workload hold the same records. `SMALL` settings need a broker that takes segments
below Kafka 4's least, `LARGE` ones are those that both take.
"""

from collections.abc import Iterable, Iterator, Mapping
from random import Random

from protocol.api.add_offsets_to_txn import AddOffsetsToTxnRequest
from protocol.api.add_partitions_to_txn import AddPartitionsToTxnRequest
from protocol.api.end_txn import EndTxnRequest
from protocol.api.init_producer_id import InitProducerIdRequest
from protocol.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from protocol.api_keys import ApiKey
from protocol.error_codes import ErrorCode
from protocol.records.builder import build_batch, build_message_set
from protocol.records.layout import NO_TIMESTAMP, Codec
from protocol.records.record import Record
from protocol.structs import NamedIndexes
from tests.support.wire import Wire

START_MS = 1_700_000_000_000
GROUP = "readers"
TXN_GROUP = "txn-readers"
TXN_TIMEOUT_MS = 600_000

_DENSE = {"index.interval.bytes": "300", "retention.ms": "-1"}
SMALL = {**_DENSE, "segment.bytes": "20000"}
LARGE = {**_DENSE, "segment.bytes": str(1 << 20)}

Topics = dict[str, tuple[int, Mapping[str, str]]]


def topics(sizes: Mapping[str, str]) -> Topics:
    """Name to partitions and settings."""
    return {
        "formats": (2, sizes),
        "append-time": (1, {**sizes, "message.timestamp.type": "LogAppendTime"}),
        "untimed": (1, sizes),
        "recompressed": (1, {**sizes, "compression.type": "lz4"}),
        "idempotent": (1, sizes),
        "transactions": (2, sizes),
        "shortened": (1, sizes),
        "compacted": (1, {**sizes, "cleanup.policy": "compact"}),
        "empty": (3, {"retention.ms": "123456789", "cleanup.policy": "compact,delete"}),
    }


def write(
    wire: Wire,
    made: Topics,
    *,
    rounds: int,
    seed: int = 1,
    old_formats: bool,
    deletes: bool = True,
) -> None:
    """Create the topics and fill them. `old_formats` needs Produce v2, gone in Kafka 4.

    Without `deletes`, DeleteRecords is left out: Kafka stores its effect once a minute only.
    """
    random = Random(seed)
    for name, (partitions, settings) in made.items():
        wire.create_topic(name, partitions, settings)
    newest = Record(0, START_MS + 3_600_000, None, b"the newest is the first to go")
    _send(wire, "shortened", build_batch([newest]), 7)
    fill(wire, rounds=rounds, random=random, old_formats=old_formats)
    wire.commit(GROUP, "formats", 7, "seven", partition=1)
    wire.commit(GROUP, "untimed", 3, "")
    if deletes:
        wire.delete_before("shortened", 5 * rounds // 2 + 2)


def fill(wire: Wire, *, rounds: int, random: Random, old_formats: bool) -> None:
    """Write another stretch to every topic but the empty one."""
    for i, records in enumerate(_formats(rounds, random, old_formats)):
        for topic in ("formats", "append-time", "recompressed"):
            _send(wire, topic, *records, partition=i % 2 if topic == "formats" else 0)
    for _ in range(rounds):
        keyed = [
            Record(i, START_MS + random.randrange(10_000), b"key-%d" % random.randrange(20), b"v")
            for i in range(3)
        ]
        _send(wire, "compacted", build_batch(keyed), 7)
        _send(wire, "shortened", build_batch(_some(random, 5)), 7)
        untimed = [Record(i, NO_TIMESTAMP, None, b"no time %d" % i) for i in range(4)]
        _send(wire, "untimed", build_batch(untimed), 7)
    idempotent(wire, rounds, random)
    transactions(wire, rounds, random)


def timed(wire: Wire, topic: str, rounds: int) -> None:
    """Batches whose times rise by some twenty seconds each, so that minutes begin and end."""
    for i in range(rounds):
        batch = build_batch(
            [Record(j, START_MS + 20_000 * i + j, None, b"x" * 100) for j in range(6)]
        )
        _send(wire, topic, batch, 7)


def idempotent(wire: Wire, rounds: int, random: Random) -> None:
    """One producer id with sequences, some batches sent twice."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    got = wire.ask(ApiKey.INIT_PRODUCER_ID, request, 1)
    sequence = 0
    for i in range(rounds):
        records = _some(random, 1 + i % 4)
        batch = build_batch(
            records,
            producer_id=got.producer_id,
            producer_epoch=got.producer_epoch,
            base_sequence=sequence,
        )
        sequence += len(records)
        for _ in range(1 + i % 2):
            _send(wire, "idempotent", batch, 7)


def transactions(wire: Wire, rounds: int, random: Random) -> None:
    """Two producers with overlapping transactions, every third one aborted; the last stays open."""
    producers = [_Transactional(wire, f"tx-{i}") for i in range(2)]
    for i in range(rounds):
        producer, other = producers[i % 2], producers[(i + 1) % 2]
        producer.begin()
        producer.send(_some(random, 3), partition=i % 2)
        if other.is_open:
            other.end(commit=i % 3 != 0)
        producer.send(_some(random, 2), partition=(i + 1) % 2)
        if i % 4 == 0:
            producer.commit_offset("formats", i)
    for producer in producers:
        if producer.is_open:
            producer.end(commit=True)


def leave_open(wire: Wire, random: Random) -> None:
    """A transaction without an end: the last stable offset stays below it."""
    producer = _Transactional(wire, "tx-open")
    producer.begin()
    producer.send(_some(random, 3), partition=0)


class _Transactional:
    """One transactional producer, as far as these workloads need one."""

    def __init__(self, wire: Wire, name: str) -> None:
        self._wire = wire
        self._name = name
        self._sequences = {0: 0, 1: 0}
        self._added: set[int] = set()
        self.is_open = False
        wire.find_coordinator(name, key_type=1)
        request = InitProducerIdRequest(
            transactional_id=name, transaction_timeout_ms=TXN_TIMEOUT_MS
        )
        got = wire.ask_settled(ApiKey.INIT_PRODUCER_ID, request, 1, lambda got: got.error_code)
        self._id, self._epoch = got.producer_id, got.producer_epoch

    def begin(self) -> None:
        self.is_open = True
        self._added = set()

    def send(self, records: list[Record], partition: int) -> None:
        if partition not in self._added:
            topic = NamedIndexes(name="transactions", partitions=[partition])
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self._name,
                v3_and_below_producer_id=self._id,
                v3_and_below_producer_epoch=self._epoch,
                v3_and_below_topics=[topic],
            )
            self._wire.ask_settled(
                ApiKey.ADD_PARTITIONS_TO_TXN,
                request,
                1,
                lambda got: (
                    got.results_by_topic_v3_and_below[0]
                    .results_by_partition[0]
                    .partition_error_code
                ),
            )
            self._added.add(partition)
        batch = build_batch(
            records,
            producer_id=self._id,
            producer_epoch=self._epoch,
            base_sequence=self._sequences[partition],
            is_transactional=True,
        )
        self._sequences[partition] += len(records)
        got = self._wire.produce(
            "transactions", batch, partition=partition, transactional_id=self._name
        )
        assert got.error == ErrorCode.NONE, got

    def commit_offset(self, topic: str, offset: int) -> None:
        add = AddOffsetsToTxnRequest(
            transactional_id=self._name,
            producer_id=self._id,
            producer_epoch=self._epoch,
            group_id=TXN_GROUP,
        )
        self._wire.find_coordinator(TXN_GROUP)
        self._wire.ask_settled(ApiKey.ADD_OFFSETS_TO_TXN, add, 1, lambda got: got.error_code)
        asked = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        commit = TxnOffsetCommitRequest(
            transactional_id=self._name,
            group_id=TXN_GROUP,
            producer_id=self._id,
            producer_epoch=self._epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[asked])],
        )
        self._wire.ask_settled(
            ApiKey.TXN_OFFSET_COMMIT,
            commit,
            1,
            lambda got: got.topics[0].partitions[0].error_code,
        )

    def end(self, *, commit: bool) -> None:
        self.is_open = False
        request = EndTxnRequest(
            transactional_id=self._name,
            producer_id=self._id,
            producer_epoch=self._epoch,
            committed=commit,
        )
        self._wire.ask_settled(ApiKey.END_TXN, request, 1, lambda got: got.error_code)


def _formats(rounds: int, random: Random, old_formats: bool) -> Iterator[tuple[bytes, int]]:
    """Record bytes with the Produce version that may carry them."""
    for _ in range(rounds):
        for codec in Codec:
            yield build_batch(_some(random, 6), codec=codec), 7
            if old_formats and codec is not Codec.ZSTD:
                yield build_message_set(_some(random, 4), 1, codec), 2
                yield build_message_set(_some(random, 4), 0, codec), 1


def _some(random: Random, count: int) -> list[Record]:
    """Records with times that wander back and forth over an hour."""
    return [
        Record(
            i,
            START_MS + random.randrange(3_600_000),
            random.choice((None, b"k%d" % i)),
            random.randbytes(random.randrange(10, 120)) + b"a" * random.randrange(200),
            (("h", b"1"), ("n", None)) if random.random() < 0.2 else (),
        )
        for i in range(count)
    ]


def _send(wire: Wire, topic: str, records: bytes, version: int, partition: int = 0) -> None:
    got = wire.produce(topic, records, partition=partition, version=version)
    assert got.error == ErrorCode.NONE, (topic, got)


def probe_times(random: Random) -> Iterable[int]:
    """The special values, the edges and many times in between."""
    edges = (0, 1, START_MS - 1, START_MS, START_MS + 3_600_000)
    return (-1, -2, -3, *edges, *(START_MS + random.randrange(3_700_000) for _ in range(24)))

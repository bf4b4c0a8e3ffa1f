"""Keys go where every other Kafka client sends them; keyless records fill batches."""

import random
import warnings
import zlib

import pytest

from client.partitioner import StickyPartitioner, partition_for_key
from protocol.records.encode_loops import murmur2

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.partitioner.default import murmur2 as kafka_python_murmur2


@pytest.mark.parametrize(
    ("key", "signed_hash"),
    [
        # The vectors of Apache Kafka's own UtilsTest.
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_hash_equals_the_java_clients(key: bytes, signed_hash: int) -> None:
    assert murmur2(key) == signed_hash & 0xFFFFFFFF


@pytest.mark.parametrize("length", range(64))
def test_hash_equals_kafka_pythons_for_every_tail_length(length: int) -> None:
    key = random.Random(length).randbytes(length)
    assert murmur2(key) & 0x7FFFFFFF == kafka_python_murmur2(key) & 0x7FFFFFFF


def test_a_key_chooses_among_all_partitions() -> None:
    keys = [str(zlib.crc32(bytes([n]))).encode() for n in range(100)]
    assert {partition_for_key(key, 4) for key in keys} == {0, 1, 2, 3}


def test_keyless_records_stay_until_a_batch_is_full_and_then_move() -> None:
    sticky = StickyPartitioner(stick_bytes=100, rng=random.Random(1))
    first = [sticky.choose([0, 1, 2], 50) for _ in range(2)]
    second = sticky.choose([0, 1, 2], 50)
    assert first[0] == first[1]
    assert second != first[0]


def test_keyless_records_leave_a_partition_that_is_gone() -> None:
    sticky = StickyPartitioner(stick_bytes=100, rng=random.Random(1))
    chosen = sticky.choose([0, 1], 1)
    other = 1 - chosen
    assert sticky.choose([other], 1) == other


def test_a_single_partition_takes_everything() -> None:
    sticky = StickyPartitioner(stick_bytes=1)
    assert {sticky.choose([0], 10) for _ in range(5)} == {0}

"""Records of Kafka's metadata log: their bytes, both ways, and what broken ones do."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.stored.kraft import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from storage.kafka.kraft_records import (
    RESOURCE_TOPIC,
    CorruptMetadata,
    OtherRecord,
    TransactionRecord,
    decode,
    encode,
)

ID = bytes(range(16))
DIRECTORY = bytes(range(16, 32))


def test_topic_is_name_and_id() -> None:
    record = TopicRecord(name="ab", topic_id=ID)
    value = bytes.fromhex("01 02 00 03 6162") + ID + b"\x00"
    assert encode(record) == value
    assert decode(value) == record


def test_partition_names_one_node_as_all_of_its_replicas() -> None:
    record = PartitionRecord(
        topic_id=ID,
        partition_id=3,
        replicas=[7],
        isr=[7],
        leader=7,
        leader_epoch=5,
        partition_epoch=0,
        directories=[DIRECTORY],
    )
    value = (
        bytes.fromhex("01 03 01 00000003")
        + ID
        + bytes.fromhex("02 00000007  02 00000007  01  01  00000007  00000005  00000000  02")
        + DIRECTORY
        + b"\x00"
    )
    assert encode(record) == value
    assert decode(value) == record


def test_setting_without_a_value_removes_it() -> None:
    record = ConfigRecord(
        resource_type=RESOURCE_TOPIC, resource_name="t", name="retention.ms", value=None
    )
    value = bytes.fromhex("01 04 00 02 02 74 0d") + b"retention.ms" + bytes.fromhex("00 00")
    assert encode(record) == value
    assert decode(value) == record


def test_feature_level_as_kafka_writes_it() -> None:
    record = FeatureLevelRecord(name="metadata.version", feature_level=21)
    value = bytes.fromhex("01 0c 00 11") + b"metadata.version" + bytes.fromhex("0015 00")
    assert encode(record) == value
    assert decode(value) == record


def test_producer_ids_do_not_claim_a_broker_epoch() -> None:
    record = ProducerIdsRecord(broker_id=1, next_producer_id=2000)
    value = bytes.fromhex("01 0f 00 00000001 ffffffffffffffff 00000000000007d0 00")
    assert encode(record) == value
    assert decode(value) == record


def test_partition_change_is_read_for_its_replicas() -> None:
    head = bytes.fromhex("01 05 01 00000002") + ID
    leader_and_replicas = bytes.fromhex("02  01 04 00000003  02 09 03 00000003 00000004")
    assert decode(head + leader_and_replicas) == PartitionChangeRecord(
        topic_id=ID, partition_id=2, replicas=[3, 4]
    )
    only_leader = bytes.fromhex("01  01 04 00000003")
    assert decode(head + only_leader) == PartitionChangeRecord(
        topic_id=ID, partition_id=2, replicas=None
    )


@pytest.mark.parametrize(
    ("value", "record"),
    [
        ("01 17 00 00", TransactionRecord(begins=True)),
        ("01 18 00 00", TransactionRecord(begins=False, keeps=True)),
        ("01 19 00 00", TransactionRecord(begins=False)),
        ("01 12 00 ff ff", OtherRecord(key=18)),
        ("01 8001 00", OtherRecord(key=128)),
    ],
)
def test_transactions_and_other_kinds(value: str, record: object) -> None:
    assert decode(bytes.fromhex(value)) == record


def test_removed_topic_is_an_id() -> None:
    assert decode(b"\x01\x09\x00" + ID + b"\x00") == RemoveTopicRecord(topic_id=ID)


@pytest.mark.parametrize("value", ["", "00 02 00", "02 02 00 01 00", "01 02 00 7f 61", "01 03 00"])
def test_broken_values_are_said_to_be(value: str) -> None:
    with pytest.raises(CorruptMetadata):
        decode(bytes.fromhex(value))


@settings(max_examples=300)
@given(st.binary(max_size=60), st.sampled_from([2, 3, 4, 5, 9, 12, 15, 23]))
def test_no_bytes_raise_anything_else(body: bytes, key: int) -> None:
    with contextlib.suppress(CorruptMetadata):
        decode(bytes((1, key, 0)) + body)

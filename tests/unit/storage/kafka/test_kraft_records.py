"""Records of Kafka's metadata log: their bytes, both ways, and what broken ones do."""

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.stored.kraft import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntityData,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
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
        ("01 1b 00 ff ff", OtherRecord(key=27)),
        ("01 8001 00", OtherRecord(key=128)),
    ],
)
def test_transactions_and_other_kinds(value: str, record: object) -> None:
    assert decode(bytes.fromhex(value)) == record


def test_removed_topic_is_an_id() -> None:
    assert decode(b"\x01\x09\x00" + ID + b"\x00") == RemoveTopicRecord(topic_id=ID)


@pytest.mark.parametrize(
    ("value", "record"),
    [
        (
            "01 0a 00 07 557365723a61 07 557365723a62 02 07 557365723a63"
            "0000000000000001 0000000000000003 0000000000000002 02 74 00",
            DelegationTokenRecord(
                owner="User:a",
                requester="User:b",
                renewers=["User:c"],
                issue_timestamp=1,
                max_timestamp=3,
                expiration_timestamp=2,
                token_id="t",
            ),
        ),
        (
            "01 0b 00 02 61 01 03 0102 02 03 02 04 00001000 00",
            UserScramCredentialRecord(
                name="a",
                mechanism=1,
                salt=b"\1\2",
                stored_key=b"\3",
                server_key=b"\4",
                iterations=4096,
            ),
        ),
        (
            "01 0e 00 03 05 75736572 02 61 00 03 6970 00 00 02 6b 4024000000000000 00 00",
            ClientQuotaRecord(
                entity=[
                    QuotaEntityData(entity_type="user", entity_name="a"),
                    QuotaEntityData(entity_type="ip", entity_name=None),
                ],
                key="k",
                value=10.0,
            ),
        ),
        (
            "01 12 00 000102030405060708090a0b0c0d0e0f 02 02 74 04 07 557365723a61 02 2a 03 02 00",
            AccessControlEntryRecord(
                id=ID,
                resource_type=2,
                resource_name="t",
                pattern_type=4,
                principal="User:a",
                host="*",
                operation=3,
                permission_type=2,
            ),
        ),
        (
            "01 13 00 000102030405060708090a0b0c0d0e0f 00",
            RemoveAccessControlEntryRecord(id=ID),
        ),
        ("01 16 00 02 61 02 00", RemoveUserScramCredentialRecord(name="a", mechanism=2)),
        ("01 1a 00 02 74 00", RemoveDelegationTokenRecord(token_id="t")),
    ],
    ids=lambda value: "" if isinstance(value, str) else type(value).__name__,
)
def test_security_as_kafka_writes_it(value: str, record: Any) -> None:
    assert encode(record) == bytes.fromhex(value)
    assert decode(bytes.fromhex(value)) == record


@pytest.mark.parametrize("value", ["", "00 02 00", "02 02 00 01 00", "01 02 00 7f 61", "01 03 00"])
def test_broken_values_are_said_to_be(value: str) -> None:
    with pytest.raises(CorruptMetadata):
        decode(bytes.fromhex(value))


@settings(max_examples=300)
@given(
    st.binary(max_size=60), st.sampled_from([2, 3, 4, 5, 9, 10, 11, 12, 14, 15, 18, 19, 22, 23, 26])
)
def test_no_bytes_raise_anything_else(body: bytes, key: int) -> None:
    with contextlib.suppress(CorruptMetadata):
        decode(bytes((1, key, 0)) + body)

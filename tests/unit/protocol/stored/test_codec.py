"""Declared records: both codecs agree on every class and version, and nothing else is let through.

That the bytes are Kafka's is in the golden tests of those who translate them: groups' and
transactions' records, the metadata log, members' subscriptions.
"""

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.declare import schema
from protocol.declare.primitives import stored_spec
from protocol.stored import codec, consumer_group_log, group_log, kraft, transaction_log
from protocol.stored.codec import UnknownRecord
from protocol.stored.consumer_protocol import (
    ConsumerProtocolSubscription,
    decode_subscription_leniently,
)
from protocol.structs import ProtocolMetadata, TopicIndexes

ID = bytes(range(16))
RECORDS = [
    group_log.OffsetCommitKey(group="g", topic="t", partition=3),
    group_log.OffsetCommitValue(
        offset=7, leader_epoch=2, metadata="m", commit_timestamp=9, expire_timestamp=10, topic_id=ID
    ),
    group_log.GroupMetadataKey(group="g"),
    group_log.GroupMetadataValue(
        protocol_type="consumer",
        generation=4,
        protocol=None,
        leader="a",
        members=[group_log.GroupMetadataMember(member_id="a", subscription=b"s", assignment=b"")],
    ),
    group_log.MemberKey(group_id="g", member_id="m"),
    consumer_group_log.MemberMetadataValue(
        instance_id=None,
        client_id="c",
        subscribed_topic_names=["t"],
        classic_member_metadata=consumer_group_log.ClassicMemberMetadata(
            session_timeout_ms=5,
            supported_protocols=[ProtocolMetadata(name="range", metadata=b"x")],
        ),
    ),
    consumer_group_log.CurrentAssignmentValue(
        member_epoch=1,
        assigned_partitions=[consumer_group_log.TopicPartitions(topic_id=ID, partitions=[0, 2])],
    ),
    transaction_log.TransactionLogValue(
        producer_id=1,
        transaction_partitions=[transaction_log.PartitionsSchema(topic="t", partition_ids=[1])],
        previous_producer_id=8,
    ),
    transaction_log.TransactionLogValue(producer_id=1, transaction_partitions=None),
    kraft.PartitionRecord(topic_id=ID, replicas=[1], isr=[1], directories=[ID]),
    kraft.PartitionChangeRecord(topic_id=ID, replicas=[1, 2]),
    ConsumerProtocolSubscription(
        topics=["a"], owned_partitions=[TopicIndexes(topic="a", partitions=[1])], rack_id="r"
    ),
]
CASES = [
    pytest.param(record, version, id=f"{type(record).__name__} v{version}")
    for record in RECORDS
    for version in range(stored_spec(type(record)).max_version + 1)
]


@pytest.mark.parametrize(("record", "version"), CASES)
def test_compiled_codec_does_what_the_declaration_says(record: object, version: int) -> None:
    data = codec.encode(record, version)
    assert data == version.to_bytes(2) + schema.encode(record, version)
    again = codec.decode(type(record), data)
    assert codec.encode(again, version) == data


@pytest.mark.parametrize(("record", "version"), CASES)
def test_a_record_that_ends_early_is_unknown(record: object, version: int) -> None:
    data = codec.encode(record, version)
    for size in range(len(data)):
        with pytest.raises(UnknownRecord):
            codec.decode(type(record), data[:size])


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_version_that_is_not_declared_is_unknown(record: object) -> None:
    data = codec.encode(record, 0)
    for version in (stored_spec(type(record)).max_version + 1, -1):
        with pytest.raises(UnknownRecord, match=f"version {version}"):
            codec.decode(type(record), version.to_bytes(2, signed=True) + data[2:])


@given(st.binary(max_size=60), st.sampled_from([type(record) for record in RECORDS]))
def test_no_bytes_raise_anything_else(data: bytes, cls: type) -> None:
    with contextlib.suppress(UnknownRecord):
        codec.decode(cls, b"\0\0" + data)


@pytest.mark.parametrize(
    ("data", "problem"), [("", "no record frame"), ("02 02 00", "version 1, found 2"), ("01", "no")]
)
def test_a_frame_is_checked(data: str, problem: str) -> None:
    with pytest.raises(UnknownRecord, match=problem):
        codec.decode_frame(bytes.fromhex(data))


def test_a_newer_subscription_is_read_for_what_is_known_of_it() -> None:
    said = ConsumerProtocolSubscription(topics=["a"], generation_id=3, rack_id="r")
    newer = (9).to_bytes(2) + codec.encode(said, 3)[2:] + b"and more"
    assert decode_subscription_leniently(newer) == replace(said)

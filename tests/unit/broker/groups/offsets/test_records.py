"""Golden bytes, written out by hand from Kafka's message specifications."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.groups.offsets.records import (
    CommittedOffset,
    decode_group_value,
    decode_key,
    decode_offset_value,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
)
from protocol.stored.codec import UnknownRecord
from protocol.stored.group_log import (
    GroupMetadataKey,
    GroupMetadataMember,
    GroupMetadataValue,
    OffsetCommitKey,
)

GROUP = GroupMetadataValue(
    protocol_type="consumer",
    generation=3,
    protocol="range",
    leader="m",
    current_state_timestamp=7,
    members=[
        GroupMetadataMember(
            member_id="m",
            group_instance_id=None,
            client_id="c",
            client_host="h",
            rebalance_timeout=60_000,
            session_timeout=10_000,
            subscription=b"\x01\x02",
            assignment=b"\x03",
        )
    ],
)

GROUP_VALUE_3 = bytes.fromhex(
    "0003"
    "0008 636f6e73756d6572"  # "consumer"
    "00000003"
    "0005 72616e6765"  # "range"
    "0001 6d"  # leader "m"
    "0000000000000007"  # state timestamp
    "00000001"
    "0001 6d"  # member "m"
    "ffff"  # no instance id
    "0001 63"
    "0001 68"
    "0000ea60"
    "00002710"
    "00000002 0102"
    "00000001 03"
)


def test_what_is_an_offset_key() -> None:
    key = bytes.fromhex("0001 0001 67 0002 7431 00000005")
    assert encode_offset_key("g", "t1", 5) == key
    assert decode_key(key) == OffsetCommitKey(group="g", topic="t1", partition=5)


def test_is_the_older_offset_key_read() -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=0)
    assert decode_key(bytes.fromhex("0000 0001 67 0001 74 00000000")) == key


def test_what_is_a_group_key() -> None:
    assert encode_group_key("gé") == bytes.fromhex("0002 0003 67c3a9")
    assert decode_key(bytes.fromhex("0002 0003 67c3a9")) == GroupMetadataKey(group="gé")


def test_are_keys_of_the_new_group_protocol_unknown() -> None:
    with pytest.raises(UnknownRecord):
        decode_key(bytes.fromhex("0003 0001 67"))


def test_what_is_an_offset_value() -> None:
    committed = CommittedOffset(42, 7, "note", 1000)
    value = bytes.fromhex("0003 000000000000002a 00000007 0004 6e6f7465 00000000000003e8")
    assert encode_offset_value(committed) == value
    assert decode_offset_value(value) == committed


def test_does_a_retention_of_its_own_choose_version_1() -> None:
    committed = CommittedOffset(42, -1, "", 1000, 2000)
    value = bytes.fromhex("0001 000000000000002a 0000 00000000000003e8 00000000000007d0")
    assert encode_offset_value(committed) == value
    assert decode_offset_value(value) == committed


@pytest.mark.parametrize(
    ("value", "leader_epoch"),
    [
        ("0000 000000000000002a 0000 00000000000003e8", -1),
        ("0002 000000000000002a 0000 00000000000003e8", -1),
        ("0004 000000000000002a 00000007 01 00000000000003e8 00", 7),
        ("0004 000000000000002a 00000007 01 00000000000003e8 01 00 10" + "ab" * 16, 7),
    ],
)
def test_are_other_versions_of_offset_values_read(value: str, leader_epoch: int) -> None:
    expected = CommittedOffset(42, leader_epoch, "", 1000)
    assert decode_offset_value(bytes.fromhex(value)) == expected


def test_what_is_a_group_value() -> None:
    assert encode_group_value(GROUP) == GROUP_VALUE_3
    assert decode_group_value(GROUP_VALUE_3) == GROUP


def test_is_an_empty_group_stored_without_protocol_and_leader() -> None:
    empty = GroupMetadataValue(protocol_type="consumer", generation=4, current_state_timestamp=7)
    value = encode_group_value(empty)
    assert value.endswith(bytes.fromhex("00000004 ffff ffff 0000000000000007 00000000"))
    assert decode_group_value(value) == empty


def test_is_the_oldest_group_value_read() -> None:
    value = bytes.fromhex(
        "0000 0001 74 00000001 0001 70 0001 6d 00000001"
        "0001 6d 0001 63 0001 68 00002710 00000000 00000000"
    )
    stored = decode_group_value(value)
    assert stored.current_state_timestamp == -1
    assert stored.members[0].rebalance_timeout == 10_000


def test_is_the_flexible_group_value_read() -> None:
    value = bytes.fromhex(
        "0004 02 74 00000001 02 70 00 0000000000000009 02"
        "02 6d 02 69 02 63 02 68 00000001 00000002 02 aa 01 00 00"
    )
    snapshot = decode_group_value(value)
    assert snapshot.leader is None
    member = snapshot.members[0]
    assert (member.group_instance_id, member.subscription, member.assignment) == ("i", b"\xaa", b"")


@pytest.mark.parametrize("version", ["0005", "ffff"])
def test_are_newer_values_unknown(version: str) -> None:
    with pytest.raises(UnknownRecord):
        decode_offset_value(bytes.fromhex(version) + bytes(40))
    with pytest.raises(UnknownRecord):
        decode_group_value(bytes.fromhex(version) + bytes(40))


@pytest.mark.parametrize("size", range(len(GROUP_VALUE_3)))
def test_is_a_torn_group_value_recognised(size: int) -> None:
    with pytest.raises(UnknownRecord):
        decode_group_value(GROUP_VALUE_3[:size])


@given(st.binary(max_size=60))
def test_does_noise_never_raise_anything_else(data: bytes) -> None:
    for decode in (decode_key, decode_offset_value, lambda d: decode_group_value(d)):
        with contextlib.suppress(UnknownRecord):
            decode(data)


def test_is_text_that_is_not_utf_8_unknown() -> None:
    with pytest.raises(UnknownRecord):
        decode_key(bytes.fromhex("0002 0001 ff"))

"""The stored form of consumer-protocol groups: golden bytes, and what becomes of strange ones."""

import pytest

from broker.groups.consumer.records import (
    decode_consumer_key,
    encode_change,
    is_consumer_key,
    take_record,
)
from broker.groups.consumer.values import (
    Change,
    ChangeKind,
    ClassicFacts,
    CurrentAssignment,
    MemberState,
    StoredConsumerGroup,
    Subscription,
)
from broker.groups.offsets.records import encode_group_key, encode_offset_key
from broker.groups.record_keys import RecordKey
from protocol.stored.codec import UnknownRecord

TOPIC = bytes(range(16))
SUBSCRIPTION = Subscription(
    instance_id="i",
    rack_id=None,
    client_id="c",
    client_host="h",
    names=frozenset({"b", "a"}),
    regex=None,
    rebalance_timeout_ms=1000,
    server_assignor="range",
)
CURRENT = CurrentAssignment(
    member_epoch=3,
    previous_epoch=2,
    state=MemberState.UNREVOKED,
    assigned=frozenset({(TOPIC, 1), (TOPIC, 0)}),
    pending_revocation=frozenset({(TOPIC, 2)}),
    since={(TOPIC, 0): 1, (TOPIC, 1): 3, (TOPIC, 2): 2},
)
CLASSIC = Subscription(
    client_id="test",
    client_host="/127.0.0.1",
    names=frozenset({"t"}),
    regex="",
    rebalance_timeout_ms=8000,
    classic=ClassicFacts(
        session_timeout_ms=10_000,
        protocols=(("range", bytes.fromhex("0001 00000001 0001 74 ffffffff 00000000")),),
    ),
)
TOPICS_HEX = "02" + TOPIC.hex() + "03" + "00000000" + "00000001" + "00"
ASSIGNED_HEX = "02" + TOPIC.hex() + "03 00000000 00000001" + "01 00 09 03 00000001 00000003"
PENDING_HEX = "02" + TOPIC.hex() + "02 00000002" + "01 00 05 02 00000002"
GOLDEN = [
    (Change(ChangeKind.GROUP_EPOCH, None, 7), "0003 0001 67", "0000 00000007 00"),
    (Change(ChangeKind.ASSIGNMENT_EPOCH, None, 7), "0006 0001 67", "0000 00000007 00"),
    (
        Change(ChangeKind.SUBSCRIPTION, "m", SUBSCRIPTION),
        "0005 0001 67 0001 6d",
        "0000 0269 00 0263 0268 03 0261 0262 00 000003e8 06 72616e6765 00",
    ),
    (  # as Kafka 4.3.1 wrote it for a member that had joined in the classic way
        Change(ChangeKind.SUBSCRIPTION, "n", CLASSIC),
        "0005 0001 67 0001 6e",
        "0000 00 00 0574657374 0b2f3132372e302e302e31 02 0274 01 00001f40 00"
        "01 00 20 01 00002710 02 0672616e6765 12 0001000000010001 74 ffffffff00000000 00 00",
    ),
    (
        Change(ChangeKind.TARGET, "m", frozenset({(TOPIC, 0), (TOPIC, 1)})),
        "0007 0001 67 0001 6d",
        f"0000 {TOPICS_HEX} 00",
    ),
    (
        Change(ChangeKind.CURRENT, "m", CURRENT),
        "0008 0001 67 0001 6d",
        f"0000 00000003 00000002 01 {ASSIGNED_HEX} {PENDING_HEX} 00",
    ),
]


@pytest.mark.parametrize(("change", "key", "value"), GOLDEN, ids=lambda each: str(each)[:20])
def test_are_the_bytes_kafkas(change: Change, key: str, value: str) -> None:
    assert encode_change("g", change) == (bytes.fromhex(key), bytes.fromhex(value))


def test_is_what_was_stored_what_is_read() -> None:
    stored = StoredConsumerGroup()
    for change, _, _ in GOLDEN:
        key, value = encode_change("g", change)
        about = decode_consumer_key(key)
        assert value is not None
        assert about == RecordKey(change.kind, "g", change.member_id)
        take_record(stored, about, value)
    assert (stored.epoch, stored.assignment_epoch) == (7, 7)
    assert stored.subscriptions == {"m": SUBSCRIPTION, "n": CLASSIC}
    assert stored.targets == {"m": frozenset({(TOPIC, 0), (TOPIC, 1)})}
    assert stored.current == {"m": CURRENT}


@pytest.mark.parametrize(
    ("epoch_hex", "since"), [("00000003", 3), ("fffffffe", 0)], ids=["there", "away"]
)
@pytest.mark.parametrize("tags_hex", ["00", "01 00 05 02 00000009"], ids=["none", "too few"])
def test_have_partitions_without_an_epoch_that_of_their_member(
    tags_hex: str, epoch_hex: str, since: int
) -> None:
    """Older releases of Kafka, and of this broker, stored no epochs of partitions."""
    stored = StoredConsumerGroup()
    topics_hex = TOPICS_HEX.removesuffix("00") + tags_hex
    value = bytes.fromhex(f"0000 {epoch_hex} 00000002 00 {topics_hex} 01 00")
    take_record(stored, RecordKey(ChangeKind.CURRENT, "g", "m"), value)
    current = stored.current["m"]
    assert current.assigned == {(TOPIC, 0), (TOPIC, 1)}
    assert [current.had_since((TOPIC, index)) for index in range(3)] == [since, since, None]


def test_is_a_tombstone_a_key_alone() -> None:
    assert encode_change("g", Change(ChangeKind.TARGET, "m", None))[1] is None


def test_are_classic_keys_left_to_others() -> None:
    assert not is_consumer_key(encode_group_key("g"))
    assert not is_consumer_key(encode_offset_key("g", "t", 0))
    assert not is_consumer_key(b"")


@pytest.mark.parametrize("kind", [4, 16])
def test_is_what_kafka_derives_passed_over(kind: int) -> None:
    assert decode_consumer_key(bytes([0, kind, 0, 1, 0x67])) is None


@pytest.mark.parametrize("key", ["0009 0001 67", "0003", "0005 0001 67"])
def test_are_strange_keys_unknown(key: str) -> None:
    with pytest.raises(UnknownRecord):
        decode_consumer_key(bytes.fromhex(key))


@pytest.mark.parametrize("value", ["0001 00000007 00", "0000 0000", ""])
def test_are_strange_values_unknown(value: str) -> None:
    about = RecordKey(ChangeKind.GROUP_EPOCH, "g", None)
    with pytest.raises(UnknownRecord):
        take_record(StoredConsumerGroup(), about, bytes.fromhex(value))


def test_are_a_kafka_hash_and_creation_time_skipped() -> None:
    """Kafka 4.1 and later put tagged fields after the epoch."""
    stored = StoredConsumerGroup()
    value = bytes.fromhex("0000 00000007 01 00 08 0000000000000001")
    take_record(stored, RecordKey(ChangeKind.GROUP_EPOCH, "g", None), value)
    assert stored.epoch == 7

"""Golden bytes, written out by hand from Kafka's message specifications."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.transactions.records import decode_key, decode_value, encode_key, encode_value
from broker.transactions.state import TxnSnapshot, TxnState
from protocol.stored.codec import UnknownRecord

ONGOING = TxnSnapshot(
    transactional_id="x",
    producer_id=7,
    producer_epoch=2,
    timeout_ms=60_000,
    state=TxnState.ONGOING,
    partitions=frozenset({("t", 1), ("t", 0), ("u", 5)}),
    started_ms=3,
    updated_ms=4,
)
VALUE = bytes.fromhex(
    "0000 0000000000000007 0002 0000ea60 01 00000002"
    "0001 74 00000002 00000000 00000001"
    "0001 75 00000001 00000005"
    "0000000000000004 0000000000000003"
)


def test_what_is_a_key() -> None:
    assert encode_key("tx") == bytes.fromhex("0000 0002 7478")
    assert decode_key(bytes.fromhex("0000 0002 7478")) == "tx"


def test_is_another_key_version_unknown() -> None:
    with pytest.raises(UnknownRecord):
        decode_key(bytes.fromhex("0001 0002 7478"))


def test_what_is_a_value() -> None:
    assert encode_value(ONGOING) == VALUE
    assert decode_value("x", VALUE) == ONGOING


def test_has_an_empty_one_null_partitions() -> None:
    empty = TxnSnapshot(transactional_id="x", producer_id=7, producer_epoch=0, timeout_ms=1)
    value = encode_value(empty)
    assert value == bytes.fromhex("0000 0000000000000007 0000 00000001 00 ffffffff" + "ff" * 16)
    assert decode_value("x", value) == empty


def test_is_the_flexible_value_read() -> None:
    value = bytes.fromhex(
        "0001 0000000000000007 0002 0000ea60 01 02"
        "02 74 02 00000005 00"
        "0000000000000004 0000000000000003"
        "01 00 08 0000000000000001"
    )
    assert decode_value("x", value).partitions == {("t", 5)}


@pytest.mark.parametrize("value", ["0002" + "00" * 40, "0000" + "00" * 14 + "09" + "00" * 20])
def test_is_something_newer_unknown(value: str) -> None:
    with pytest.raises(UnknownRecord):
        decode_value("x", bytes.fromhex(value))


@pytest.mark.parametrize("size", range(len(VALUE)))
def test_is_a_torn_value_recognised(size: int) -> None:
    with pytest.raises(UnknownRecord):
        decode_value("x", VALUE[:size])


@given(st.binary(max_size=60))
def test_does_noise_never_raise_anything_else(data: bytes) -> None:
    with contextlib.suppress(UnknownRecord):
        decode_key(data)
    with contextlib.suppress(UnknownRecord):
        decode_value("x", data)


VERSION_2 = replace(
    ONGOING,
    last_producer_id=7,
    last_producer_epoch=1,
    partitions=frozenset({("t", 5)}),
    client_version=2,
)
VALUE_2 = bytes.fromhex(
    "0001 0000000000000007 0002 0000ea60 01 02"
    "02 74 02 00000005 00"
    "0000000000000004 0000000000000003"
    "02 00 08 0000000000000007 02 02 0002"
)


def test_what_is_a_value_of_transaction_version_2() -> None:
    assert encode_value(VERSION_2) == VALUE_2
    assert decode_value("x", VALUE_2) == VERSION_2


def test_is_the_change_to_a_new_producer_id_stored() -> None:
    ending = replace(
        VERSION_2, state=TxnState.PREPARE_COMMIT, producer_epoch=32767,
        last_producer_epoch=32766, next_producer_id=8,
    )  # fmt: skip
    assert decode_value("x", encode_value(ending)) == ending
    ended = replace(
        VERSION_2, producer_id=8, producer_epoch=0, last_producer_epoch=32766,
        partitions=frozenset(), state=TxnState.COMPLETE_COMMIT,
    )  # fmt: skip
    assert decode_value("x", encode_value(ended)) == ended


def test_is_a_tag_of_another_size_unknown() -> None:
    with pytest.raises(UnknownRecord):
        decode_value("x", VALUE_2[:-4] + bytes.fromhex("02 01 02"))

"""The bytes that group members exchange are Kafka's."""

import pytest

from client.assignors import Subscription
from client.errors import ClientError
from client.subscription import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from client.types import TopicPartition

GOLDEN_SUBSCRIPTION = bytes.fromhex(
    "0002"  # version 2
    "00000001"
    "0001"
    "61"  # topics: a
    "ffffffff"  # no user data
    "00000001"
    "0001"
    "61"
    "00000002"
    "00000000"
    "00000003"  # owns a-0 and a-3
    "00000007"  # generation 7
)
GOLDEN_ASSIGNMENT = bytes.fromhex("0000000000010001610000000100000005ffffffff")


def test_subscription_bytes() -> None:
    owned = (TopicPartition("a", 3), TopicPartition("a", 0))
    subscription = Subscription(topics=("a",), owned=owned, generation=7)
    assert encode_subscription(subscription) == GOLDEN_SUBSCRIPTION


def test_subscription_reads_back() -> None:
    read = decode_subscription(GOLDEN_SUBSCRIPTION, "instance")
    assert read.topics == ("a",)
    assert read.owned == (TopicPartition("a", 0), TopicPartition("a", 3))
    assert (read.generation, read.instance_id) == (7, "instance")


def test_version_0_of_an_old_client_has_neither_owned_nor_generation() -> None:
    read = decode_subscription(bytes.fromhex("00000000000100016200000002abcd"))
    assert (read.topics, read.owned, read.generation) == (("b",), (), -1)


def test_what_a_newer_version_adds_is_passed_over() -> None:
    newer = b"\x00\x09" + GOLDEN_SUBSCRIPTION[2:] + b"\x00\x04rack"
    assert decode_subscription(newer).generation == 7


def test_assignment_bytes_both_ways() -> None:
    assert encode_assignment([TopicPartition("a", 5)]) == GOLDEN_ASSIGNMENT
    assert decode_assignment(GOLDEN_ASSIGNMENT) == [TopicPartition("a", 5)]


def test_an_empty_assignment_is_no_partitions() -> None:
    assert decode_assignment(b"") == []


@pytest.mark.parametrize("cut", range(2, len(GOLDEN_SUBSCRIPTION)))
def test_bytes_that_end_early_are_refused(cut: int) -> None:
    with pytest.raises(ClientError, match="does not speak the consumer protocol"):
        decode_subscription(GOLDEN_SUBSCRIPTION[:cut])

"""The payloads that members of a classic group exchange inside JoinGroup and SyncGroup.

| version | change                                          |
|---------|-------------------------------------------------|
| 0       | topics and user data                            |
| 1       | partitions that the member still owns (KIP-429) |
| 2       | generation in which it got them (KIP-792)       |
| 3       | rack (KIP-881)                                  |

A newer version is read as version 3: fields are only ever added at the end. Some clients name a
version and leave out the fields that it added; the broker reads those payloads as far as their
bytes go.

Source: Kafka ``ConsumerProtocolSubscription.json``, ``ConsumerProtocolAssignment.json``.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from protocol.declare import primitives as wire
from protocol.stored.codec import UnknownRecord, decode_body, encode, version_of
from protocol.structs import TopicIndexes

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
VERSION_MAX: Final = 3

_BODY: Final = 2
"""Position of a body: after its int16 version."""


class SubscribedTopics(wire.Stored, max_version=0):
    """The part of a subscription that every version begins with."""

    topics: list[str] = wire.array(wire.STRING)


class ConsumerProtocolSubscription(wire.Stored, max_version=VERSION_MAX):
    """Which topics a member wants, and what it still owns."""

    topics: list[str] = wire.array(wire.STRING)
    user_data: bytes | None = wire.binary(nullable_since=0, default=None)
    owned_partitions: list[TopicIndexes] = wire.array(since=1)
    generation_id: int = wire.int32(since=2, default=-1)
    rack_id: str | None = wire.string(since=3, nullable_since=3, default=None)


class AssignedPartitions(wire.Stored, max_version=0):
    """The part of an assignment that every version begins with."""

    assigned_partitions: list[TopicIndexes] = wire.array()


class ConsumerProtocolAssignment(wire.Stored, max_version=VERSION_MAX):
    """The partitions that a member should read."""

    assigned_partitions: list[TopicIndexes] = wire.array()
    user_data: bytes | None = wire.binary(nullable_since=0, default=None)


def decode_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """A member's subscription.

    Raises:
        UnknownRecord: the bytes end before the fields of their version do.
    """
    return decode_body(ConsumerProtocolSubscription, min(_version(data), VERSION_MAX), data, _BODY)


def decode_subscription_leniently(data: bytes) -> ConsumerProtocolSubscription:
    """A member's subscription, as far as its bytes go.

    Raises:
        UnknownRecord: the bytes do not even name topics.
    """
    for version in range(min(_version(data), VERSION_MAX), -1, -1):
        try:
            return decode_body(ConsumerProtocolSubscription, version, data, _BODY)
        except UnknownRecord:
            continue
    found = decode_body(SubscribedTopics, 0, data, _BODY)
    return ConsumerProtocolSubscription(topics=found.topics)


def decode_assignment(data: bytes) -> frozenset[tuple[str, int]]:
    """The (topic, partition) pairs of an assignment; empty bytes mean no partitions.

    Raises:
        UnknownRecord: the bytes end early.
    """
    if not data:
        return frozenset()
    _version(data)
    found = decode_body(AssignedPartitions, 0, data, _BODY)
    return pairs(found.assigned_partitions)


def encode_assignment(by_topic: Mapping[str, Iterable[int]], version: int) -> bytes:
    """An assignment for a member that reads `version`."""
    assigned = owned(by_topic)
    return encode(
        ConsumerProtocolAssignment(assigned_partitions=assigned), min(version, VERSION_MAX)
    )


def owned(by_topic: Mapping[str, Iterable[int]]) -> list[TopicIndexes]:
    """Partitions by topic as they are declared, in order."""
    return [
        TopicIndexes(topic=topic, partitions=sorted(indexes))
        for topic, indexes in sorted(by_topic.items())
    ]


def pairs(owned: Iterable[TopicIndexes]) -> frozenset[tuple[str, int]]:
    """(topic, partition) pairs of declared partitions."""
    return frozenset((entry.topic, index) for entry in owned for index in entry.partitions)


def _version(data: bytes) -> int:
    version = version_of(data)
    if version < 0:
        raise UnknownRecord(f"version {version} of the consumers' protocol")
    return version

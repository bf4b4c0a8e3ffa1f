"""Which topics a classic consumer group reads: the one thing the broker reads of its metadata.

The metadata of protocol type "consumer" begins with a version and the topics; what follows is
the assignor's business. Needed to know which offsets nobody will ask for any more, and which may
not be deleted.

Source: `ConsumerProtocolSubscription.json`; Kafka's `ClassicGroup.computeSubscribedTopics`.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from broker.groups.group import Group

CONSUMER_PROTOCOL_TYPE: Final = "consumer"

_HEAD = struct.Struct(">hi")
_INT16 = struct.Struct(">h")


def parse_topics(subscription: bytes) -> frozenset[str] | None:
    """The topics in one member's metadata, or None when they cannot be read."""
    try:
        _, count = _HEAD.unpack_from(subscription)
        position = _HEAD.size
        topics = set()
        for _ in range(count):
            (length,) = _INT16.unpack_from(subscription, position)
            position += _INT16.size
            if not 0 <= length <= len(subscription) - position:
                return None
            topics.add(subscription[position : position + length].decode())
            position += length
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)


def subscribed_topics(group: Group) -> frozenset[str] | None:
    """The topics that a group of consumers reads now; None when that is unknown.

    An empty group of consumers reads nothing; a group of another type, or one whose metadata is
    not the consumers' own format, may read anything.
    """
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return None
    topics: set[str] = set()
    for member in group.roster:
        for name, metadata in member.protocols:
            if group.protocol_name is not None and name != group.protocol_name:
                continue
            parsed = parse_topics(metadata)
            if parsed is None:
                return None
            topics |= parsed
    return frozenset(topics)

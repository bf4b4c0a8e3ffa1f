"""The topics that a classic consumer group reads: all that the broker parses of its metadata.

Needed to know which offsets no member will fetch again, and which may not be deleted.

Source: Kafka's `ClassicGroup.computeSubscribedTopics`. Read next: `broker.groups.embedded`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.groups.embedded import parse_subscription
from protocol.stored.consumer_protocol import CONSUMER_PROTOCOL_TYPE

if TYPE_CHECKING:
    from broker.groups.classic.group import Group


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
            parsed = parse_subscription(metadata)
            if parsed is None:
                return None
            topics |= parsed.topics
    return frozenset(topics)

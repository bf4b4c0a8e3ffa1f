"""The metadata that members of a classic consumer group exchange, as the coordinator reads it.

The coordinator of a classic group passes subscriptions and assignments on unread, but has to know
the topics: offsets that a member will fetch again neither expire nor may be deleted. The
coordinator of a group with members of both protocols reads the subscriptions and writes the
assignments itself, in the leader's place. `protocol.stored.consumer_protocol` has the bytes, this
module their meaning for the coordinator. Bytes of another format are no error.

Source: Kafka's `ClassicGroup.computeSubscribedTopics`.
"""

from broker.groups.classic.group import ClassicGroup
from protocol.stored import consumer_protocol
from protocol.stored.codec import UnknownRecord, version_of
from values.dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadata:
    """A member's topics, and the (topic, partition) pairs that it still owns."""

    version: int
    topics: frozenset[str]
    owned: frozenset[tuple[str, int]] = frozenset()
    rack_id: str | None = None


def parse_subscription(metadata: bytes) -> MemberMetadata | None:
    """One member's metadata, or None when it is not the consumers' own format."""
    try:
        found = consumer_protocol.decode_subscription_leniently(metadata)
    except UnknownRecord:
        return None
    return MemberMetadata(
        version=version_of(metadata),
        topics=frozenset(found.topics),
        owned=consumer_protocol.pairs(found.owned_partitions),
        rack_id=found.rack_id,
    )


def parse_assignment(assignment: bytes) -> frozenset[tuple[str, int]] | None:
    """The assignment that a leader gave; no bytes mean no partitions, None another format."""
    try:
        return consumer_protocol.decode_assignment(assignment)
    except UnknownRecord:
        return None


def subscribed_topics(group: ClassicGroup) -> frozenset[str] | None:
    """The topics that a group of consumers reads now; None when that is unknown.

    An empty group of consumers reads nothing; a group of another type, or one whose metadata is
    not the consumers' own format, may read anything.
    """
    if group.protocol_type != consumer_protocol.CONSUMER_PROTOCOL_TYPE:
        return None
    topics: set[str] = set()
    for member in group.members:
        for name, metadata in member.protocols:
            if group.protocol_name is not None and name != group.protocol_name:
                continue
            parsed = parse_subscription(metadata)
            if parsed is None:
                return None
            topics |= parsed.topics
    return frozenset(topics)

"""What members of a classic consumer group send one another, for a coordinator that takes part.

The coordinator of a classic group passes subscriptions and assignments on unread; one that has
members of both protocols in a group reads the subscriptions and writes the assignments itself, in
the leader's place. The bytes are `protocol.stored.consumer_protocol`'s; here is what it
makes of them, and that bytes of another format are no error.

Read next: `broker.groups.mixed.classic_members`.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.stored import consumer_protocol
from protocol.stored.codec import UnknownRecord, version_of


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedSubscription:
    """What a member wants, and what it still has: (topic, partition) pairs."""

    version: int
    topics: frozenset[str]
    owned: frozenset[tuple[str, int]] = frozenset()
    rack_id: str | None = None


def parse_subscription(metadata: bytes) -> EmbeddedSubscription | None:
    """One member's metadata, or None when it is not the consumers' own format."""
    try:
        found = consumer_protocol.decode_subscription_leniently(metadata)
    except UnknownRecord:
        return None
    return EmbeddedSubscription(
        version=version_of(metadata),
        topics=frozenset(found.topics),
        owned=consumer_protocol.pairs(found.owned_partitions),
        rack_id=found.rack_id,
    )


def parse_assignment(assignment: bytes) -> frozenset[tuple[str, int]] | None:
    """What a leader gave a member; no bytes are no partitions, None is another format."""
    try:
        return consumer_protocol.decode_assignment(assignment)
    except UnknownRecord:
        return None

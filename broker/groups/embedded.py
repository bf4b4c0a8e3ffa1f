"""The metadata that members of a classic consumer group exchange, as the coordinator reads it.

The coordinator of a classic group passes subscriptions and assignments on unread. The coordinator
of a group with members of both protocols reads the subscriptions and writes the assignments itself,
in the leader's place. `protocol.stored.consumer_protocol` has the bytes, this module their
meaning for the coordinator. Bytes of another format are no error.

Read next: `broker.groups.mixed.classic_members`.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.stored import consumer_protocol
from protocol.stored.codec import UnknownRecord, version_of


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedSubscription:
    """A member's topics, and the (topic, partition) pairs that it still owns."""

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
    """The assignment that a leader gave; no bytes mean no partitions, None another format."""
    try:
        return consumer_protocol.decode_assignment(assignment)
    except UnknownRecord:
        return None

"""The bytes that members of a consumer group exchange through the broker, which passes them on.

Subscriptions travel in JoinGroup for each assignor, assignments in SyncGroup. The formats are
`protocol.stored.consumer_protocol`'s; here they become the client's values.
"""

from collections.abc import Iterable

from client.assignors import Subscription
from client.errors import ClientError
from client.types import TopicPartition
from protocol.stored import consumer_protocol
from protocol.stored.codec import UnknownRecord, encode
from protocol.stored.consumer_protocol import ConsumerProtocolSubscription

PROTOCOL_TYPE = consumer_protocol.CONSUMER_PROTOCOL_TYPE

_SUBSCRIPTION_VERSION = 2
_ASSIGNMENT_VERSION = 0
"""The version that every client reads."""


def encode_subscription(subscription: Subscription) -> bytes:
    """The metadata of a member, in version 2."""
    said = ConsumerProtocolSubscription(
        topics=sorted(subscription.topics),
        owned_partitions=consumer_protocol.owned(_by_topic(subscription.owned)),
        generation_id=subscription.generation,
    )
    return encode(said, _SUBSCRIPTION_VERSION)


def decode_subscription(data: bytes, instance_id: str | None = None) -> Subscription:
    """Another member's subscription and its current partitions.

    Raises:
        ClientError: the bytes end early; a member of the group uses another protocol.
    """
    try:
        found = consumer_protocol.decode_subscription(data)
    except UnknownRecord as error:
        raise _foreign("subscription") from error
    return Subscription(
        topics=tuple(found.topics),
        owned=tuple(
            TopicPartition(entry.topic, number)
            for entry in found.owned_partitions
            for number in entry.partitions
        ),
        generation=found.generation_id,
        instance_id=instance_id,
    )


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """The leader's assignment for a member, in the version that every client reads."""
    return consumer_protocol.encode_assignment(_by_topic(partitions), _ASSIGNMENT_VERSION)


def decode_assignment(data: bytes) -> list[TopicPartition]:
    """This member's assignment; empty bytes mean no partitions.

    Raises:
        ClientError: the bytes end early.
    """
    try:
        found = consumer_protocol.decode_assignment(data)
    except UnknownRecord as error:
        raise _foreign("assignment") from error
    return [TopicPartition(topic, partition) for topic, partition in sorted(found)]


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition.partition)
    return topics


def _foreign(what: str) -> ClientError:
    return ClientError(
        f"the {what} of a group member ends early: a member of the group does not speak the "
        "consumer protocol"
    )

"""The bytes that members of a consumer group exchange through the broker, which ignores them.

Subscription, as JoinGroup carries it for each assignor::

    version int16 | topics [string] | user data bytes | v1: owned [topic [partition int32]]
                                                      | v2: generation int32 | v3: rack string

Assignment, as SyncGroup brings it::

    version int16 | [topic [partition int32]] | user data bytes

Strings are int16-long, arrays and bytes int32-long with -1 for null. Unknown newer versions
are read as far as they are known, which is how Kafka means them to be extended.

Source: Kafka ``ConsumerProtocolSubscription.json``, ``ConsumerProtocolAssignment.json``.
"""

import struct
from collections.abc import Iterable, Sequence

from client.assignors import Subscription
from client.errors import ClientError
from client.types import TopicPartition

PROTOCOL_TYPE = "consumer"

_VERSION = 2
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_NULL_BYTES = _INT32.pack(-1)


def encode_subscription(subscription: Subscription) -> bytes:
    """The metadata of a member, in version 2."""
    parts = [_INT16.pack(_VERSION), _INT32.pack(len(subscription.topics))]
    parts += [_string(topic) for topic in sorted(subscription.topics)]
    parts += [_NULL_BYTES, _partitions(subscription.owned), _INT32.pack(subscription.generation)]
    return b"".join(parts)


def decode_subscription(data: bytes, instance_id: str | None = None) -> Subscription:
    """What another member wants and holds.

    Raises:
        ClientError: the bytes end early; a member of the group speaks another protocol.
    """
    reader = _Reader(data, "subscription")
    version = reader.int16()
    topics = tuple(reader.string() for _ in range(reader.int32()))
    reader.skip_bytes()
    owned = reader.partitions() if version >= 1 else []
    generation = reader.int32() if version >= 2 else -1
    return Subscription(
        topics=topics, owned=tuple(owned), generation=generation, instance_id=instance_id
    )


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """What the leader gives a member, in version 0, which everybody reads."""
    return _INT16.pack(0) + _partitions(tuple(partitions)) + _NULL_BYTES


def decode_assignment(data: bytes) -> list[TopicPartition]:
    """What this member got; nothing at all reads as no partitions.

    Raises:
        ClientError: the bytes end early.
    """
    if not data:
        return []
    reader = _Reader(data, "assignment")
    reader.int16()
    return reader.partitions()


def _string(text: str) -> bytes:
    data = text.encode()
    return _INT16.pack(len(data)) + data


def _partitions(partitions: Sequence[TopicPartition]) -> bytes:
    topics: dict[str, list[int]] = {}
    for partition in sorted(partitions):
        topics.setdefault(partition.topic, []).append(partition.partition)
    parts = [_INT32.pack(len(topics))]
    for topic, numbers in topics.items():
        parts += [_string(topic), struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)]
    return b"".join(parts)


class _Reader:
    """Reads on from one position; every length is checked against what is there."""

    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._position = 0
        self._what = what

    def int16(self) -> int:
        return int(_INT16.unpack(self._take(2))[0])

    def int32(self) -> int:
        return int(_INT32.unpack(self._take(4))[0])

    def string(self) -> str:
        return self._take(self.int16()).decode("utf-8", "replace")

    def skip_bytes(self) -> None:
        self._take(max(0, self.int32()))

    def partitions(self) -> list[TopicPartition]:
        found = []
        for _ in range(self.int32()):
            topic = self.string()
            found += [TopicPartition(topic, self.int32()) for _ in range(self.int32())]
        return found

    def _take(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise ClientError(
                f"the {self._what} of a group member ends early: a member of the group does not "
                "speak the consumer protocol"
            )
        piece = self._data[self._position : end]
        self._position = end
        return piece

"""What members of a classic consumer group tell each other, for a coordinator that takes part.

Owns the bytes of the consumers' own protocol inside JoinGroup and SyncGroup, both ways. The
coordinator of a classic group passes them on unread; one that has members of both protocols in a
group reads the subscriptions and writes the assignments itself, in the leader's place.

```
 subscription   version int16 | topics | user data bytes?
                | owned topic partitions (1) | generation int32 (2) | rack string? (3)
 assignment     version int16 | topic partitions | user data bytes?
                topic partitions: array of (topic string | array of int32)
```

Strings have an int16 length, arrays and bytes an int32 one, -1 is null. What a newer version adds
at the end is left unread, as the format wants it.

Source: `ConsumerProtocolSubscription.json`, `ConsumerProtocolAssignment.json`; KIP-429, KIP-792,
KIP-881. Read next: `broker.groups.classic_members`.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from broker.groups.offset_records import RecordReader, UnknownRecord

CONSUMER_PROTOCOL_TYPE: Final = "consumer"

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")

_VERSION_MAX: Final = 3
_OWNED_SINCE: Final = 1
_GENERATION_SINCE: Final = 2
_RACK_SINCE: Final = 3
_NULL_BYTES: Final = _INT32.pack(-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedSubscription:
    """What a member wants, and what it still has: (topic, partition) pairs."""

    version: int
    topics: frozenset[str]
    owned: frozenset[tuple[str, int]] = frozenset()
    rack_id: str | None = None


def parse_subscription(metadata: bytes) -> EmbeddedSubscription | None:
    """One member's metadata, or None when it is not the consumers' own format.

    Clients exist that name a version and leave out what it added; they have said all the same
    which topics they want.
    """
    reader = RecordReader(metadata)
    try:
        version = reader.int16()
        names = [reader.nullable_string() for _ in range(reader.count())]
    except UnknownRecord:
        return None
    topics = frozenset(name for name in names if name is not None)
    if version < 0 or None in names:
        return None
    owned, rack_id = _read_rest(reader, version)
    return EmbeddedSubscription(version=version, topics=topics, owned=owned, rack_id=rack_id)


def _read_rest(reader: RecordReader, version: int) -> tuple[frozenset[tuple[str, int]], str | None]:
    """What the member owns and its rack, as far as the bytes go."""
    owned: frozenset[tuple[str, int]] = frozenset()
    rack_id = None
    with contextlib.suppress(UnknownRecord):
        reader.blob()
        if version >= _OWNED_SINCE:
            owned = frozenset(_read_partitions(reader))
        if version >= _GENERATION_SINCE:
            reader.int32()
        if version >= _RACK_SINCE:
            rack_id = reader.nullable_string()
    return owned, rack_id


def parse_assignment(assignment: bytes) -> frozenset[tuple[str, int]] | None:
    """What a leader gave a member; no bytes are no partitions, None is another format."""
    if not assignment:
        return frozenset()
    reader = RecordReader(assignment)
    try:
        if reader.int16() < 0:
            return None
        return frozenset(_read_partitions(reader))
    except UnknownRecord:
        return None


def encode_assignment(by_topic: Mapping[str, Iterable[int]], version: int) -> bytes:
    """An assignment for a member whose subscription has this version."""
    parts = [_INT16.pack(min(version, _VERSION_MAX)), _INT32.pack(len(by_topic))]
    for topic, indexes in sorted(by_topic.items()):
        name = topic.encode()
        ordered = sorted(indexes)
        parts += (
            _INT16.pack(len(name)),
            name,
            _INT32.pack(len(ordered)),
            struct.pack(f">{len(ordered)}i", *ordered),
        )
    parts.append(_NULL_BYTES)
    return b"".join(parts)


def _read_partitions(reader: RecordReader) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    for _ in range(reader.count()):
        topic = reader.string()
        found += [(topic, reader.int32()) for _ in range(reader.count())]
    return found

"""The bytes that groups of the consumer protocol leave in `__consumer_offsets`, both ways.

Owns the layouts shared with Kafka's brokers and tools. Keys are an int16 kind and strings of the
old encoding; values an int16 version 0 and a flexible body (compact strings and arrays, tags).

```
 key    3 group epoch         group             value  epoch int32
        5 subscription        group | member    value  instance? | rack? | client id | client host
                                                       | names | regex? | rebalance timeout int32
                                                       | assignor? | tag 0: classic facts
        6 assignment epoch    group             value  epoch int32
        7 target              group | member    value  topics
        8 current assignment  group | member    value  member epoch int32 | previous epoch int32
                                                       | state int8 | topics | topics to give up
        topics: array of (topic id uuid | array of int32 | tags), in a current assignment with
                tag 0: array of int32, the epoch in which each partition was assigned
        classic facts: present int8 | session timeout int32
                       | protocols (name | metadata bytes | tags) | tags
```

Kind 4 (partition counts, gone since Kafka 4.1) and kind 16 (what patterns matched) are derived
from what we know anyway: not written, skipped when read.

Source: `ConsumerGroup*Key/Value.json`. Read next: `broker.groups.consumer_values`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from broker.groups.consumer_values import (
    JOIN_EPOCH,
    Change,
    ChangeKind,
    ClassicFacts,
    CurrentAssignment,
    MemberState,
    Partition,
    Partitions,
    StoredConsumerGroup,
    Subscription,
)
from broker.groups.offset_records import RecordReader, UnknownRecord
from protocol.varint import encode_unsigned

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT32_PAIR_AND_INT8 = struct.Struct(">iib")

_VALUE_VERSION: Final = 0
_HEAD: Final = _INT16.pack(_VALUE_VERSION)
_NO_TAGS: Final = b"\x00"
_NULL: Final = b"\x00"
_PRESENT: Final = b"\x01"
_ONE_TAG: Final = b"\x01"
_CLASSIC_TAG: Final = 0
_SINCE_TAG: Final = 0

_ABOUT_MEMBERS: Final = frozenset({ChangeKind.SUBSCRIPTION, ChangeKind.TARGET, ChangeKind.CURRENT})
DERIVED_KINDS: Final = frozenset({4, 16})
"""Kinds that Kafka writes and nobody misses."""


class ConsumerKey(NamedTuple):
    """What a record is about; `member_id` is None for the group itself."""

    kind: ChangeKind
    group_id: str
    member_id: str | None


# -- encoding ----------------------------------------------------------------------------------


def encode_change(group_id: str, change: Change) -> tuple[bytes, bytes | None]:
    """Key and value of one change."""
    key = _INT16.pack(change.kind) + _old_string(group_id)
    if change.kind in _ABOUT_MEMBERS:
        key += _old_string(change.member_id or "")
    if change.value is None:
        return key, None
    return key, _HEAD + _encode_value(change) + _encode_tags(change)


def _encode_value(change: Change) -> bytes:
    value = change.value
    if isinstance(value, int):
        return _INT32.pack(value)
    if isinstance(value, Subscription):
        return b"".join(
            (
                _string(value.instance_id),
                _string(value.rack_id),
                _string(value.client_id),
                _string(value.client_host),
                encode_unsigned(len(value.names) + 1),
                *(_string(name) for name in sorted(value.names)),
                _string(value.regex),
                _INT32.pack(value.rebalance_timeout_ms),
                _string(value.server_assignor),
            )
        )
    if isinstance(value, CurrentAssignment):
        head = _INT32_PAIR_AND_INT8.pack(value.member_epoch, value.previous_epoch, value.state)
        sets = (value.assigned, value.pending_revocation)
        return head + b"".join(_topics(each, value.had_since) for each in sets)
    assert value is not None, "tombstones have no value to encode"
    return _topics(value)


def _encode_tags(change: Change) -> bytes:
    classic = change.value.classic if isinstance(change.value, Subscription) else None
    if classic is None:
        return _NO_TAGS
    parts = [
        _PRESENT,
        _INT32.pack(classic.session_timeout_ms),
        encode_unsigned(len(classic.protocols) + 1),
    ]
    for name, metadata in classic.protocols:
        parts += (_string(name), encode_unsigned(len(metadata) + 1), metadata, _NO_TAGS)
    body = b"".join((*parts, _NO_TAGS))
    return _ONE_TAG + encode_unsigned(_CLASSIC_TAG) + encode_unsigned(len(body)) + body


def _old_string(text: str) -> bytes:
    data = text.encode()
    return _INT16.pack(len(data)) + data


def _string(text: str | None) -> bytes:
    if text is None:
        return _NULL
    data = text.encode()
    return encode_unsigned(len(data) + 1) + data


def _topics(
    partitions: Iterable[Partition], since: Callable[[Partition], int | None] | None = None
) -> bytes:
    """The partitions by topic; with `since`, the epochs in which they were assigned."""
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(partitions):
        by_topic.setdefault(topic_id, []).append(index)
    parts = [encode_unsigned(len(by_topic) + 1)]
    for topic_id, indexes in by_topic.items():
        parts += (topic_id, _int32s(indexes))
        if since is None:
            parts.append(_NO_TAGS)
        else:
            epochs = _int32s([since((topic_id, index)) or JOIN_EPOCH for index in indexes])
            parts += (_ONE_TAG, encode_unsigned(_SINCE_TAG), encode_unsigned(len(epochs)), epochs)
    return b"".join(parts)


def _int32s(numbers: Sequence[int]) -> bytes:
    return encode_unsigned(len(numbers) + 1) + struct.pack(f">{len(numbers)}i", *numbers)


# -- decoding ----------------------------------------------------------------------------------


def is_consumer_key(key: bytes) -> bool:
    """Whether a record is of a kind that came after classic groups."""
    return len(key) >= _INT16.size and int(_INT16.unpack_from(key)[0]) >= ChangeKind.GROUP_EPOCH


def decode_consumer_key(key: bytes) -> ConsumerKey | None:
    """What a record is about; None when it is a kind that we derive ourselves.

    Raises:
        UnknownRecord: another kind, or torn.
    """
    reader = RecordReader(key)
    number = reader.int16()
    if number in DERIVED_KINDS:
        return None
    try:
        kind = ChangeKind(number)
    except ValueError as error:
        raise UnknownRecord(f"record key version {number} in the offsets topic") from error
    group_id = reader.string()
    return ConsumerKey(kind, group_id, reader.string() if kind in _ABOUT_MEMBERS else None)


def take_record(stored: StoredConsumerGroup, about: ConsumerKey, value: bytes) -> None:
    """Put the newest value of a key where it belongs.

    Raises:
        UnknownRecord: a newer version, or torn.
    """
    reader = RecordReader(value)
    version = reader.int16()
    if version != _VALUE_VERSION:
        raise UnknownRecord(f"value version {version} of {about.kind.name}")
    reader.is_flexible = True
    member_id = about.member_id or ""
    if about.kind is ChangeKind.GROUP_EPOCH:
        stored.epoch = reader.int32()
    elif about.kind is ChangeKind.ASSIGNMENT_EPOCH:
        stored.assignment_epoch = reader.int32()
    elif about.kind is ChangeKind.SUBSCRIPTION:
        stored.subscriptions[member_id] = _subscription(reader)
    elif about.kind is ChangeKind.TARGET:
        stored.targets[member_id] = _partitions(reader)
    else:
        stored.current[member_id] = _current(reader)


def _subscription(reader: RecordReader) -> Subscription:
    said = Subscription(
        instance_id=reader.nullable_string(),
        rack_id=reader.nullable_string(),
        client_id=reader.string(),
        client_host=reader.string(),
        names=frozenset(reader.string() for _ in range(reader.count())),
        regex=reader.nullable_string(),
        rebalance_timeout_ms=reader.int32(),
        server_assignor=reader.nullable_string(),
    )
    for number, data in reader.tagged():
        if number == _CLASSIC_TAG:
            return replace(said, classic=_classic(data))
    return said


def _classic(data: bytes) -> ClassicFacts | None:
    reader = RecordReader(data)
    reader.is_flexible = True
    if reader.int8() < 0:
        return None
    session_timeout_ms = reader.int32()
    protocols = []
    for _ in range(reader.count()):
        protocols.append((reader.string(), reader.blob()))
        reader.tags()
    return ClassicFacts(session_timeout_ms=session_timeout_ms, protocols=tuple(protocols))


def _current(reader: RecordReader) -> CurrentAssignment:
    member_epoch = reader.int32()
    previous_epoch = reader.int32()
    number = reader.int8()
    try:
        state = MemberState(number)
    except ValueError as error:
        raise UnknownRecord(f"member state {number}") from error
    default_epoch = max(member_epoch, JOIN_EPOCH)
    assigned = _epochs(reader, default_epoch)
    pending = _epochs(reader, default_epoch)
    return CurrentAssignment(
        member_epoch=member_epoch,
        previous_epoch=previous_epoch,
        state=state,
        assigned=frozenset(assigned),
        pending_revocation=frozenset(pending),
        since=assigned | pending,
    )


def _epochs(reader: RecordReader, default_epoch: int) -> dict[Partition, int]:
    """Partitions with the epochs in which they were assigned; older brokers do not write these."""
    found: dict[Partition, int] = {}
    for _ in range(reader.count()):
        topic_id = reader.uuid()
        indexes = [reader.int32() for _ in range(reader.count())]
        epochs = [default_epoch] * len(indexes)
        for number, data in reader.tagged():
            if number == _SINCE_TAG:
                inner = RecordReader(data)
                inner.is_flexible = True
                told = [inner.int32() for _ in range(inner.count())]
                epochs = told if len(told) == len(indexes) else epochs
        found.update(
            ((topic_id, index), epoch) for index, epoch in zip(indexes, epochs, strict=True)
        )
    return found


def _partitions(reader: RecordReader) -> Partitions:
    return frozenset(_epochs(reader, JOIN_EPOCH))

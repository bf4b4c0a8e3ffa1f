"""The bytes of `__transaction_state`: one key and one value, both ways.

Owns the layout shared with Kafka's brokers and tools. All integers big-endian.

```
 key    int16 0 | transactional id string
 value  int16 version, 0:
        producer id int64 | epoch int16 | timeout ms int32 | status int8
        | partitions array? of (topic string, array of int32)   null when there is no transaction
        | last update ms int64 | start ms int64
 value  version 1: the same, flexible; tags 0 previous producer id, 1 next producer id,
        2 transaction version of the client
```

We write version 1 for producers of transaction version 2 and version 0 for the others, like Kafka;
we read both. The previous epoch of a retry is the one before the stored one, or the last but one
of the previous producer id.

Source: `TransactionLogKey/Value.json`. Read next: `broker.transactions.state`.
"""

from __future__ import annotations

import struct
from typing import Final

from broker.groups.offset_records import RecordReader, UnknownRecord
from broker.transactions.state import (
    BUMPING_VERSION,
    EPOCH_MAX,
    TopicPartition,
    TxnSnapshot,
    TxnState,
)
from protocol.records.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from protocol.varint import encode_unsigned

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_HEAD = struct.Struct(">hqhib")
_TIMES = struct.Struct(">qq")

_INT64 = struct.Struct(">q")

_KEY_VERSION: Final = 0
_VALUE_VERSION: Final = 0
_FLEXIBLE_VERSION: Final = 1
_NULL_ARRAY: Final = -1
_NULL: Final = b"\x00"
_NO_TAGS: Final = b"\x00"
_TAG_PREVIOUS_ID: Final = 0
_TAG_NEXT_ID: Final = 1
_TAG_CLIENT_VERSION: Final = 2


def encode_key(transactional_id: str) -> bytes:
    """The key under which a transactional id is kept."""
    return _INT16.pack(_KEY_VERSION) + _string(transactional_id)


def encode_value(snapshot: TxnSnapshot) -> bytes:
    """The value: version 1 for a producer of transaction version 2, else version 0."""
    if snapshot.client_version >= BUMPING_VERSION:
        return _encode_flexible(snapshot)
    head = _HEAD.pack(
        _VALUE_VERSION,
        snapshot.producer_id,
        snapshot.producer_epoch,
        snapshot.timeout_ms,
        snapshot.state,
    )
    times = _TIMES.pack(snapshot.updated_ms, snapshot.started_ms)
    if snapshot.state is TxnState.EMPTY:
        return head + _INT32.pack(_NULL_ARRAY) + times
    topics = _by_topic(snapshot)
    parts = [head, _INT32.pack(len(topics))]
    for topic, indexes in topics.items():
        parts.append(_string(topic))
        parts.append(struct.pack(f">i{len(indexes)}i", len(indexes), *indexes))
    return b"".join([*parts, times])


def _encode_flexible(snapshot: TxnSnapshot) -> bytes:
    parts = [
        _HEAD.pack(
            _FLEXIBLE_VERSION,
            snapshot.producer_id,
            snapshot.producer_epoch,
            snapshot.timeout_ms,
            snapshot.state,
        )
    ]
    topics = _by_topic(snapshot)
    if snapshot.state is TxnState.EMPTY:
        parts.append(_NULL)
    else:
        parts.append(encode_unsigned(len(topics) + 1))
        for topic, indexes in topics.items():
            name = topic.encode()
            parts += (encode_unsigned(len(name) + 1), name, encode_unsigned(len(indexes) + 1))
            parts += (struct.pack(f">{len(indexes)}i", *indexes), _NO_TAGS)
    parts.append(_TIMES.pack(snapshot.updated_ms, snapshot.started_ms))
    tags = [
        (number, layout.pack(value))
        for number, layout, value, default in (
            (_TAG_PREVIOUS_ID, _INT64, snapshot.last_producer_id, NO_PRODUCER_ID),
            (_TAG_NEXT_ID, _INT64, snapshot.next_producer_id, NO_PRODUCER_ID),
            (_TAG_CLIENT_VERSION, _INT16, snapshot.client_version, 0),
        )
        if value != default
    ]
    parts.append(encode_unsigned(len(tags)))
    for number, data in tags:
        parts += (encode_unsigned(number), encode_unsigned(len(data)), data)
    return b"".join(parts)


def _by_topic(snapshot: TxnSnapshot) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(snapshot.partitions):
        topics.setdefault(topic, []).append(partition)
    return topics


def decode_key(key: bytes) -> str:
    """The transactional id. Raises: UnknownRecord for another version."""
    reader = RecordReader(key)
    version = reader.int16()
    if version != _KEY_VERSION:
        raise UnknownRecord(f"transaction key version {version}")
    return reader.string()


def decode_value(transactional_id: str, value: bytes) -> TxnSnapshot:
    """What is stored of a transactional id. Raises: UnknownRecord for a newer version."""
    reader = RecordReader(value)
    version = reader.int16()
    if not 0 <= version <= _FLEXIBLE_VERSION:
        raise UnknownRecord(f"transaction value version {version}")
    reader.is_flexible = version == _FLEXIBLE_VERSION
    producer_id = reader.int64()
    epoch = reader.int16()
    timeout_ms = reader.int32()
    status = reader.int8()
    partitions: set[TopicPartition] = set()
    for _ in range(reader.count()):
        topic = reader.string()
        partitions.update((topic, reader.int32()) for _ in range(reader.count()))
        reader.tags()
    updated_ms = reader.int64()
    started_ms = reader.int64()
    tags = dict(reader.tagged())
    previous_id = _tag(tags, _TAG_PREVIOUS_ID, _INT64, NO_PRODUCER_ID)
    try:
        state = TxnState(status)
    except ValueError as error:
        raise UnknownRecord(f"transaction status {status}") from error
    return TxnSnapshot(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=epoch,
        last_producer_id=previous_id,
        last_producer_epoch=_previous_epoch(previous_id, producer_id, epoch),
        timeout_ms=timeout_ms,
        state=state,
        partitions=frozenset(partitions),
        started_ms=started_ms,
        updated_ms=updated_ms,
        next_producer_id=_tag(tags, _TAG_NEXT_ID, _INT64, NO_PRODUCER_ID),
        client_version=_tag(tags, _TAG_CLIENT_VERSION, _INT16, 0),
    )


def _previous_epoch(previous_id: int, producer_id: int, epoch: int) -> int:
    """The epoch of the transaction before, which is not stored but follows."""
    if previous_id == NO_PRODUCER_ID:
        return NO_PRODUCER_EPOCH
    return epoch - 1 if previous_id == producer_id else EPOCH_MAX - 1


def _tag(tags: dict[int, bytes], number: int, layout: struct.Struct, default: int) -> int:
    data = tags.get(number)
    if data is None:
        return default
    if len(data) != layout.size:
        raise UnknownRecord(f"tag {number} of {len(data)} bytes")
    return int(layout.unpack(data)[0])


def _string(text: str) -> bytes:
    data = text.encode()
    return _INT16.pack(len(data)) + data

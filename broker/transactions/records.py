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

We write version 0, like Kafka up to 3.9 and 4.x before `transaction.version=2`; we read both.

Source: `TransactionLogKey/Value.json`. Read next: `broker.transactions.state`.
"""

from __future__ import annotations

import struct
from typing import Final

from broker.groups.offset_records import RecordReader, UnknownRecord
from broker.transactions.state import TopicPartition, TxnSnapshot, TxnState

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_HEAD = struct.Struct(">hqhib")
_TIMES = struct.Struct(">qq")

_KEY_VERSION: Final = 0
_VALUE_VERSION: Final = 0
_FLEXIBLE_VERSION: Final = 1
_NULL_ARRAY: Final = -1


def encode_key(transactional_id: str) -> bytes:
    """The key under which a transactional id is kept."""
    return _INT16.pack(_KEY_VERSION) + _string(transactional_id)


def encode_value(snapshot: TxnSnapshot) -> bytes:
    """The value, version 0."""
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
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(snapshot.partitions):
        topics.setdefault(topic, []).append(partition)
    parts = [head, _INT32.pack(len(topics))]
    for topic, indexes in topics.items():
        parts.append(_string(topic))
        parts.append(struct.pack(f">i{len(indexes)}i", len(indexes), *indexes))
    return b"".join([*parts, times])


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
    try:
        state = TxnState(status)
    except ValueError as error:
        raise UnknownRecord(f"transaction status {status}") from error
    return TxnSnapshot(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=epoch,
        timeout_ms=timeout_ms,
        state=state,
        partitions=frozenset(partitions),
        started_ms=started_ms,
        updated_ms=updated_ms,
    )


def _string(text: str) -> bytes:
    data = text.encode()
    return _INT16.pack(len(data)) + data

"""The bytes of `__consumer_offsets`: keys and values, both ways.

Owns the record layouts that Kafka's brokers and tools share, so that an offsets topic can be read
by either; refuses to know logs and groups' behaviour. All integers big-endian; `string` is an
int16 length and UTF-8 (-1 for null), `bytes` an int32 length and data (-1 for null).

```
 key    version 0, 1  offset commit    group string | topic string | partition int32
        version 2     group metadata   group string
 value of an offset commit, after int16 version
        0    offset int64 | metadata string | timestamp int64
        1    offset int64 | metadata string | commit timestamp int64 | expire timestamp int64
        2    offset int64 | metadata string | commit timestamp int64
        3    offset int64 | leader epoch int32 | metadata string | commit timestamp int64
        4    flexible: as 3 with compact strings, tagged fields, topic id in tag 0
 value of group metadata, after int16 version
        0    type string | generation int32 | protocol string? | leader string? | members
        1    members have a rebalance timeout
        2    state timestamp int64 before the members
        3    members have an instance id
        member: id string | instance string? (3) | client id string | client host string
                | rebalance timeout int32 (1) | session timeout int32
                | subscription bytes | assignment bytes
        4    flexible: as 3
```

We write offset values 3 (1 when a client gave a retention of its own) and group values 3, keys
1 and 2, like Kafka 2.1 to 4.x; we read all of the above. A null value is a tombstone.

Source: `OffsetCommitKey/Value.json`, `GroupMetadataKey/Value.json`.
Read next: `broker.groups.offsets`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from broker.groups.values import GroupSnapshot, MemberSnapshot
from protocol.records.layout import NO_LEADER_EPOCH, NO_TIMESTAMP

OFFSET_KEY_VERSION = 1
GROUP_KEY_VERSION = 2

_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_OFFSET_AND_EPOCH = struct.Struct(">hqi")
_VERSION_AND_OFFSET = struct.Struct(">hq")

_OFFSET_VALUE_WITH_EXPIRY = 1
_OFFSET_VALUE = 3
_FLEXIBLE_VALUE = 4
_GROUP_VALUE = 3


class UnknownRecord(ValueError):
    """A key or value of a version that this broker does not know, or too short for its version."""


class OffsetKey(NamedTuple):
    """Whose position in which partition."""

    group_id: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    """Whose metadata."""

    group_id: str


Key: TypeAlias = OffsetKey | GroupKey


class CommittedOffset(NamedTuple):
    """A position a group has reached: `offset` is the next record it wants.

    `expire_timestamp_ms` is set only for clients that gave a retention of their own (OffsetCommit
    v2 to v4); otherwise `NO_TIMESTAMP`.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_TIMESTAMP


class StoredGroup(NamedTuple):
    """A group as found in the log: its snapshot and when it entered that state (ms)."""

    snapshot: GroupSnapshot
    state_timestamp_ms: int


# -- encoding ----------------------------------------------------------------------------------


def encode_offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """The key of a group's position in one partition."""
    return (
        _INT16.pack(OFFSET_KEY_VERSION)
        + _string(group_id)
        + _string(topic)
        + _INT32.pack(partition)
    )


def encode_offset_value(committed: CommittedOffset) -> bytes:
    """The value of a position; version 1 if it carries an expiry of its own, else 3."""
    metadata = _string(committed.metadata)
    timestamp = _INT64.pack(committed.commit_timestamp_ms)
    if committed.expire_timestamp_ms != NO_TIMESTAMP:
        head = _VERSION_AND_OFFSET.pack(_OFFSET_VALUE_WITH_EXPIRY, committed.offset)
        return head + metadata + timestamp + _INT64.pack(committed.expire_timestamp_ms)
    head = _OFFSET_AND_EPOCH.pack(_OFFSET_VALUE, committed.offset, committed.leader_epoch)
    return head + metadata + timestamp


def encode_group_key(group_id: str) -> bytes:
    """The key of a group's metadata."""
    return _INT16.pack(GROUP_KEY_VERSION) + _string(group_id)


def encode_group_value(snapshot: GroupSnapshot, state_timestamp_ms: int) -> bytes:
    """The value of a group's metadata, version 3."""
    parts = [
        _INT16.pack(_GROUP_VALUE),
        _string(snapshot.protocol_type),
        _INT32.pack(snapshot.generation_id),
        _string(snapshot.protocol_name),
        _string(snapshot.leader_id),
        _INT64.pack(state_timestamp_ms),
        _INT32.pack(len(snapshot.members)),
    ]
    for member in snapshot.members:
        parts += (
            _string(member.member_id),
            _string(member.group_instance_id),
            _string(member.client_id),
            _string(member.client_host),
            _INT32.pack(member.rebalance_timeout_ms),
            _INT32.pack(member.session_timeout_ms),
            _bytes(member.subscription),
            _bytes(member.assignment),
        )
    return b"".join(parts)


def _string(text: str | None) -> bytes:
    if text is None:
        return _INT16.pack(-1)
    data = text.encode()
    return _INT16.pack(len(data)) + data


def _bytes(data: bytes) -> bytes:
    return _INT32.pack(len(data)) + data


# -- decoding ----------------------------------------------------------------------------------


def decode_key(key: bytes) -> Key:
    """What a record is about.

    Raises:
        UnknownRecord: another kind of record (KIP-848 groups use versions 3 and up), or torn.
    """
    reader = RecordReader(key)
    version = reader.int16()
    if version <= OFFSET_KEY_VERSION:
        return OffsetKey(reader.string(), reader.string(), reader.int32())
    if version == GROUP_KEY_VERSION:
        return GroupKey(reader.string())
    raise UnknownRecord(f"record key version {version} in the offsets topic")


def decode_offset_value(value: bytes) -> CommittedOffset:
    """A group's position, from any version.

    Raises:
        UnknownRecord: a newer version, or torn.
    """
    reader = RecordReader(value)
    version = reader.int16()
    if not 0 <= version <= _FLEXIBLE_VALUE:
        raise UnknownRecord(f"offset value version {version}")
    reader.is_flexible = version >= _FLEXIBLE_VALUE
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= _OFFSET_VALUE else NO_LEADER_EPOCH
    metadata = reader.string()
    timestamp_ms = reader.int64()
    expire_ms = reader.int64() if version == _OFFSET_VALUE_WITH_EXPIRY else NO_TIMESTAMP
    return CommittedOffset(offset, leader_epoch, metadata, timestamp_ms, expire_ms)


def decode_group_value(group_id: str, value: bytes) -> StoredGroup:
    """A group's metadata, from any version.

    Raises:
        UnknownRecord: a newer version, or torn.
    """
    reader = RecordReader(value)
    version = reader.int16()
    if not 0 <= version <= _FLEXIBLE_VALUE:
        raise UnknownRecord(f"group metadata value version {version}")
    reader.is_flexible = version >= _FLEXIBLE_VALUE
    protocol_type = reader.string()
    generation_id = reader.int32()
    protocol_name = reader.nullable_string()
    leader_id = reader.nullable_string()
    state_timestamp_ms = reader.int64() if version >= 2 else NO_TIMESTAMP
    members = tuple(_decode_member(reader, version) for _ in range(reader.count()))
    snapshot = GroupSnapshot(
        group_id=group_id,
        protocol_type=protocol_type,
        generation_id=generation_id,
        protocol_name=protocol_name,
        leader_id=leader_id,
        members=members,
    )
    return StoredGroup(snapshot, state_timestamp_ms)


def _decode_member(reader: RecordReader, version: int) -> MemberSnapshot:
    member_id = reader.string()
    group_instance_id = reader.nullable_string() if version >= 3 else None
    client_id = reader.string()
    client_host = reader.string()
    rebalance_timeout_ms = reader.int32() if version >= 1 else -1
    session_timeout_ms = reader.int32()
    member = MemberSnapshot(
        member_id=member_id,
        group_instance_id=group_instance_id,
        client_id=client_id,
        client_host=client_host,
        rebalance_timeout_ms=rebalance_timeout_ms if version >= 1 else session_timeout_ms,
        session_timeout_ms=session_timeout_ms,
        subscription=reader.blob(),
        assignment=reader.blob(),
    )
    reader.tags()
    return member


class RecordReader:
    """A cursor over one key or value; every read past its end is an `UnknownRecord`."""

    __slots__ = ("_data", "_position", "is_flexible")

    def __init__(self, data: bytes) -> None:
        """Start at the first byte, in the old encoding until `is_flexible` is set."""
        self._data = data
        self._position = 0
        self.is_flexible = False

    def int8(self) -> int:
        """The next signed byte."""
        return self._unpack(_INT8)

    def int16(self) -> int:
        """The next two bytes."""
        return self._unpack(_INT16)

    def int32(self) -> int:
        """The next four bytes."""
        return self._unpack(_INT32)

    def int64(self) -> int:
        """The next eight bytes."""
        return self._unpack(_INT64)

    def count(self) -> int:
        """An array's length; a null array is empty."""
        count = self._uvarint() - 1 if self.is_flexible else self.int32()
        if count > len(self._data) - self._position:
            raise UnknownRecord(f"{count} elements in {len(self._data)} bytes")
        return max(count, 0)

    def string(self) -> str:
        """A string; null counts as empty."""
        return self.nullable_string() or ""

    def nullable_string(self) -> str | None:
        """A string or null."""
        length = self._uvarint() - 1 if self.is_flexible else self.int16()
        if length < 0:
            return None
        try:
            return self._take(length).decode()
        except UnicodeDecodeError as error:
            raise UnknownRecord("a string that is not UTF-8") from error

    def blob(self) -> bytes:
        """Opaque bytes; null counts as empty."""
        length = self._uvarint() - 1 if self.is_flexible else self.int32()
        return self._take(max(length, 0))

    def uuid(self) -> bytes:
        """The next sixteen bytes."""
        return self._take(16)

    def tags(self) -> None:
        """Skip a struct's tagged fields."""
        for _ in self.tagged():
            pass

    def tagged(self) -> Iterator[tuple[int, bytes]]:
        """A struct's tagged fields: number and undecoded value."""
        if not self.is_flexible:
            return
        for _ in range(self._uvarint()):
            number = self._uvarint()
            yield number, self._take(self._uvarint())

    def _uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def _unpack(self, layout: struct.Struct) -> int:
        value: int = layout.unpack(self._take(layout.size))[0]
        return value

    def _take(self, size: int) -> bytes:
        end = self._position + size
        if end > len(self._data):
            raise UnknownRecord(f"a record of {len(self._data)} bytes ends early")
        data = self._data[self._position : end]
        self._position = end
        return data

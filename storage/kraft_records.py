"""Records of Kafka's metadata log: the few kinds that say which topics there are, both directions.

Owns their bytes; refuses to know files and what the records add up to (`storage.kraft_metadata`).
A record's value is a frame version, an API key and a version, each an unsigned varint, followed by
a message in Kafka's flexible format (compact lengths, a section of tagged fields at its end)::

    01 02 00 | 06 "topic" | 16 bytes topic id | 00          TopicRecord, version 0

| key | record                | what it says                                                   |
|-----|-----------------------|----------------------------------------------------------------|
| 2   | TopicRecord           | a name has this id                                             |
| 3   | PartitionRecord       | the id has this partition, on these nodes                      |
| 4   | ConfigRecord          | a setting of a topic (type 2) or broker (type 4), null removes |
| 5   | PartitionChangeRecord | replicas, leader or epoch changed; read for its replicas only  |
| 9   | RemoveTopicRecord     | the id is gone, with its partitions and settings               |
| 12  | FeatureLevelRecord    | the format of all this (``metadata.version``), other features  |
| 15  | ProducerIdsRecord     | producer ids below this one have been given out                |
| 23+ | Begin, End, Abort     | records in between count together or not at all (KIP-868)      |

All other kinds (users, quotas, ACLs, nodes) come back as `OtherRecord`, so that a caller can say
what it leaves behind. Decoding is bounded by the value's own bytes.

Source: KIP-631, KIP-868; Kafka ``MetadataRecordSerde`` and its message specifications.
Read next: `storage.kraft_metadata`.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeAlias

from protocol.varint import decode_unsigned, encode_unsigned

RESOURCE_TOPIC: Final = 2
RESOURCE_BROKER: Final = 4

METADATA_VERSION_FEATURE: Final = "metadata.version"

_FRAME_VERSION: Final = 1
_NO_TAGS: Final = b"\x00"
_UUID_BYTES: Final = 16
_TAG_OF_REPLICAS: Final = 2
_INT8: Final = struct.Struct(">b")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")


class _Kind(IntEnum):
    """The API keys of the records that are understood."""

    TOPIC = 2
    PARTITION = 3
    CONFIG = 4
    PARTITION_CHANGE = 5
    REMOVE_TOPIC = 9
    FEATURE_LEVEL = 12
    PRODUCER_IDS = 15
    BEGIN_TRANSACTION = 23
    END_TRANSACTION = 24
    ABORT_TRANSACTION = 25


OTHER_KINDS: Final[Mapping[int, str]] = {
    10: "delegation tokens",
    11: "SCRAM users",
    14: "client quotas",
    18: "ACLs",
}
"""Keys of records whose loss a user would notice, with the word for them."""


class CorruptMetadata(Exception):
    """A record is not what its kind and version say; the sentence tells which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecord:
    """A topic has come into being; `topic_id` is 16 bytes."""

    name: str
    topic_id: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRecord:
    """A partition has come into being on the nodes `replicas`, the first one preferred."""

    topic_id: bytes
    partition: int
    replicas: tuple[int, ...]
    leader_epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChangeRecord:
    """A partition is on other nodes now, unless `replicas` is None."""

    topic_id: bytes
    partition: int
    replicas: tuple[int, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRecord:
    """A setting of one topic or broker; a broker named "" stands for all. None removes it."""

    resource_type: int
    resource_name: str
    name: str
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveTopicRecord:
    """A topic is gone."""

    topic_id: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureLevelRecord:
    """A feature of the cluster is at this level; 0 is off."""

    name: str
    level: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdsRecord:
    """The producer ids below `next_producer_id` are taken; the node is who asked last."""

    node_id: int
    next_producer_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionRecord:
    """A transaction of the metadata log begins, or ends with its records kept or dropped."""

    begins: bool
    keeps: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherRecord:
    """A record of a kind that nothing here needs."""

    key: int


MetadataRecord: TypeAlias = (
    TopicRecord
    | PartitionRecord
    | PartitionChangeRecord
    | ConfigRecord
    | RemoveTopicRecord
    | FeatureLevelRecord
    | ProducerIdsRecord
    | TransactionRecord
    | OtherRecord
)


# --- encoding -----------------------------------------------------------------------------------


def encode_topic(record: TopicRecord) -> bytes:
    """The value of a TopicRecord, version 0."""
    return _frame(_Kind.TOPIC, 0) + _string(record.name) + record.topic_id + _NO_TAGS


def encode_partition(record: PartitionRecord, *, directory_id: bytes) -> bytes:
    """The value of a PartitionRecord, version 1, of a partition that one node has and leads.

    `directory_id` names the node's log directory (KIP-858).
    """
    (node_id,) = record.replicas
    node = _int32_array((node_id,))
    nobody = _int32_array(())
    return b"".join(
        (
            _frame(_Kind.PARTITION, 1),
            _INT32.pack(record.partition),
            record.topic_id,
            node,  # replicas
            node,  # in sync
            nobody,  # being removed
            nobody,  # being added
            _INT32.pack(node_id),
            _INT32.pack(record.leader_epoch),
            _INT32.pack(0),  # partition epoch
            encode_unsigned(2) + directory_id,
            _NO_TAGS,
        )
    )


def encode_config(record: ConfigRecord) -> bytes:
    """The value of a ConfigRecord, version 0."""
    return b"".join(
        (
            _frame(_Kind.CONFIG, 0),
            _INT8.pack(record.resource_type),
            _string(record.resource_name),
            _string(record.name),
            encode_unsigned(0) if record.value is None else _string(record.value),
            _NO_TAGS,
        )
    )


def encode_feature_level(record: FeatureLevelRecord) -> bytes:
    """The value of a FeatureLevelRecord, version 0."""
    return (
        _frame(_Kind.FEATURE_LEVEL, 0) + _string(record.name) + _INT16.pack(record.level) + _NO_TAGS
    )


def encode_producer_ids(record: ProducerIdsRecord) -> bytes:
    """The value of a ProducerIdsRecord, version 0, of a broker whose epoch is not known."""
    ids = _INT32.pack(record.node_id) + _INT64.pack(-1) + _INT64.pack(record.next_producer_id)
    return _frame(_Kind.PRODUCER_IDS, 0) + ids + _NO_TAGS


def _frame(key: int, version: int) -> bytes:
    return encode_unsigned(_FRAME_VERSION) + encode_unsigned(key) + encode_unsigned(version)


def _string(text: str) -> bytes:
    encoded = text.encode()
    return encode_unsigned(len(encoded) + 1) + encoded


def _int32_array(numbers: tuple[int, ...]) -> bytes:
    return encode_unsigned(len(numbers) + 1) + b"".join(_INT32.pack(n) for n in numbers)


# --- decoding -----------------------------------------------------------------------------------


def decode(value: bytes) -> MetadataRecord:
    """What a record of the metadata log says.

    Raises:
        CorruptMetadata: another frame, or fewer bytes than its fields need.
    """
    reader = _Reader(value)
    try:
        frame = reader.unsigned()
        if frame != _FRAME_VERSION:
            raise CorruptMetadata(f"expected a record frame of version 1, found {frame}")
        key = reader.unsigned()
        reader.unsigned()  # The fields read below stand first in all versions so far.
        return _decode_fields(key, reader)
    except (struct.error, IndexError, ValueError) as error:
        raise CorruptMetadata(f"a metadata record ends early: {error}") from None


def _decode_fields(key: int, reader: "_Reader") -> MetadataRecord:
    match key:
        case _Kind.TOPIC:
            return TopicRecord(name=reader.string() or "", topic_id=reader.uuid())
        case _Kind.PARTITION:
            return _decode_partition(reader)
        case _Kind.CONFIG:
            return ConfigRecord(
                resource_type=reader.number(_INT8),
                resource_name=reader.string() or "",
                name=reader.string() or "",
                value=reader.string(),
            )
        case _Kind.PARTITION_CHANGE:
            return _decode_partition_change(reader)
        case _Kind.REMOVE_TOPIC:
            return RemoveTopicRecord(topic_id=reader.uuid())
        case _Kind.FEATURE_LEVEL:
            return FeatureLevelRecord(name=reader.string() or "", level=reader.number(_INT16))
        case _Kind.PRODUCER_IDS:
            node_id, _ = reader.number(_INT32), reader.number(_INT64)
            return ProducerIdsRecord(node_id=node_id, next_producer_id=reader.number(_INT64))
        case _Kind.BEGIN_TRANSACTION | _Kind.END_TRANSACTION | _Kind.ABORT_TRANSACTION:
            return TransactionRecord(
                begins=key == _Kind.BEGIN_TRANSACTION, keeps=key == _Kind.END_TRANSACTION
            )
    return OtherRecord(key=key)


def _decode_partition(reader: "_Reader") -> PartitionRecord:
    partition = reader.number(_INT32)
    topic_id = reader.uuid()
    replicas = reader.int32_array() or ()
    for _ in range(3):  # in sync, being removed, being added
        reader.int32_array()
    reader.number(_INT32)  # leader
    return PartitionRecord(
        topic_id=topic_id,
        partition=partition,
        replicas=replicas,
        leader_epoch=reader.number(_INT32),
    )


def _decode_partition_change(reader: "_Reader") -> PartitionChangeRecord:
    partition = reader.number(_INT32)
    topic_id = reader.uuid()
    replicas = None
    for _ in range(reader.unsigned()):
        tag, size = reader.unsigned(), reader.unsigned()
        content = _Reader(reader.take(size))
        if tag == _TAG_OF_REPLICAS:
            replicas = content.int32_array()
    return PartitionChangeRecord(topic_id=topic_id, partition=partition, replicas=replicas)


class _Reader:
    """A position in the bytes of one record."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._position = 0

    def unsigned(self) -> int:
        number, self._position = decode_unsigned(self._content, self._position)
        return number

    def take(self, size: int) -> bytes:
        end = self._position + size
        if end > len(self._content):
            raise IndexError(f"{size} bytes at {self._position} of {len(self._content)}")
        taken = self._content[self._position : end]
        self._position = end
        return taken

    def number(self, form: struct.Struct) -> int:
        (number,) = form.unpack(self.take(form.size))
        assert isinstance(number, int)
        return number

    def string(self) -> str | None:
        size = self.unsigned()
        return self.take(size - 1).decode() if size else None

    def uuid(self) -> bytes:
        return self.take(_UUID_BYTES)

    def int32_array(self) -> tuple[int, ...] | None:
        count = self.unsigned()
        if count == 0:
            return None
        content = self.take((count - 1) * _INT32.size)
        return tuple(number for (number,) in _INT32.iter_unpack(content))

"""Kafka's cluster metadata as a directory: read from ``__cluster_metadata-0``, or written as one.

In KRaft mode Apache Kafka keeps topics, their ids and all settings in a log of its own. Reading
combines the newest snapshot and the log after it. Writing makes a directory that holds one snapshot
and no log, like that of a node that has just received all metadata from another one. The whole
state appears at once, so Kafka never sees a partition directory before its topic (it would set such
a directory aside as a stray). An interrupted start finds the same state again.

::

    __cluster_metadata-0/
        00000000000000000042-0000000001.checkpoint    everything below offset 42, of epoch 1
        00000000000000000042.log                      later changes (Kafka writes it)

A snapshot is a file of batches: one control batch that opens it, data batches, one control batch
that closes it. The format written is that of Kafka 3.9 (``metadata.version`` 21), because 3.9 and
every 4.x read it. Newer versions require state that one node without replicas does not have.
Raising the version is one command of Kafka's own tools (docs/adr/0012).

Refuses to know partition directories and Tidelog's journal: `storage.kafka.kafka_import` and
`storage.kafka.kafka_export` know them.

Source: KIP-630, KIP-631, KIP-858; Kafka ``KafkaRaftLog``, ``RecordsSnapshotWriter``.
"""

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Final

from protocol.errors import RecordsError
from protocol.records.builder import build_batch
from protocol.records.layout import CONTROL_KEY, LOG_OVERHEAD, SIZE_AT, ControlType
from protocol.records.record import Record, control_type
from protocol.records.scan import Entry, Stop, iter_records, scan_checked
from protocol.stored import codec, kraft
from protocol.stored.kraft import RemovedSecurityRecord, SecurityRecord
from storage.disk.file_names import parsed_names
from storage.disk.files import Files
from storage.kafka.kraft_records import (
    METADATA_VERSION_FEATURE,
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
    AnyRecord,
    CorruptMetadata,
    TransactionRecord,
    decode,
    encode,
)
from values.dataclasses import dataclass

METADATA_DIRECTORY: Final = "__cluster_metadata-0"
WRITTEN_METADATA_VERSION: Final = 21
"""The level that Kafka calls 3.9-IV0."""

_WRITTEN_EPOCH: Final = 1
_RECORDS_PER_BATCH: Final = 1000
_SNAPSHOT = re.compile(r"(?P<end>\d{20})-(?P<epoch>\d{10})\.checkpoint")


@dataclass(slots=True, kw_only=True)
class KraftTopic:
    """A topic as it is in the metadata; `partitions` maps a number to its record."""

    name: str
    topic_id: bytes
    partitions: dict[int, kraft.PartitionRecord] = field(default_factory=dict)


@dataclass(slots=True)
class ClusterMetadata:
    """The state that the records add up to.

    `broker_settings` are by node; the node "" means all nodes. `others` counts the records that are
    not imported, by the word for their kind.
    """

    topics: dict[str, KraftTopic] = field(default_factory=dict)
    topic_settings: dict[str, dict[str, str]] = field(default_factory=dict)
    broker_settings: dict[str, dict[str, str]] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    next_producer_id: int = 0
    others: Counter[str] = field(default_factory=Counter)
    _by_id: dict[bytes, KraftTopic] = field(default_factory=dict)
    _security: dict[tuple[object, ...], SecurityRecord] = field(default_factory=dict)
    _pending: list[AnyRecord] | None = None

    @property
    def security(self) -> list[SecurityRecord]:
        """The users, rules, limits and tokens in force, in the order in which they were made."""
        return list(self._security.values())

    def apply(self, record: AnyRecord) -> None:
        """Apply the next record; inside a transaction, once that is committed."""
        if isinstance(record, TransactionRecord):
            pending, self._pending = self._pending, [] if record.begins else None
            if record.keeps:
                for waiting in pending or ():
                    self._apply(waiting)
        elif self._pending is not None:
            self._pending.append(record)
        else:
            self._apply(record)

    def _apply(self, record: AnyRecord) -> None:
        match record:
            case kraft.TopicRecord():
                topic = KraftTopic(name=record.name, topic_id=record.topic_id)
                self.topics[record.name] = self._by_id[record.topic_id] = topic
            case kraft.PartitionRecord():
                self._topic_of(record.topic_id).partitions[record.partition_id] = record
            case kraft.PartitionChangeRecord():
                self._move(record)
            case kraft.RemoveTopicRecord():
                topic = self._topic_of(record.topic_id)
                del self._by_id[record.topic_id], self.topics[topic.name]
                self.topic_settings.pop(topic.name, None)
            case kraft.ConfigRecord():
                self._set(record)
            case kraft.FeatureLevelRecord():
                self.features[record.name] = record.feature_level
            case kraft.ProducerIdsRecord():
                self.next_producer_id = max(self.next_producer_id, record.next_producer_id)
            case SecurityRecord() | RemovedSecurityRecord():
                self._secure(record)

    def _secure(self, record: SecurityRecord | RemovedSecurityRecord) -> None:
        """Put a user, rule, limit or token in force, or take it out of force."""
        match record:
            case kraft.UserScramCredentialRecord() | kraft.RemoveUserScramCredentialRecord():
                key: tuple[object, ...] = ("user", record.mechanism, record.name)
            case kraft.AccessControlEntryRecord() | kraft.RemoveAccessControlEntryRecord():
                key = ("rule", record.id)
            case kraft.DelegationTokenRecord() | kraft.RemoveDelegationTokenRecord():
                key = ("token", record.token_id)
            case kraft.ClientQuotaRecord():
                entity = frozenset((part.entity_type, part.entity_name) for part in record.entity)
                key = ("limit", entity, record.key)
        if isinstance(record, RemovedSecurityRecord) or (
            isinstance(record, kraft.ClientQuotaRecord) and record.remove
        ):
            self._security.pop(key, None)
        else:
            self._security[key] = record

    def _topic_of(self, topic_id: bytes) -> KraftTopic:
        topic = self._by_id.get(topic_id)
        if topic is None:
            raise CorruptMetadata(f"a record is about topic id {topic_id.hex()}, which is unknown")
        return topic

    def _move(self, change: kraft.PartitionChangeRecord) -> None:
        partitions = self._topic_of(change.topic_id).partitions
        number = change.partition_id
        if number not in partitions:
            raise CorruptMetadata(f"a change is about partition {number}, unknown so far")
        if change.replicas is not None:
            partitions[number] = replace(partitions[number], replicas=change.replicas)

    def _set(self, record: kraft.ConfigRecord) -> None:
        by_type = {RESOURCE_TOPIC: self.topic_settings, RESOURCE_BROKER: self.broker_settings}
        resources = by_type.get(record.resource_type)
        if resources is None:
            self.others["settings of groups and client metrics"] += 1
            return
        settings = resources.setdefault(record.resource_name, {})
        if record.value is None:
            settings.pop(record.name, None)
        else:
            settings[record.name] = record.value


# --- reading ------------------------------------------------------------------------------------


def read_cluster_metadata(directory: str, files: Files) -> ClusterMetadata:
    """The metadata in a ``__cluster_metadata-0`` directory; the directory is not changed.

    Bytes after the last sound batch of the log are ignored: an unfinished write.

    Raises:
        CorruptMetadata: a sound batch has content that no Kafka writes, the snapshot is damaged,
            or records are missing between it and the end of the log. What is missing may forbid
            something, so that the rest alone would allow it.
        OSError: it could not be read.
    """
    metadata = ClusterMetadata()
    names = files.list_directory(directory)
    snapshots = sorted(name for name in names if _SNAPSHOT.fullmatch(name))
    position = 0
    if snapshots:
        match = _SNAPSHOT.fullmatch(snapshots[-1])
        assert match is not None
        position = int(match["end"])
        _apply_snapshot(metadata, f"{directory}/{snapshots[-1]}", files)
    for segment in sorted(parsed_names(names)):
        if segment.is_log:
            position = _apply_segment(metadata, f"{directory}/{segment.format()}", files, position)
    return metadata


def _apply_snapshot(metadata: ClusterMetadata, path: str, files: Files) -> None:
    content = files.read_all(path)
    found = scan_checked(content)
    last = None
    for entry in found.entries:
        if entry.is_control:
            last = control_type(next(_records(content, entry, path)))
        else:
            _apply_entry(metadata, content, entry, path)
    if found.stop is not Stop.END or last is not ControlType.SNAPSHOT_FOOTER:
        raise CorruptMetadata(f"{path} is damaged at byte {found.end_position}")


def _apply_segment(metadata: ClusterMetadata, path: str, files: Files, position: int) -> int:
    """Apply what the segment has from offset `position` on; the offset after it."""
    content = files.read_all(path)
    found = scan_checked(content)
    for entry in found.entries:
        if entry.last_offset < position:
            continue
        if entry.base_offset > position:
            raise CorruptMetadata(f"{path} lacks the records from offset {position} on")
        if not entry.is_control:
            _apply_entry(metadata, content, entry, path, position)
        position = entry.last_offset + 1
    if found.stop is Stop.CORRUPT and _has_batch_after(content, found.end_position):
        raise CorruptMetadata(f"{path} is damaged at byte {found.end_position}")
    return position


def _has_batch_after(content: bytes, position: int) -> bool:
    """Whether a sound batch follows the damaged one at `position`, going by that one's size."""
    following = position + LOG_OVERHEAD
    following += int.from_bytes(content[position + SIZE_AT : following], "big")
    return bool(scan_checked(content, min(following, len(content))).entries)


def _apply_entry(
    metadata: ClusterMetadata, content: bytes, entry: Entry, path: str, start_offset: int = 0
) -> None:
    for record in _records(content, entry, path):
        if record.offset >= start_offset and record.value is not None:
            metadata.apply(decode(bytes(record.value)))


def _records(content: bytes, entry: Entry, path: str) -> Iterator[Record]:
    try:
        yield from iter_records(content, entry.position)
    except RecordsError as error:
        raise CorruptMetadata(f"{path} at byte {entry.position}: {error}") from None


# --- writing ------------------------------------------------------------------------------------


def snapshot_records(
    *,
    node_id: int,
    directory_id: bytes,
    topics: Iterable[KraftTopic],
    topic_settings: Mapping[str, Mapping[str, str]],
    broker_settings: Mapping[str, str],
    next_producer_id: int,
    security: Iterable[SecurityRecord] = (),
) -> list[bytes]:
    """The values of all records that describe one node with everything on it.

    Every partition has to name `node_id` as its only replica.
    """
    version = WRITTEN_METADATA_VERSION
    values = [
        encode(kraft.FeatureLevelRecord(name=METADATA_VERSION_FEATURE, feature_level=version))
    ]
    for topic in topics:
        values.append(encode(kraft.TopicRecord(name=topic.name, topic_id=topic.topic_id)))
        values += [
            encode(_led_by(node_id, partition, directory_id))
            for _, partition in sorted(topic.partitions.items())
        ]
    for name, settings in topic_settings.items():
        values += _configs(RESOURCE_TOPIC, name, settings)
    values += _configs(RESOURCE_BROKER, "", broker_settings)
    if next_producer_id:
        ids = kraft.ProducerIdsRecord(broker_id=node_id, next_producer_id=next_producer_id)
        values.append(encode(ids))
    values += map(encode, security)
    return values


def _led_by(
    node_id: int, partition: kraft.PartitionRecord, directory_id: bytes
) -> kraft.PartitionRecord:
    """The partition as its only node has and leads it, in its log directory (KIP-858)."""
    assert partition.replicas == [node_id], f"{partition} is not node {node_id}'s alone"
    return replace(
        partition, isr=[node_id], leader=node_id, partition_epoch=0, directories=[directory_id]
    )


def write_cluster_metadata(
    directory: str, values: Sequence[bytes], files: Files, *, now_ms: int
) -> None:
    """Make `directory` with one snapshot of these records; durable on return.

    Raises:
        OSError: it could not be written, or exists already.
    """
    files.make_directory(directory)
    name = f"{len(values):020d}-{_WRITTEN_EPOCH:010d}.checkpoint"
    files.replace_atomically(f"{directory}/{name}", b"".join(_snapshot(values, now_ms)))
    files.sync_directory(os.path.dirname(directory))


def _snapshot(values: Sequence[bytes], now_ms: int) -> Iterator[bytes]:
    """The batches of a snapshot, its own offsets starting at 0."""
    header = codec.encode(kraft.SnapshotHeader(last_contained_timestamp_ms=now_ms), 0)
    yield _control_batch(0, ControlType.SNAPSHOT_HEADER, header, now_ms)
    offset = 1
    for start in range(0, len(values), _RECORDS_PER_BATCH):
        chunk = values[start : start + _RECORDS_PER_BATCH]
        records = [Record(offset, now_ms, None, value) for value in chunk]
        yield build_batch(records, base_offset=offset, leader_epoch=_WRITTEN_EPOCH)
        offset += len(chunk)
    footer = codec.encode(kraft.SnapshotFooter(), 0)
    yield _control_batch(offset, ControlType.SNAPSHOT_FOOTER, footer, now_ms)


def _control_batch(offset: int, kind: ControlType, value: bytes, now_ms: int) -> bytes:
    record = Record(offset, now_ms, CONTROL_KEY.pack(0, kind), value)
    return build_batch([record], base_offset=offset, is_control=True, leader_epoch=_WRITTEN_EPOCH)


def _configs(kind: int, resource: str, settings: Mapping[str, str]) -> list[bytes]:
    return [
        encode(
            kraft.ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)
        )
        for name, value in sorted(settings.items())
    ]

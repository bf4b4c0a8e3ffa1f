"""A data directory from a bucket, for a machine that has nothing else.

Owns the files that are written and their order. From the bucket's map (`storage.bucket.map`) come
the metadata journal, the directories of partitions, their manifests, leader epochs and producer
snapshots, and the `.log` files of the unsealed tails. Segments that have an object stay there and
are read from it. The directory has no clean-stop marker, so its first start verifies the tails.
Each log begins a new leader epoch at its end: consumers may have seen records that are lost.

`meta.properties` is written last: a directory that was restored in part is refused by a start.
"""

import base64
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import field
from functools import partial
from itertools import pairwise
from typing import Any, Final

from protocol.records.checksums import crc32c
from protocol.records.layout import NO_OFFSET
from storage.bucket.journal import entries_in, entry_key, newest_checkpoint
from storage.bucket.map import CLUSTER, META, BucketState, Key, Piece, parse_key, parse_piece
from storage.directory.metadata import (
    KIND_BROKER_OVERRIDES,
    KIND_PRODUCER_IDS,
    KIND_TOPIC,
    ONLY_KEY,
    Json,
    TopicMetadata,
    parse_topic,
)
from storage.directory.metadata_journal import MetadataJournal
from storage.disk.checkpoints import (
    META_PROPERTIES_FILE,
    PARTITION_METADATA_FILE,
    MetaProperties,
    format_checkpoint,
    format_meta_properties,
    format_partition_metadata,
)
from storage.disk.file_names import (
    LOG_SUFFIX,
    MANIFEST_NAME,
    SNAPSHOT_SUFFIX,
    partition_directory_name,
    segment_file_path,
)
from storage.disk.files import File, Files, sync_file
from storage.errors import ObjectDamaged, StoreFailed
from storage.log.leader_epochs import LEADER_EPOCHS_NAME
from storage.remote.object_store import ObjectStore
from storage.segment.entry_heads import HeadWalk
from storage.segment.facts import RemoteObject
from storage.segment.manifest import format_manifest, parse_remote_lines
from values.dataclasses import dataclass

PRODUCER_IDS_SKIPPED: Final = 1_000_000
"""Producer ids that the lost machine may have assigned after its last entry."""

_KEY_STORE: Final = "ssl.keystore.location"
_KEY_STORE_PARTS: Final = ("ssl.keystore.", "ssl.key.password")

RunAll = Callable[[Iterable[Callable[[], bytes]]], Iterable[bytes]]
"""Makes all calls, in any threads; their results in order."""


@dataclass(slots=True, kw_only=True)
class Restored:
    """What a directory got.

    Attributes:
        topics, partitions, segments: how many; the segments are those in objects.
        tail_bytes: records of unsealed tails.
        empty: topics whose records were never in the bucket.
        key_stores: settings of the lost machine that name key stores which are not here.
    """

    topics: int = 0
    partitions: int = 0
    segments: int = 0
    tail_bytes: int = 0
    empty: list[str]
    key_stores: list[str]


@dataclass(slots=True)
class MappedLog:
    """One log as the map has it.

    Attributes:
        facts: its start, leader epochs and producer snapshot; empty when it is gone.
        segments: the manifest's lines of those that have an object, by base offset.
        pieces: of the unsealed tail, by base offset and position.
    """

    facts: dict[str, Any] = field(default_factory=dict)
    segments: dict[int, str] = field(default_factory=dict)
    pieces: dict[int, dict[int, Piece]] = field(default_factory=dict)

    def take(self, key: Key, value: Any) -> None:
        """Make a change of the map; None removes what the key names."""
        if key.kind == "log":
            self.facts = value or {}
        elif key.kind == "segment":
            if value is None:
                self.segments.pop(key.base_offset, None)
            else:
                self.segments[key.base_offset] = str(value)
        else:
            pieces = self.pieces.setdefault(key.base_offset, {})
            if value is None:
                pieces.pop(key.position, None)
            else:
                pieces[key.position] = parse_piece(value)
            if not pieces:
                del self.pieces[key.base_offset]

    @property
    def bases(self) -> list[int]:
        """The base offsets of all segments that may be needed, in order.

        Of a segment that lies below the start the map may still have the pieces.
        """
        bases = sorted(self.pieces.keys() | self.segments.keys())
        start = self.facts["start"]
        below = {
            base
            for base, following in pairwise(bases)
            if following <= start and base not in self.segments
        }
        return [base for base in bases if base not in below]

    @property
    def unsealed(self) -> list[int]:
        """The base offsets of the segments that a restore makes of pieces, in order."""
        return [base for base in self.bases if base not in self.segments]


def topics_in(state: BucketState) -> list[TopicMetadata]:
    """The topics of the map. Raises StoreFailed."""
    prefix = f"{META}{KIND_TOPIC}/"
    found = []
    for key, document in state.documents.items():
        if key.startswith(prefix):
            topic = parse_topic(key[len(prefix) :], document)
            if topic is None:
                raise StoreFailed(f"the journal of the bucket has {document!r} for {key}")
            found.append(topic)
    return found


def restore(
    state: BucketState,
    store: ObjectStore,
    directory: str,
    files: Files,
    *,
    cluster_id: str,
    directory_id: bytes,
    run_all: RunAll | None = None,
    is_owner: bool = True,
) -> Restored:
    """Write the directory, which is empty; all of it is durable on return.

    Without `is_owner` it is that of a standby, whose logs begin no epoch, and whose metadata is
    not written. Raises StoreFailed, OSError.
    """
    run_all = run_all or run_in_order
    logs = logs_in(state)
    restored = Restored(empty=[], key_stores=[])
    if is_owner:
        restored.key_stores = write_metadata(state, directory, files)
    for topic in topics_in(state):
        restored.topics += 1
        restored.partitions += topic.partitions
        if not any((topic.topic_id, number) in logs for number in range(topic.partitions)):
            restored.empty.append(topic.name)
        for number in range(topic.partitions):
            path = f"{directory}/{partition_directory_name(topic.name, number)}"
            files.make_directory(path)
            _write(
                files,
                f"{path}/{PARTITION_METADATA_FILE}",
                format_partition_metadata(topic.topic_id),
            )
            log = logs.get((topic.topic_id, number))
            if log is not None:
                restored.segments += len(log.segments)
                size = write_log(log, path, store, files, run_all, begins_epoch=is_owner)
                restored.tail_bytes += size
            files.sync_directory(path)
    files.sync_directory(directory)
    cluster = state.documents.get(CLUSTER)
    meta = MetaProperties(
        node_id=int(cluster["node_id"]) if isinstance(cluster, dict) else 0,  # type: ignore[arg-type]
        cluster_id=cluster_id,
        directory_id=directory_id,
    )
    files.replace_atomically(f"{directory}/{META_PROPERTIES_FILE}", format_meta_properties(meta))
    return restored


def logs_in(state: BucketState) -> dict[tuple[bytes, int], MappedLog]:
    """All logs of the map, by topic id and partition."""
    logs: dict[tuple[bytes, int], MappedLog] = {}
    segments: dict[str, dict[int, str]] = {}  # By their keys without the base offset.
    for text, value in state.documents.items():
        head, _, base = text.rpartition("/")
        if head in segments:
            segments[head][int(base)] = str(value)
        elif (key := parse_key(text)) is not None:
            log = logs.setdefault((key.topic_id, key.partition), MappedLog())
            log.take(key, value)
            if key.kind == "segment":
                segments[head] = log.segments
    return logs


def missing_entries(state: BucketState, store: ObjectStore) -> list[int]:
    """The entries without which `restore` would fail half-way. Raises StoreFailed."""
    logs = logs_in(state)
    needed = {
        piece.entry
        for topic in topics_in(state)
        for number in range(topic.partitions)
        if (log := logs.get((topic.topic_id, number))) is not None
        for base in log.unsealed
        for piece in log.pieces[base].values()
    }
    unlisted = sorted(needed - entries_in(store))
    missing = [one for one in unlisted if store.size_of(entry_key(one)) is None]
    # A broker that still writes has deleted what its checkpoint has replaced.
    return [] if newest_checkpoint(store) > state.number else missing


def run_in_order(calls: Iterable[Callable[[], bytes]]) -> Iterable[bytes]:
    """The results of the calls, made one after the other."""
    return [call() for call in calls]


def metadata_in(state: BucketState) -> Iterable[tuple[str, str, Json]]:
    """Kind, key and document of everything that the metadata journal had."""
    for text, document in state.documents.items():
        if text.startswith(META):
            yield (*parse_metadata_key(text), document)


def parse_metadata_key(text: str) -> tuple[str, str]:
    """Kind and key in a key of the map that begins with `META`."""
    kind, _, key = text[len(META) :].partition("/")
    return kind, key


def write_metadata(state: BucketState, directory: str, files: Files) -> list[str]:
    """Write the metadata journal, which the directory lacks. Raises StorageFailed, OSError.

    Key stores that were set at run time, and are no files of this machine, are left out: its own
    settings name its own. The names of these settings are returned.
    """
    journal = MetadataJournal(directory, files)
    kinds: dict[str, dict[str, Json]] = {}
    for kind, key, document in metadata_in(state):
        kinds.setdefault(kind, {})[key] = document
    ids = kinds.get(KIND_PRODUCER_IDS, {}).get(ONLY_KEY)
    if isinstance(ids, int):
        kinds[KIND_PRODUCER_IDS][ONLY_KEY] = ids + PRODUCER_IDS_SKIPPED
    missing: list[str] = []
    for key, document in kinds.get(KIND_BROKER_OVERRIDES, {}).items():
        kept = without_missing_key_stores(KIND_BROKER_OVERRIDES, document, files)
        kinds[KIND_BROKER_OVERRIDES][key] = kept
        if isinstance(document, dict) and isinstance(kept, dict):
            missing += sorted(document.keys() - kept.keys())
    try:
        for kind, documents in kinds.items():
            journal.put_all(kind, documents)
    finally:
        journal.close()
    return missing


def without_missing_key_stores(kind: str, document: Json, files: Files) -> Json:
    """A document without settings that name key stores which are not here, or describe them.

    Those of trust stores stay: a start without one would accept other clients, so it refuses.
    """
    if kind != KIND_BROKER_OVERRIDES or not isinstance(document, dict):
        return document
    prefixes = [
        name.removesuffix(_KEY_STORE)
        for name, path in document.items()
        if name.endswith(_KEY_STORE) and path and not files.exists(str(path))
    ]
    own = tuple(prefix + part for prefix in prefixes for part in _KEY_STORE_PARTS)
    return {name: text for name, text in document.items() if not name.startswith(own)}


def write_log(
    log: MappedLog,
    path: str,
    store: ObjectStore,
    files: Files,
    run_all: RunAll,
    *,
    begins_epoch: bool,
) -> int:
    """The files of one partition; returns the bytes of its tail. Raises StoreFailed, OSError."""
    start = end = log.facts["start"]
    if log.segments:
        end = max(end, parse_remote_lines(log.segments[max(log.segments)])[0].next_offset)
    _write(
        files,
        f"{path}/{MANIFEST_NAME}",
        format_manifest(
            (log.segments[base] for base in sorted(log.segments)),
            start,
            log.facts.get("cleaned", NO_OFFSET),
        ),
    )
    if log.facts["snapshot"] is not None:
        offset, content = log.facts["snapshot"]
        _write(files, segment_file_path(path, offset, SNAPSHOT_SUFFIX), base64.b64decode(content))
    size = 0
    for base in log.unsealed:
        file = files.create(segment_file_path(path, base, LOG_SUFFIX))
        try:
            _write_tail(file, log.pieces[base], store, run_all)
            last = deque(HeadWalk(file, file.size).heads(0), maxlen=1)
            end = max(end, last[0].next_offset) if last else end
            size += file.size
        finally:
            file.close()
    epochs = log.facts["epochs"]
    if begins_epoch:
        # Records after this end may have been seen: the next ones at their offsets are others.
        epochs = [*epochs, [max((epoch for epoch, _ in epochs), default=0) + 1, end]]
    _write(
        files,
        f"{path}/{LEADER_EPOCHS_NAME}",
        format_checkpoint(
            f"{epoch} {offset}" for epoch, offset in _increasing(epochs, below=end + 1)
        ),
    )
    return size


def _increasing(epochs: list[list[int]], *, below: int) -> list[list[int]]:
    """The epochs without those that have no record: each begins above the one before it."""
    kept: list[list[int]] = []
    for epoch, offset in epochs:
        while kept and kept[-1][1] >= offset:
            kept.pop()
        if offset < below:
            kept.append([epoch, offset])
    return kept


def _write_tail(file: File, pieces: dict[int, Piece], store: ObjectStore, run_all: RunAll) -> None:
    ordered = sorted(pieces.items())
    calls = [partial(read_piece, store, piece) for _, piece in ordered]
    for (position, _), data in zip(ordered, run_all(calls), strict=True):
        if position != file.size:
            raise StoreFailed(f"the bucket lacks bytes {file.size} to {position} of {file.path}")
        file.append(data)
    sync_file(file)


def read_piece(store: ObjectStore, piece: Piece) -> bytes:
    """The bytes of a piece. Raises StoreFailed, ObjectDamaged."""
    for _ in range(3):
        data = store.get(entry_key(piece.entry), piece.at, piece.at + piece.size)
        if crc32c(data) == piece.crc:
            return data
    raise ObjectDamaged(f"{entry_key(piece.entry)} is damaged (checksum of a piece)")


def _write(files: Files, path: str, content: bytes) -> None:
    file = files.create(path)
    try:
        if content:
            file.append(content)
        sync_file(file)
    finally:
        file.close()


def objects_in(state: BucketState) -> Iterable[RemoteObject]:
    """All objects of segments that the map names."""
    return (parse_remote_lines(lines)[1] for _, lines in state.keys("segment"))

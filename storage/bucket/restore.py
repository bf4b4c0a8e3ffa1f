"""A data directory from a bucket, for a machine that has nothing else.

Owns the files that are written and their order. From the map of `storage.bucket.journal` come the
metadata journal, the directories of partitions, their manifests, leader epochs and producer
snapshots, and the `.log` files of the unsealed tails. Segments that have an object stay there and
are read from it. The directory has no clean-stop marker, so its first start verifies the tails.
Each log begins a new leader epoch at its end: consumers may have seen records that are lost.

`meta.properties` is written last: a directory that was restored in part is refused by a start.
"""

import base64
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Final

from protocol.records.checksums import crc32c
from storage.bucket.journal import BucketState, Piece, entry_key
from storage.bucket.shipping import CLUSTER, META, parse_piece
from storage.directory.metadata import (
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
from storage.segment.manifest import format_manifest, parse_remote_lines
from storage.segment.remote.object import RemoteObject

PRODUCER_IDS_SKIPPED: Final = 1_000_000
"""Producer ids that the lost machine may have assigned after its last entry."""

RunAll = Callable[[Iterable[Callable[[], bytes]]], Iterable[bytes]]
"""Makes all calls, in any threads; their results in order."""


@dataclass(slots=True, kw_only=True)
class Restored:
    """What a directory got.

    Attributes:
        topics, partitions, segments: how many; the segments are those in objects.
        tail_bytes: records of unsealed tails.
        empty: topics whose records were never in the bucket.
    """

    topics: int = 0
    partitions: int = 0
    segments: int = 0
    tail_bytes: int = 0
    empty: list[str]


@dataclass(slots=True)
class _Log:
    """One log as the map has it."""

    facts: dict[str, Any]
    segments: dict[int, str]
    pieces: dict[int, dict[int, Piece]]


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
) -> Restored:
    """Write the directory, which is empty; all of it is durable on return.

    Raises StoreFailed, OSError.
    """
    run_all = run_all or (lambda calls: [call() for call in calls])
    logs = _logs_in(state)
    restored = Restored(empty=[])
    _write_metadata(state, directory, files)
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
                restored.tail_bytes += _write_log(log, path, store, files, run_all)
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


def _logs_in(state: BucketState) -> dict[tuple[bytes, int], _Log]:
    logs: dict[tuple[bytes, int], _Log] = {}
    for key, value in state.keys("log"):
        logs[key.topic_id, key.partition] = _Log(value, {}, {})
    for key, value in state.keys("segment"):
        logs[key.topic_id, key.partition].segments[key.base_offset] = value
    for key, value in state.keys("tail"):
        log = logs[key.topic_id, key.partition]
        log.pieces.setdefault(key.base_offset, {})[key.position] = parse_piece(value)
    return logs


def _write_metadata(state: BucketState, directory: str, files: Files) -> None:
    journal = MetadataJournal(directory, files)
    kinds: dict[str, dict[str, Json]] = {}
    for text, document in state.documents.items():
        if text.startswith(META):
            kind, _, key = text[len(META) :].partition("/")
            kinds.setdefault(kind, {})[key] = document
    ids = kinds.get(KIND_PRODUCER_IDS, {}).get(ONLY_KEY)
    if isinstance(ids, int):
        kinds[KIND_PRODUCER_IDS][ONLY_KEY] = ids + PRODUCER_IDS_SKIPPED
    try:
        for kind, documents in kinds.items():
            journal.put_all(kind, documents)
    finally:
        journal.close()


def _write_log(log: _Log, path: str, store: ObjectStore, files: Files, run_all: RunAll) -> int:
    """The files of one partition; returns the bytes of its tail."""
    start = end = log.facts["start"]
    if log.segments:
        end = max(end, parse_remote_lines(log.segments[max(log.segments)])[0].next_offset)
    _write(
        files,
        f"{path}/{MANIFEST_NAME}",
        format_manifest((log.segments[base] for base in sorted(log.segments)), start),
    )
    if log.facts["snapshot"] is not None:
        offset, content = log.facts["snapshot"]
        _write(files, segment_file_path(path, offset, SNAPSHOT_SUFFIX), base64.b64decode(content))
    size = 0
    bases = sorted(log.pieces.keys() | log.segments.keys())
    # Of a segment that lies below the start the map may still have the pieces.
    below = {base for base, following in pairwise(bases) if following <= start}
    for base in sorted(log.pieces.keys() - log.segments.keys() - below):
        file = files.create(segment_file_path(path, base, LOG_SUFFIX))
        try:
            _write_tail(file, log.pieces[base], store, run_all)
            last = deque(HeadWalk(file, file.size).heads(0), maxlen=1)
            end = max(end, last[0].next_offset) if last else end
            size += file.size
        finally:
            file.close()
    epochs = log.facts["epochs"]
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

"""The object store against the data directory: what waits, what is missing, what nothing names.

Owns two questions about a directory and its bucket. Both only read, also beside a running broker.

*Missing*: an object of a live partition, at or above the log's start, is not there or has another
size. Then records are lost that may exist nowhere else.

*Garbage*: an object that nothing names. An upload that a crash has cut off leaves one, and so does
a PUT that a store carried out after its deadline. An object counts as garbage only if

* it is older than a bound of a day, since the line of a running upload may not be written yet;
* the journal of the bucket does not name it: a restore would need it, whatever is here;
* the directory of its partition is here, with a manifest that can be read to its end and does not
  name it; or its topic is known neither to a directory nor to the journal. Without a journal no
  topic is unknown: the directory may be that of another worker, or a part of a backup.

What an upload has left beside the objects of a folder is garbage by its age alone.

So the objects of a partition whose directory or manifest is lost are never garbage: they are the
only copy. Nothing is garbage by the directory of a former owner: the one that took the bucket over
writes there. The caller checks that (`cli.remote.tier`).
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import field
from typing import Final

from storage.directory.metadata_journal import JOURNAL_FILE, read_topics
from storage.disk.checkpoints import (
    PARTITION_METADATA_FILE,
    CorruptCheckpoint,
    format_uuid,
    parse_partition_metadata,
)
from storage.disk.file_names import (
    DELETED_DIRECTORY_SUFFIX,
    LOG_SUFFIX,
    STRAY_DIRECTORY_SUFFIX,
    parse_partition_directory_name,
    parsed_names,
)
from storage.disk.files import Files
from storage.remote.object_store import StoredObject
from storage.segment.facts import OBJECT_SUFFIX, RemoteObject
from storage.segment.manifest import Manifest
from values.dataclasses import dataclass

DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TieredPartition:
    """One partition directory as its manifest describes it.

    Attributes:
        name: the directory.
        topic_id: from `partition.metadata`; None when that cannot be read.
        partition: its number; None for a deleted one, whose objects the broker deletes, and for a
            stray one, whose objects nothing deletes.
        is_whole: whether there is a manifest that could be read to its end.
        objects: what it names.
        wanted: those of them that are part of the log; the others are being deleted.
        remote_only: how many of these segments have no `.log` here.
        waiting_bytes: closed segments without an object, if the topic is tiered or anything of the
            log is in the store.
        waiting_since_ms: the last append to the oldest of them.
    """

    name: str
    topic_id: bytes | None
    partition: int | None
    is_whole: bool
    objects: tuple[RemoteObject, ...]
    wanted: frozenset[RemoteObject]
    remote_only: int
    waiting_bytes: int
    waiting_since_ms: int


@dataclass(slots=True, kw_only=True)
class Comparison:
    """The bucket against the directory."""

    stored: int = 0
    stored_bytes: int = 0
    missing: list[RemoteObject] = field(default_factory=list)
    garbage: list[StoredObject] = field(default_factory=list)


def read_partitions(path: str, files: Files) -> list[TieredPartition]:
    """All partition directories, deleted and stray ones included. Raises OSError."""
    found = []
    topics = read_topics(read_journal(path, files))
    for name in files.list_directory(path):
        key = parse_partition_directory_name(name)
        is_kept = name.endswith((DELETED_DIRECTORY_SUFFIX, STRAY_DIRECTORY_SUFFIX))
        if (key is not None or is_kept) and files.is_directory(f"{path}/{name}"):
            topic = None if key is None else topics.get(key[0])
            partition = None if key is None else key[1]
            is_tiered = topic is not None and topic.is_tiered
            found.append(_read(path, name, partition, files, is_tiered=is_tiered))
    return found


def _read(
    path: str, name: str, partition: int | None, files: Files, *, is_tiered: bool
) -> TieredPartition:
    directory = f"{path}/{name}"
    topic_id = None
    # Without an id nothing of an unknown topic is garbage.
    with suppress(FileNotFoundError, CorruptCheckpoint):
        topic_id = parse_partition_metadata(
            files.read_all(f"{directory}/{PARTITION_METADATA_FILE}")
        )
    manifest = Manifest(directory, files)
    names = set(files.list_directory(directory))
    here = [facts for base, facts in manifest.facts.items() if f"{base:020d}.log" in names]
    waiting = [facts for facts in here if facts.base_offset not in manifest.remote]
    # There may be facts of the active one, too: a stop has written them.
    parsed = (one for one in parsed_names(names) if one.kind == LOG_SUFFIX and not one.stage)
    active = max((one.base_offset for one in parsed), default=-1)
    uploads = is_tiered or bool(manifest.remote)
    waiting = [facts for facts in waiting if uploads and facts.base_offset != active]
    objects = tuple(manifest.remote[base] for base in sorted(manifest.remote))
    return TieredPartition(
        name=name,
        topic_id=topic_id,
        partition=partition,
        is_whole=manifest.has_durable_name and manifest.is_whole,
        objects=(*objects, *manifest.superseded.values()),
        wanted=frozenset(one for one in objects if one.next_offset > manifest.log_start_offset),
        remote_only=sum(f"{one.base_offset:020d}.log" not in names for one in objects),
        waiting_bytes=sum(facts.size_bytes for facts in waiting),
        waiting_since_ms=min((facts.appended_ms for facts in waiting), default=0),
    )


def compare(
    partitions: Iterable[TieredPartition],
    stored: Iterable[StoredObject],
    *,
    unfinished: Iterable[StoredObject] = (),
    named_there: Iterable[RemoteObject] = (),
    journal: bytes,
    now_ms: int,
    older_than_ms: int = DAY_MS,
) -> Comparison:
    """Compare what the directory names with a listing of the bucket.

    `unfinished` is what uploads have left that did not end. `named_there` are the objects that the
    bucket's journal names; `journal` is the content of the
    metadata journal. Both and the directory must have been read before the listing began: an object
    that was named since is too new to be garbage.
    """
    partitions = list(partitions)
    named = {one.key for part in partitions for one in part.objects}
    named |= {one.key for one in named_there}
    judged = {
        (part.topic_id, part.partition)
        for part in partitions
        if part.is_whole and part.topic_id is not None and part.partition is not None
    }
    known_topics = {part.topic_id for part in partitions}
    result = Comparison()
    seen: dict[str, int] = {}
    for one in stored:
        result.stored += 1
        result.stored_bytes += one.size
        seen[one.key] = one.size
        owner = _owner(one.key)
        if owner is None or one.key in named or one.modified_ms > now_ms - older_than_ms:
            continue
        topic_id, partition = owner
        is_known = topic_id in known_topics or format_uuid(topic_id).encode() in journal
        if (topic_id, partition) in judged or (
            journal and not is_known and None not in known_topics
        ):
            result.garbage.append(one)
    result.garbage += (one for one in unfinished if one.modified_ms <= now_ms - older_than_ms)
    wanted = [one for part in partitions if part.partition is not None for one in part.wanted]
    result.missing = [one for one in wanted if seen.get(one.key) != one.object_bytes]
    return result


def read_journal(path: str, files: Files) -> bytes:
    """The content of the metadata journal; empty when there is none."""
    journal = f"{path}/{JOURNAL_FILE}"
    return files.read_all(journal) if files.exists(journal) else b""


def _owner(key: str) -> tuple[bytes, int] | None:
    """Topic id and partition in the name of an object; None when it is no object of ours."""
    parts = key.split("/")
    if len(parts) != 3 or not parts[2].endswith(OBJECT_SUFFIX) or not parts[1].isdecimal():
        return None
    try:
        topic_id = bytes.fromhex(parts[0])
    except ValueError:
        return None
    return (topic_id, int(parts[1])) if len(topic_id) == 16 else None


def tiered(partitions: Iterable[TieredPartition]) -> Iterator[TieredPartition]:
    """Those that have something in the store, or wait for it."""
    return (part for part in partitions if part.objects or part.waiting_bytes)

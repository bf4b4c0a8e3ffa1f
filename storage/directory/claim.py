"""Taking possession of a data directory: may this process use it, and what does it contain?

Owns the first steps of a start, before any log is opened: the lock, the identity in
`meta.properties`, the clean-stop marker, and the sorting of directory names into topics,
unfinished deletions and unknown names. Refuses to open logs: `storage.directory.data_dir` does.

A directory is either understood or refused with one sentence:

| found                                   | done                                                  |
|-----------------------------------------|-------------------------------------------------------|
| nothing, or an empty directory          | a new identity is generated and stored                |
| the lock is held                        | `DataDirLocked`, with the process id when it is known |
| no `meta.properties`, but other files | `ForeignDataDir`: the files of another program        |
| an unreadable `meta.properties`       | `HalfWrittenDataDir`                                  |
| a newer version of it                   | `ForeignDataDir`                                      |
| another node's                          | `ForeignDataDir`, when `node.id` was set explicitly |

Files and directories of other programs are never changed.

Source: Kafka `LogManager` and `MetaPropertiesEnsemble`.
"""

import os
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from typing import Final

from config import BrokerConfig
from storage.directory.metadata import Metadata, TopicMetadata
from storage.directory.metadata_journal import JOURNAL_FILE
from storage.directory.worker_directories import worker_number
from storage.disk import checkpoints, file_names
from storage.disk.files import TEMPORARY_SUFFIX, Files, Lock
from storage.errors import (
    DataDirError,
    DataDirLocked,
    DataDirNotWritable,
    ForeignDataDir,
    HalfWrittenDataDir,
    StorageFailed,
)
from values.dataclasses import dataclass
from values.words import format_count

LOCK_FILE: Final = ".lock"
STANDBY_FILE: Final = "standby"
"""Names the bucket that a standby's directory copies; an ordinary directory has no such file."""

KRAFT_METADATA_TOPIC: Final = "__cluster_metadata"

_PRESENT_IN_NEW_DIRECTORIES: Final = frozenset(
    {LOCK_FILE, file_names.LOST_AND_FOUND, checkpoints.META_PROPERTIES_FILE + TEMPORARY_SUFFIX}
)

_COMPACTED_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state"})
_COMPACTED: Final = {"cleanup.policy": "compact"}
_UNKNOWN_RETENTION: Final = {"retention.ms": "-1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A data directory that this process holds exclusively."""

    path: str
    lock: Lock
    meta: checkpoints.MetaProperties
    stopped_cleanly: bool
    unclean: frozenset[str]
    """Partitions for which the clean stop does not count."""


@dataclass(slots=True, kw_only=True)
class Survey:
    """The directories found in a data directory.

    `partitions` maps topic and partition to the topic id in its `partition.metadata`, or to None
    when that file is missing or broken.
    """

    partitions: dict[tuple[str, int], bytes | None] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)
    stray: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


def claim_directory(
    path: str,
    *,
    files: Files,
    config: BrokerConfig,
    random_bytes: checkpoints.RandomBytes,
    is_standby: bool = False,
) -> Claim:
    """Lock the directory, read or generate its identity, take the clean-stop marker.

    The directory of a standby is refused unless `is_standby`.

    Raises:
        DataDirError: the process must not or cannot use the directory; the message says why.
    """
    lock = lock_directory(path, files)
    try:
        if not is_standby and files.exists(f"{path}/{STANDBY_FILE}"):
            raise ForeignDataDir(
                "the directory is that of a standby, a copy of what its bucket has",
                path=path,
                found=f"the file {STANDBY_FILE}",
                cure="start it with --standby, or let it take the bucket over: tidelog promote",
            )
        meta = _identity(path, files, config, random_bytes)
        # Before anything is opened: a crash while loading must count as a crash (KAFKA-10471).
        return Claim(
            path=path,
            lock=lock,
            meta=meta,
            unclean=checkpoints.read_unclean(path, files),
            stopped_cleanly=checkpoints.take_clean_shutdown(path, files),
        )
    except OSError as error:
        lock.release()
        raise _not_writable(path, error) from error
    except DataDirError:
        lock.release()
        raise


def survey(path: str, files: Files, known: Container[str] = ()) -> Survey:
    """Sort the sub-directories by their names and the content of `partition.metadata`.

    The name of Kafka's metadata log counts as a topic only if it is `known` as one: releases up to
    0.1.0 let clients create it.
    """
    found = Survey()
    for name in files.list_directory(path):
        key = file_names.parse_partition_directory_name(name)
        if name.endswith(file_names.DELETED_DIRECTORY_SUFFIX) and "." in name:
            found.deleted.append(name)
        elif name.endswith(file_names.STRAY_DIRECTORY_SUFFIX) and "." in name:
            found.stray.append(name)
        elif key is None or (key[0] == KRAFT_METADATA_TOPIC and key[0] not in known):
            is_known = name == file_names.LOST_AND_FOUND or worker_number(name) is not None
            if not is_known and files.is_directory(f"{path}/{name}"):
                found.unknown.append(name)
        elif files.is_directory(f"{path}/{name}"):
            found.partitions[key] = _stored_topic_id(f"{path}/{name}", files)
    return found


def stray_directory_name(name: str, unique: str) -> str:
    """The new name for the directory of a partition that belongs to no topic.

    `unique` is 32 hexadecimal digits, so that the topic can be created again at once.
    """
    topic, _, partition = name.rpartition("-")
    ending = f"-{partition}.{unique}{file_names.STRAY_DIRECTORY_SUFFIX}"
    return topic[: file_names.DIRECTORY_NAME_MAX - len(ending)] + ending


def complete_topics(
    partitions: Iterable[tuple[str, int]],
) -> tuple[dict[str, int], list[tuple[str, int]]]:
    """Topics whose partitions 0 to n - 1 all exist, with n; and the partitions of the others.

    The directory of one broker of a larger cluster holds only some partitions of a topic. Such a
    topic cannot be served whole, so it is not served at all.
    """
    numbers: dict[str, set[int]] = {}
    for topic, partition in partitions:
        numbers.setdefault(topic, set()).add(partition)
    whole = {topic: len(found) for topic, found in numbers.items() if max(found) < len(found)}
    others = sorted(
        (topic, partition)
        for topic, found in numbers.items()
        if topic not in whole
        for partition in found
    )
    return whole, others


def topics_by_directory(
    partitions: Mapping[tuple[str, int], bytes | None], random_bytes: checkpoints.RandomBytes
) -> tuple[list[TopicMetadata], list[tuple[str, int]]]:
    """Topics of a directory without stored settings; and the partitions that make no topic.

    A topic keeps its id; one from before topic ids (Kafka 2.7 and older) gets a new one. The
    topic's settings are not known, and a default could delete records that its owner keeps for
    ever. So the records do not expire until an operator sets otherwise, and Kafka's own topics stay
    compacted.
    """
    whole, others = complete_topics(partitions)
    topics = []
    for name, count in sorted(whole.items()):
        ids = {partitions[name, partition] for partition in range(count)} - {None}
        topic_id = ids.pop() if len(ids) == 1 else None
        topics.append(
            TopicMetadata(
                name=name,
                topic_id=topic_id or checkpoints.random_uuid(random_bytes),
                partitions=count,
                overrides=_COMPACTED if name in _COMPACTED_TOPICS else _UNKNOWN_RETENTION,
            )
        )
    return topics, others


def plan_adoption(
    path: str, files: Files, random_bytes: checkpoints.RandomBytes
) -> tuple[list[TopicMetadata], list[str]]:
    """The topics to adopt from a directory of Apache Kafka, and the notices for the operator.

    Both are empty when there is a journal: then the directory is Tidelog's.

    Raises:
        ForeignDataDir: it has a metadata log, which `storage.kafka.kafka_import` reads.
    """
    if files.exists(f"{path}/{JOURNAL_FILE}"):
        return [], []
    if files.exists(f"{path}/{KRAFT_METADATA_TOPIC}-0"):
        raise ForeignDataDir(
            "the directory belongs to Apache Kafka in KRaft mode",
            path=path,
            found=f"{KRAFT_METADATA_TOPIC}-0, but no {JOURNAL_FILE}",
            cure="take it over with its topics' settings: tidelog import",
        )
    topics, others = topics_by_directory(survey(path, files).partitions, random_bytes)
    notices = []
    if topics:
        notices.append(
            f"adopted {format_count(len(topics), 'topic')} by their directories; their own "
            "settings are not in there: retention.ms is -1 for each until you set them"
        )
    if others:
        notices.append(
            f"{format_count(len(others), 'partition')} of topics of which other brokers hold "
            "the rest"
        )
    return topics, notices


def lock_directory(path: str, files: Files) -> Lock:
    """Lock the directory, which is made if it is missing.

    Raises DataDirLocked, DataDirNotWritable.
    """
    lock_path = f"{path}/{LOCK_FILE}"
    try:
        _make_path(path, files)
        lock = files.lock(lock_path)
    except BlockingIOError:
        raise DataDirLocked(
            "another broker is using the data directory",
            path=path,
            found=_holder(lock_path, files),
            cure="stop that broker, or give this one a directory of its own",
        ) from None
    except OSError as error:
        raise _not_writable(path, error) from error
    try:
        file = files.open(lock_path)
        file.truncate(0)
        file.append(f"{os.getpid()}\n".encode())
        file.close()
    except OSError as error:
        lock.release()
        raise _not_writable(path, error) from error
    return lock


def _make_path(path: str, files: Files) -> None:
    """Create the directory and its parents, each of them durable in its own parent."""
    assert os.path.isabs(path), f"the parents of {path!r} have no end"
    missing = []
    ancestor = path
    while not files.exists(ancestor):
        missing.append(ancestor)
        ancestor = os.path.dirname(ancestor)
    files.make_directory(path)
    for directory in reversed(missing):
        files.sync_directory(os.path.dirname(directory))


def _holder(lock_path: str, files: Files) -> str:
    """The holder of the lock, as far as the lock file names it; Kafka leaves the file empty."""
    try:
        text = files.read_all(lock_path).decode(errors="replace").strip()
    except OSError:
        text = ""
    return f"process {text}" if text.isdigit() else "its process id is not known"


def _identity(
    path: str, files: Files, config: BrokerConfig, random_bytes: checkpoints.RandomBytes
) -> checkpoints.MetaProperties:
    meta_path = f"{path}/{checkpoints.META_PROPERTIES_FILE}"
    try:
        content = files.read_all(meta_path)
    except FileNotFoundError:
        _refuse_strangers(path, files)
        meta = checkpoints.MetaProperties(
            node_id=config.node_id,
            cluster_id=config.cluster_id
            or checkpoints.format_uuid(checkpoints.random_uuid(random_bytes)),
            directory_id=checkpoints.random_uuid(random_bytes),
        )
        files.replace_atomically(meta_path, checkpoints.format_meta_properties(meta))
        return meta
    meta = _parse_identity(meta_path, content)
    if config.is_set("node.id") and meta.node_id != config.node_id:
        raise ForeignDataDir(
            "the data directory belongs to another node",
            path=path,
            found=f"node.id {meta.node_id}, configured is {config.node_id}",
            cure=f"set node.id={meta.node_id}, or use another directory",
        )
    return meta


def _parse_identity(meta_path: str, content: bytes) -> checkpoints.MetaProperties:
    try:
        return checkpoints.parse_meta_properties(content)
    except checkpoints.UnknownVersion as error:
        raise ForeignDataDir(
            "the data directory was written by a program that this one does not know",
            path=meta_path,
            found=str(error),
            cure="start the program that wrote it, or use another directory",
        ) from error
    except checkpoints.CorruptCheckpoint as error:
        raise HalfWrittenDataDir(
            "the identity of the data directory cannot be read",
            path=meta_path,
            found=str(error),
            cure="restore the file; it needs version=1, cluster.id and node.id",
        ) from error


def _refuse_strangers(path: str, files: Files) -> None:
    strangers = [
        name for name in files.list_directory(path) if name not in _PRESENT_IN_NEW_DIRECTORIES
    ]
    if strangers:
        shown = ", ".join(strangers[:3]) + (" ..." if len(strangers) > 3 else "")
        raise ForeignDataDir(
            "the directory is not empty and is no data directory",
            path=path,
            found=f"no {checkpoints.META_PROPERTIES_FILE}, but {shown}",
            cure="use an empty directory, or restore that file",
        )


def _stored_topic_id(directory: str, files: Files) -> bytes | None:
    try:
        return checkpoints.parse_partition_metadata(
            files.read_all(f"{directory}/{checkpoints.PARTITION_METADATA_FILE}")
        )
    except (OSError, checkpoints.CorruptCheckpoint):
        return None


def _not_writable(path: str, error: OSError) -> DataDirNotWritable:
    return DataDirNotWritable(
        "the data directory cannot be used",
        path=path,
        found=error.strerror or str(error),
        cure="check that it is a directory, its permissions and the free space, or use another",
    )


def notices_of_others(survey: Survey, journal: Metadata) -> Iterator[str]:
    """Notices for the operator about things that are neither topics nor errors."""
    if journal.bytes_cut:
        yield f"cut {journal.bytes_cut} bytes of an unfinished change off {journal.path}"
    if survey.unknown:
        shown = ", ".join(survey.unknown[:3])
        yield f"left alone {len(survey.unknown)} unknown directories: {shown}"


@contextmanager
def released_on_failure(claim: Claim, what: str) -> Iterator[None]:
    """Load what was claimed; its lock is released when that fails.

    Raises:
        DataDirNotWritable: the disk failed; `what` names the directory.
    """
    try:
        yield
    except BaseException as error:
        claim.lock.release()
        if not isinstance(error, OSError | StorageFailed):
            raise
        raise DataDirNotWritable(
            f"{what} cannot be loaded",
            path=claim.path,
            found=str(error),
            cure="check the disk, the permissions and the free space",
        ) from error

"""Taking over a directory of Apache Kafka: the topics that are whole, and what cannot be moved.

Owns the plan, made from a directory that Kafka wrote and that no Kafka has open. Topics, ids and
settings come from its metadata log (KRaft). Without one, topics and ids come from the names of the
directories and their ``partition.metadata``, and settings are unknown. It only reads, and copies
nothing: `cli.directory.import_kafka` does.

| case                                            | action                                         |
|-------------------------------------------------|------------------------------------------------|
| a topic of which other nodes hold partitions    | left out as a whole, noted                     |
| a partition assigned to this node, no directory | imported, empty                                |
| a directory of another topic id, or of no topic | left out, noted                                |
| a setting that does not exist here, or is wrong | left out, noted                                |
| users, rules, quotas, tokens                    | records for the caller to translate            |

Source: docs/adr/0012.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from config import BrokerConfig, ConfigErrors, check_topic_overrides, shown_value, with_dynamic
from protocol.stored.kraft import SecurityRecord
from storage.directory.claim import survey, topics_by_directory
from storage.directory.metadata import TopicMetadata
from storage.directory.metadata_journal import JOURNAL_FILE
from storage.disk import checkpoints, file_names
from storage.disk.checkpoints import RandomBytes, random_uuid
from storage.disk.files import Files
from storage.errors import ForeignDataDir, HalfWrittenDataDir
from storage.kafka.kraft_metadata import METADATA_DIRECTORY, ClusterMetadata, read_cluster_metadata
from storage.kafka.kraft_records import CorruptMetadata
from storage.log.leader_epochs import LEADER_EPOCHS_NAME
from storage.producers.snapshots import CorruptSnapshot, decode_snapshot
from values.dataclasses import dataclass

PRODUCER_ID_BLOCK: Final = 1000
"""Kafka's brokers reserve producer ids in blocks of this size; any id of one may be in use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPlan:
    """The plan for importing a directory of Kafka.

    Attributes:
        meta: the directory's identity, which stays.
        topics: for the journal.
        broker_overrides: for the journal.
        next_producer_id: the first producer id that may be assigned.
        security: the users, rules, limits and tokens of Kafka.
        directories: the partition directories to take along.
        notes: data and settings that cannot be moved, a sentence each.
    """

    meta: checkpoints.MetaProperties
    topics: Sequence[TopicMetadata]
    broker_overrides: Mapping[str, str]
    next_producer_id: int
    security: Sequence[SecurityRecord]
    directories: Sequence[str]
    notes: Sequence[str]


def plan_import(
    path: str,
    files: Files,
    *,
    broker_config: BrokerConfig,
    random_bytes: RandomBytes,
    metadata_path: str | None = None,
) -> ImportPlan:
    """Make the plan for a directory that Kafka wrote and that no Kafka has open; reads only.

    `metadata_path` is where ``__cluster_metadata-0`` is, when Kafka kept it elsewhere.

    Raises:
        ForeignDataDir: it is no directory of Kafka, or belongs to Tidelog already.
        HalfWrittenDataDir: its identity or its metadata cannot be read.
    """
    meta = _identity(path, files)
    notes: list[str] = []
    found = survey(path, files)
    metadata = _metadata(f"{metadata_path or path}/{METADATA_DIRECTORY}", files)
    if metadata is None:
        topics, others = topics_by_directory(found.partitions, random_bytes)
        notes.append(
            "there is no metadata log: settings of topics are in ZooKeeper or in another "
            "directory; retention.ms is -1 for each topic until you set them"
        )
        notes += _missing_notes({name for name, _ in others})
        overrides: dict[str, str] = {}
    else:
        topics = _topics_by_metadata(metadata, found.partitions, meta.node_id, notes)
        overrides = _broker_overrides(metadata, meta.node_id, broker_config, notes)
        notes += [
            f"{count} records about {what} are not carried over"
            for what, count in sorted(metadata.others.items())
        ]
    directories = [
        file_names.partition_directory_name(topic.name, partition)
        for topic in topics
        for partition in range(topic.partitions)
    ]
    notes.append(
        "settings of Kafka's own server.properties are not in the directory: start tidelog serve "
        "with that file (--config), or topics without settings of their own change with our "
        "defaults"
    )
    left = sorted(
        {file_names.partition_directory_name(*key) for key in found.partitions} - set(directories)
    )
    if left:
        shown = ", ".join(left[:3]) + (" ..." if len(left) > 3 else "")
        notes.append(f"{len(left)} partition directories are left out: {shown}")
    highest = _highest_producer_id(path, directories, files)
    known = metadata.next_producer_id if metadata is not None else 0
    return ImportPlan(
        meta=meta if meta.directory_id else replace(meta, directory_id=random_uuid(random_bytes)),
        topics=topics,
        broker_overrides=overrides,
        # Ids are assigned from blocks that a broker has reserved, so the metadata log's next id is
        # above all of them. Without it, step over the block that contains the highest id seen.
        next_producer_id=max(known, (highest // PRODUCER_ID_BLOCK + 1) * PRODUCER_ID_BLOCK)
        if highest >= 0
        else known,
        security=metadata.security if metadata is not None else (),
        directories=directories,
        notes=notes,
    )


def is_imported(name: str) -> bool:
    """Whether a file of a partition's directory is taken over from Kafka.

    Files of unfinished replacements are, since recovery completes or drops them.
    """
    parsed = file_names.parse_segment_file_name(name)
    if parsed is not None:
        return parsed.stage != file_names.DELETED_SUFFIX
    return name in (LEADER_EPOCHS_NAME, checkpoints.PARTITION_METADATA_FILE)


def _identity(path: str, files: Files) -> checkpoints.MetaProperties:
    if files.exists(f"{path}/{JOURNAL_FILE}"):
        raise ForeignDataDir(
            "the directory is Tidelog's already",
            path=path,
            found=JOURNAL_FILE,
            cure="start tidelog serve on it",
        )
    meta_path = f"{path}/{checkpoints.META_PROPERTIES_FILE}"
    try:
        return checkpoints.parse_meta_properties(files.read_all(meta_path))
    except FileNotFoundError:
        raise ForeignDataDir(
            "the directory is not one of Apache Kafka's log.dirs",
            path=path,
            found=f"no {checkpoints.META_PROPERTIES_FILE}",
            cure="name the directory that holds the partitions",
        ) from None
    except checkpoints.CorruptCheckpoint as error:
        raise HalfWrittenDataDir(
            "the identity of the directory cannot be read", path=meta_path, found=str(error)
        ) from error


def _metadata(directory: str, files: Files) -> ClusterMetadata | None:
    if not files.exists(directory):
        return None
    try:
        return read_cluster_metadata(directory, files)
    except CorruptMetadata as error:
        raise HalfWrittenDataDir(
            "the metadata log of Kafka cannot be read",
            path=directory,
            found=str(error),
            cure="move it aside to take topics over by their directories, without settings",
        ) from error


def _topics_by_metadata(
    metadata: ClusterMetadata,
    partitions: Mapping[tuple[str, int], bytes | None],
    node_id: int,
    notes: list[str],
) -> list[TopicMetadata]:
    topics, missing = [], []
    for topic in sorted(metadata.topics.values(), key=lambda topic: topic.name):
        here = [
            number
            for number in topic.partitions
            if partitions.get((topic.name, number)) in (None, topic.topic_id)
            and (topic.name, number) in partitions
        ]
        created_only = [
            number
            for number, record in topic.partitions.items()
            if node_id in record.replicas and (topic.name, number) not in partitions
        ]
        # A partition that was assigned to this node and never written to has no directory yet.
        if sorted(here + created_only) != list(range(len(topic.partitions))):
            missing.append(topic.name)
            continue
        topics.append(
            TopicMetadata(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=len(topic.partitions),
                overrides=_overrides(
                    topic.name, metadata.topic_settings.get(topic.name, {}), notes
                ),
            )
        )
    notes += _missing_notes(missing)
    return topics


def _missing_notes(topics: Iterable[str]) -> list[str]:
    return [
        f"topic {name} is left out: not all of its partitions are in this directory"
        for name in sorted(topics)
    ]


def _overrides(topic: str, settings: Mapping[str, str], notes: list[str]) -> dict[str, str]:
    carried = {}
    for name, value in sorted(settings.items()):
        problems = check_topic_overrides({name: value})
        if problems:
            notes.append(f"{name}={value} of topic {topic} is left out: {problems[0].reason}")
        else:
            carried[name] = value
    return carried


def _broker_overrides(
    metadata: ClusterMetadata, node_id: int, config: BrokerConfig, notes: list[str]
) -> dict[str, str]:
    """The run-time settings of all nodes and of this one, the latter winning."""
    settings = metadata.broker_settings
    merged = {**settings.get("", {}), **settings.get(str(node_id), {})}
    carried: dict[str, str] = {}
    for name, value in sorted(merged.items()):
        try:
            with_dynamic(config, {**carried, name: value})
        except ConfigErrors as errors:
            notes.append(
                f"{name}={shown_value(name, value)}, set at run time for the broker, is left out: "
                f"{errors.problems[0].reason}"
            )
        else:
            carried[name] = value
    return carried


def _highest_producer_id(path: str, directories: Iterable[str], files: Files) -> int:
    """The highest producer id in any snapshot, -1 when there is none."""
    highest = -1
    for directory in directories:
        if not files.exists(f"{path}/{directory}"):
            continue
        for name in file_names.parsed_names(files.list_directory(f"{path}/{directory}")):
            if name.kind != file_names.SNAPSHOT_SUFFIX or name.stage:
                continue
            content = files.read_all(f"{path}/{directory}/{name.format()}")
            try:
                entries = decode_snapshot(content)
            except CorruptSnapshot:
                continue
            highest = max([highest, *(entry.producer_id for entry in entries)])
    return highest

"""Moving a data directory to Apache Kafka: the files to take along, their form, and the rest.

Owns the plan. It lists the files to copy, has the translated metadata and states in sentences what
cannot be moved. Partitions need no translation, since their files are Kafka's. It copies nothing
and starts nothing: `cli.directory.export_kraft` does. `storage.kafka.kafka_import` is the reverse.

| what                          | with Tidelog        | with Apache Kafka                        |
|-------------------------------|---------------------|------------------------------------------|
| topics, ids, their settings   | ``metadata.journal``| snapshot in ``__cluster_metadata-0``     |
| next producer id              | ``metadata.journal``| the same snapshot                        |
| users, rules, quotas, tokens  | ``metadata.journal``| the same snapshot, made by the caller    |
| identity                      | ``meta.properties`` | the same file                            |
| offsets, groups, transactions | internal topics     | the same topics, same records            |
| age of records without time   | ``segment-manifest``| modification time of the ``.log``        |

Invariant: nothing is dropped silently. A setting that Kafka does not know or would refuse is a
note, and so is a topic of which this directory holds only a part.

Source: docs/adr/0012.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from config import shown_value
from config.topic import canonical_topic_key
from config.topic_keys import TOPIC_KEYS
from protocol.stored.kraft import PartitionRecord, SecurityRecord
from storage.directory.data_dir import DataDir, Topic
from storage.disk import checkpoints, file_names
from storage.errors import HalfWrittenDataDir
from storage.kafka.kraft_metadata import KraftTopic, snapshot_records
from storage.log.leader_epochs import LEADER_EPOCHS_NAME
from storage.log.log import Log
from values.dataclasses import dataclass

CHECKPOINT_FILES: Final = (
    checkpoints.RECOVERY_POINT_FILE,
    checkpoints.LOG_START_FILE,
    checkpoints.HIGH_WATERMARK_FILE,
    checkpoints.CLEANER_FILE,
)

KAFKA_TOPIC_SETTINGS: Final = frozenset(
    {
        "cleanup.policy",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "delete.retention.ms",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "index.interval.bytes",
        "max.compaction.lag.ms",
        "max.message.bytes",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.type",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "min.insync.replicas",
        "preallocate",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
        "unclean.leader.election.enable",
    }
)
"""The topic settings that Tidelog and Kafka 4.x share, with the same meaning and unit."""

KAFKA_SEGMENT_BYTES_MIN: Final = 1 << 20
"""Kafka 4.x does not start on a topic with smaller segments (KIP-1030)."""

_DIFFERENCE: Final = "message.timestamp.difference.max.ms"
_BEFORE: Final = "message.timestamp.before.max.ms"
_AFTER: Final = "message.timestamp.after.max.ms"
_SEGMENT_BYTES: Final = "segment.bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportPlan:
    """The plan for moving a data directory to Kafka.

    Attributes:
        node_id: the node id with which Kafka must be started.
        meta: the content for ``meta.properties``.
        records: values for `storage.kafka.kraft_metadata.write_cluster_metadata`.
        directories: the partition directories to take along.
        modified_ms: by directory and log file, the modification time that the file must have: Kafka
            uses it as the age of records without timestamps.
        notes: data and settings that cannot be moved, a sentence each.
    """

    node_id: int
    meta: checkpoints.MetaProperties
    records: Sequence[bytes]
    directories: Sequence[str]
    modified_ms: Mapping[tuple[str, str], int]
    notes: Sequence[str]


def plan_export(
    data_dir: DataDir, *, directory_id: bytes, security: Iterable[SecurityRecord] = ()
) -> ExportPlan:
    """The plan for an open data directory; `directory_id` names it among a node's directories.

    Raises:
        HalfWrittenDataDir: a partition is offline, so its files cannot be trusted.
    """
    notes: list[str] = []
    topics, settings, directories = [], {}, []
    modified_ms: dict[tuple[str, str], int] = {}
    for topic in data_dir.topics.values():
        topics.append(_kraft_topic(topic, data_dir.node_id))
        settings[topic.name] = settings_for_kafka(topic.name, topic.overrides, notes)
        for log in topic.logs:
            _refuse_offline(log)
            name = file_names.partition_directory_name(log.topic, log.partition)
            directories.append(name)
            modified_ms |= _ages(log, name)
    broker_settings = _broker_settings_for_kafka(data_dir.metadata.broker_overrides, notes)
    notes += [
        f"{name}={value} of group {group_id} is not carried: set it again with kafka-configs"
        for group_id, settings_of_group in sorted(data_dir.metadata.group_overrides().items())
        for name, value in sorted(settings_of_group.items())
    ]
    notes.append(
        "settings of the broker's own configuration file are not in the directory: give Kafka the "
        "same log.* settings, or topics without settings of their own change with its defaults"
    )
    return ExportPlan(
        node_id=data_dir.node_id,
        meta=checkpoints.MetaProperties(
            node_id=data_dir.node_id, cluster_id=data_dir.cluster_id, directory_id=directory_id
        ),
        records=snapshot_records(
            node_id=data_dir.node_id,
            directory_id=directory_id,
            topics=topics,
            topic_settings=settings,
            broker_settings=broker_settings,
            next_producer_id=data_dir.metadata.next_producer_id,
            security=security,
        ),
        directories=directories,
        modified_ms=modified_ms,
        notes=notes,
    )


def settings_for_kafka(
    topic: str, overrides: Mapping[str, str], notes: list[str]
) -> dict[str, str]:
    """The topic's own settings in the form of Kafka 4.x; the ones it does not accept are noted."""
    carried = {}
    overrides = {canonical_topic_key(name): value for name, value in overrides.items()}
    for name, value in overrides.items():
        if name == _DIFFERENCE:
            # Removed in 4.0; its two successors have the same meaning.
            carried[_BEFORE] = overrides.get(_BEFORE, value)
            carried[_AFTER] = overrides.get(_AFTER, value)
        elif name not in KAFKA_TOPIC_SETTINGS:
            notes.append(f"{name}={value} of topic {topic} means nothing to Kafka 4; left out")
        elif name == _SEGMENT_BYTES and int(value) < KAFKA_SEGMENT_BYTES_MIN:
            notes.append(
                f"{name}={value} of topic {topic} is below Kafka 4's least, "
                f"{KAFKA_SEGMENT_BYTES_MIN}; left out, so the default applies"
            )
        else:
            carried[name] = value
    return carried


def is_exported(name: str) -> bool:
    """Whether a file of a partition's directory is copied to Kafka."""
    parsed = file_names.parse_segment_file_name(name)
    if parsed is not None:
        # Auxiliary indexes are derived, and Kafka would not remove them with their segment.
        return not parsed.stage and parsed.kind not in file_names.AUXILIARY_SUFFIXES
    return name in (LEADER_EPOCHS_NAME, checkpoints.PARTITION_METADATA_FILE)


def _kraft_topic(topic: Topic, node_id: int) -> KraftTopic:
    partitions = {
        log.partition: PartitionRecord(
            topic_id=topic.topic_id,
            partition_id=log.partition,
            replicas=[node_id],
            # Kafka begins with a higher epoch. It would never trust one below the log's.
            leader_epoch=max(0, log.leader_epoch),
        )
        for log in topic.logs
    }
    return KraftTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


def _refuse_offline(log: Log) -> None:
    if log.offline_reason is not None:
        raise HalfWrittenDataDir(
            "a partition cannot be served, so it cannot be moved",
            path=log.path,
            found=log.offline_reason,
            cure="repair it first; tidelog fsck says what is wrong",
        )
    if log.segments.first is not log.segments.first_local:
        raise HalfWrittenDataDir(
            "a part of the partition is in an object store, which Kafka cannot read",
            path=log.path,
            found=f"offsets {log.log_start_offset} to {log.segments.first_local.base_offset - 1}",
            cure="copy the topic by a consumer and a producer, or delete it, then export again",
        )


def _ages(log: Log, directory: str) -> dict[tuple[str, str], int]:
    return {
        (directory, f"{segment.base_offset:020d}{file_names.LOG_SUFFIX}"): segment.appended_ms
        for segment in log.segments
        if segment.appended_ms >= 0
    }


def _broker_settings_for_kafka(overrides: Mapping[str, str], notes: list[str]) -> dict[str, str]:
    shared = {
        synonym
        for key in TOPIC_KEYS.values()
        if key.name in KAFKA_TOPIC_SETTINGS
        for synonym, _ in key.synonyms
    }
    carried = {name: value for name, value in overrides.items() if name in shared}
    notes += [
        f"{name}={shown_value(name, value)}, set at run time for the broker, is not carried: set "
        "it again with Kafka"
        for name, value in overrides.items()
        if name not in shared
    ]
    return carried

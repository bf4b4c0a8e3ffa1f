"""Every setting of a topic: one row each.

Names, defaults and ranges are Apache Kafka's (4.3 unless a doc line says otherwise), so that
existing topic definitions and `kafka-configs` work unchanged; our own settings are marked as such.

A topic setting takes its value from the topic, else from its first broker synonym that is set, else
from its default (Kafka: `ServerTopicConfigSynonyms`). Resolution is in `config.topic`.
"""

import re
from types import MappingProxyType
from typing import Final

from config.rows import flag, of_topic, topic_flag, topic_number, topic_word, word, words
from config.values import INT64_MAX, Key, Value, ValueType

MS_PER_MINUTE = 60_000
MS_PER_HOUR = 3_600_000
MS_PER_DAY = 86_400_000

UNSET_DIFFERENCE_MS = INT64_MAX

_FORMAT_CHANGES: Final = {
    **dict.fromkeys(("0.8.0", "0.8.1", "0.8.2", "0.9.0"), 0),
    **dict.fromkeys(("0.10.2", "1.0", "1.1", "2.5", "2.6", "3.1", "3.2", "3.4", "3.8", "3.9"), 1),
    **dict.fromkeys(("0.10.0", "2.0", "2.2", "2.3", "2.4", "2.8", "3.0"), 2),
    **dict.fromkeys(("0.10.1", "0.11.0", "2.1", "2.7", "3.5", "3.6"), 3),
    "3.3": 4,
    "3.7": 5,
}
"""Each release of Kafka, and its number of format changes: 2 means -IV0 and -IV1."""

_FORMAT_VERSIONS: Final = frozenset(_FORMAT_CHANGES) | {
    f"{release}-IV{number}" for release, count in _FORMAT_CHANGES.items() for number in range(count)
}

_THROTTLED_REPLICAS = re.compile(r"\*|(\d+:\d+(,\d+:\d+)*)?", re.ASCII)


def _gzip_level_check(value: Value) -> str | None:
    return "0 would not compress; use compression.type=uncompressed" if value == 0 else None


def _format_version_check(value: Value) -> str | None:
    # The setting chose the format of stored records, until Kafka 3.0 made that magic 2 for all. Up
    # to 3.9 Kafka accepts a release without effect (KIP-724); topic definitions of then have it.
    # Patch numbers do not count. Source: Kafka `MetadataVersion.fromVersionString`, 2.8.2, 3.9.1.
    text = str(value)
    parts = text.split(".")
    name = ".".join(parts[: 3 if text.startswith("0.") else 2])
    if name in _FORMAT_VERSIONS:
        return None
    return "no release of Kafka has that number; give one from 0.8.0 to 3.9, such as 2.8"


def _replicas_check(value: Value) -> str | None:
    is_good = isinstance(value, str) and _THROTTLED_REPLICAS.fullmatch(value) is not None
    return None if is_good else "not * and not partition:broker,partition:broker,..."


def _throttled(kind: str) -> Key:
    return word(
        f"{kind}.replication.throttled.replicas",
        "",
        "Accepted for compatibility: one node has one replica.",
        dynamic=True,
        check=_replicas_check,
    )


def _tiered(name: str, doc: str) -> Key:
    return flag(name, False, doc, dynamic=True)


_TOPIC_TIME = (
    topic_word(
        "message.timestamp.type",
        "CreateTime",
        ("CreateTime", "LogAppendTime"),
        "Who stamps a record: its producer (CreateTime) or the broker on arrival (LogAppendTime). "
        "Changing it leaves stored records as they are.",
    ),
    topic_number(
        "message.timestamp.difference.max.ms",
        UNSET_DIFFERENCE_MS,
        "How far a record's CreateTime may differ from the broker's clock, either way (KIP-32). "
        "Stands in for message.timestamp.before.max.ms and message.timestamp.after.max.ms where "
        "those are not set.",
        aliases=("max.message.time.difference.ms",),
    ),
    topic_number(
        "message.timestamp.before.max.ms",
        INT64_MAX,
        "How far a record's CreateTime may lie before the broker's clock; older ones are refused "
        "with INVALID_TIMESTAMP.",
    ),
    topic_number(
        "message.timestamp.after.max.ms",
        MS_PER_HOUR,
        "How far a record's CreateTime may lie ahead of the broker's clock; later ones are "
        "refused with INVALID_TIMESTAMP. One future timestamp would otherwise hold back retention.",
    ),
    topic_number(
        "retention.ms",
        7 * MS_PER_DAY,
        "A closed segment is deleted when its largest timestamp is older than this. -1 keeps all.",
        ("log.retention.ms", 1),
        ("log.retention.minutes", MS_PER_MINUTE),
        ("log.retention.hours", MS_PER_HOUR),
        low=-1,
    ),
    topic_flag(
        "retention.clamp.future",
        False,
        "Tidelog's own. Treat future timestamps as the segment's last append time when applying "
        "retention.ms; otherwise a record from the future keeps its segment and everything after "
        "it.",
        "log.retention.clamp.future",
    ),
    topic_number(
        "segment.ms",
        7 * MS_PER_DAY,
        "A segment is closed when an append's largest timestamp is more than this past the "
        "timestamp of the segment's first batch.",
        ("log.roll.ms", 1),
        ("log.roll.hours", MS_PER_HOUR),
        low=1,
    ),
    topic_number(
        "segment.jitter.ms",
        0,
        "The most by which segment.ms is shortened, at random per segment, to spread the work of "
        "rolling.",
        ("log.roll.jitter.ms", 1),
        ("log.roll.jitter.hours", MS_PER_HOUR),
    ),
    topic_word(
        "time.index.variant",
        "none",
        ("none", "interval", "minute", "minute-map"),
        "Tidelog's own. Which density variant of KIP-33's drafts lookups by time start from, kept "
        "in an auxiliary index: one entry per time.index.interval.ms, per minute by append time, "
        "or a map of minutes by create time. Answers are the same; see tidelog docs density.",
    ),
    topic_number(
        "time.index.interval.ms",
        MS_PER_MINUTE,
        "Tidelog's own, after a draft of KIP-33. The time between two entries of that index, "
        "with time.index.variant=interval.",
        low=1,
    ),
)

_TOPIC_STORAGE = (
    of_topic(
        words(
            "cleanup.policy",
            ("delete",),
            "delete: old segments go by retention. compact: the last value of each key stays. "
            "Both may be given.",
            choices=("delete", "compact"),
        )
    ),
    topic_word(
        "compression.type",
        "producer",
        ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        "How batches are stored; producer keeps whatever the producer chose, which costs nothing.",
        "compression.type",
    ),
    topic_number(
        "compression.gzip.level",
        -1,
        "Level of gzip when the broker compresses: 1 to 9, or -1 for gzip's own default.",
        ("compression.gzip.level", 1),
        low=-1,
        high=9,
        wide=False,
        check=_gzip_level_check,
    ),
    topic_number(
        "compression.lz4.level",
        9,
        "Level of lz4 when the broker compresses.",
        ("compression.lz4.level", 1),
        low=1,
        high=17,
        wide=False,
    ),
    topic_number(
        "compression.zstd.level",
        3,
        "Level of zstd when the broker compresses.",
        ("compression.zstd.level", 1),
        low=-131072,
        high=22,
        wide=False,
    ),
    topic_number(
        "delete.retention.ms",
        MS_PER_DAY,
        "How long a compacted topic keeps a tombstone.",
        ("log.cleaner.delete.retention.ms", 1),
    ),
    topic_number(
        "file.delete.delay.ms",
        60_000,
        "How long a deleted segment's files stay, renamed, before they go.",
        ("log.segment.delete.delay.ms", 1),
    ),
    topic_number(
        "flush.messages",
        INT64_MAX,
        "Flush after this many records, under flush.policy=os.",
        ("log.flush.interval.messages", 1),
        low=1,
    ),
    topic_number(
        "flush.ms",
        INT64_MAX,
        "Flush at least this often, under flush.policy=os.",
        ("log.flush.interval.ms", 1),
    ),
    topic_word(
        "flush.policy",
        "batch",
        ("batch", "os"),
        "Tidelog's own. batch: acks=all is answered, and records become visible, only once they "
        "are on disk. os: when they are in the page cache, as in Apache Kafka.",
        "log.flush.policy",
    ),
    topic_number(
        "index.interval.bytes",
        4096,
        "Log bytes between two index entries.",
        wide=False,
    ),
    topic_number(
        "max.compaction.lag.ms",
        INT64_MAX,
        "The longest a record stays uncompacted.",
        ("log.cleaner.max.compaction.lag.ms", 1),
        low=1,
    ),
    topic_number(
        "max.message.bytes",
        1_048_588,
        "The largest batch accepted, in bytes as sent.",
        ("message.max.bytes", 1),
        wide=False,
    ),
    of_topic(
        word(
            "message.format.version",
            "3.0-IV1",
            "Accepted for compatibility, as by Kafka 3.0 to 3.9: whatever it says, new records "
            "are stored in format 2, and all older formats are readable.",
            check=_format_version_check,
        )
    ),
    topic_flag(
        "message.downconversion.enable",
        True,
        "Whether records are converted for clients that read only older message formats.",
    ),
    Key(
        name="min.cleanable.dirty.ratio",
        type=ValueType.DOUBLE,
        default=0.5,
        low=0,
        high=1,
        doc="The share of a compacted log that must be uncompacted before it is compacted again.",
        dynamic=True,
        synonyms=(("log.cleaner.min.cleanable.ratio", 1),),
    ),
    topic_number(
        "min.compaction.lag.ms",
        0,
        "The shortest a record stays uncompacted.",
        ("log.cleaner.min.compaction.lag.ms", 1),
    ),
    topic_number(
        "min.insync.replicas",
        1,
        "Accepted for compatibility: one node has one replica.",
        ("min.insync.replicas", 1),
        low=1,
        wide=False,
    ),
    topic_flag(
        "preallocate",
        False,
        "Accepted for compatibility: files grow as they are written.",
        "log.preallocate",
    ),
    topic_number(
        "retention.bytes",
        -1,
        "The size a partition may reach before its oldest segments go. -1: no limit.",
        ("log.retention.bytes", 1),
        low=-1,
    ),
    topic_number(
        "segment.bytes",
        1_073_741_824,
        "The size at which a segment is closed.",
        low=14,
        wide=False,
    ),
    topic_number(
        "segment.index.bytes",
        10_485_760,
        "The size at which an index counts as full and its segment closes.",
        ("log.index.size.max.bytes", 1),
        low=24,
        wide=False,
    ),
    topic_flag(
        "unclean.leader.election.enable",
        False,
        "Accepted for compatibility: one node has one replica.",
        "unclean.leader.election.enable",
    ),
    _throttled("leader"),
    _throttled("follower"),
    topic_number(
        "local.retention.ms",
        -2,
        "How long the local copy of a segment stays that is in the object store, counted as "
        "retention.ms counts. -2 takes the value of retention.ms, -1 keeps it.",
        low=-2,
    ),
    topic_number(
        "local.retention.bytes",
        -2,
        "The size that the local part of a partition may reach before the local copies of its "
        "oldest segments go, if they are in the object store. -2 takes the value of "
        "retention.bytes, -1 means no limit.",
        low=-2,
    ),
    _tiered(
        "remote.storage.enable",
        "Whether closed segments are uploaded to the object store of remote.storage.url, of "
        "compacted topics those that are clean. Not to be taken back (tidelog docs "
        "tiered-storage).",
    ),
    _tiered(
        "remote.log.copy.disable",
        "Whether uploads of this topic pause. What is in the object store stays readable and is "
        "deleted by retention.",
    ),
    topic_number(
        "remote.flush.ms",
        5_000,
        "Tidelog's own. How long records may be on this machine only before the object store gets "
        "them, too: what the loss of the machine costs. For topics with remote.storage.enable.",
        low=0,
    ),
    topic_number(
        "remote.flush.bytes",
        8 * 1024 * 1024,
        "Tidelog's own. Bytes of a partition that are on this machine only before the object store "
        "gets them earlier than by remote.flush.ms.",
        low=1,
    ),
    _tiered(
        "remote.acks.enable",
        "Tidelog's own. Whether records are visible, and acknowledged with acks=all, only when the "
        "object store has them, too. For topics with remote.storage.enable; of __consumer_offsets "
        "and __transaction_state it makes commits of offsets and of transactions wait.",
    ),
    _tiered(
        "remote.log.delete.on.disable",
        "Accepted for compatibility: remote.storage.enable cannot be taken back.",
    ),
)

TOPIC_KEYS = MappingProxyType({key.name: key for key in (*_TOPIC_TIME, *_TOPIC_STORAGE)})
"""Every topic setting by its name."""

TOPIC_ALIASES = MappingProxyType(
    {alias: key.name for key in TOPIC_KEYS.values() for alias in key.aliases}
)
"""Older names of topic settings, each with the name it stands for."""

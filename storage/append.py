"""What an append would write: `plan_append` checks and stamps incoming records, purely.

Types first; the decision itself follows.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from protocol.records.layout import INT64_MAX, MAGIC_V2, Codec, TimestampType

if TYPE_CHECKING:
    from config import TopicConfig

DECOMPRESSED_BYTES_MAX: Final = 128 * 1024 * 1024
"""Most bytes one batch may decompress to while it is checked."""


class Origin(Enum):
    """Who appends: a client's Produce request, or the broker's own coordinators."""

    CLIENT = "client"
    COORDINATOR = "coordinator"


class PlannedBatch(NamedTuple):
    """One entry of the bytes to write; a plain tuple because each Produce makes one."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    is_transactional: bool
    is_control: bool
    records_count: int


class AppendPlan(NamedTuple):
    """The bytes to write and what they are, or an empty plan (`batches` empty, offsets -1).

    Attributes:
        buffer: exactly the bytes to write; the caller's own memory unless records were rebuilt.
        batches: the entries in `buffer`, in order; their positions count from its start.
        first_offset: offset of the first record, or NO_OFFSET.
        last_offset: offset of the last record, or NO_OFFSET.
        max_timestamp: largest timestamp of all records (ms), or NO_TIMESTAMP.
        log_append_time_ms: the time stamped on all records, or NO_TIMESTAMP on CreateTime topics.
        records_count: number of records.
    """

    buffer: memoryview
    batches: tuple[PlannedBatch, ...]
    first_offset: int
    last_offset: int
    max_timestamp: int
    log_append_time_ms: int
    records_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendRules:
    """A topic's configuration as the append needs it, computed once per change.

    Attributes:
        timestamp_type: who stamps records.
        timestamp_before_max_ms: how far behind the broker's clock a record may be.
        timestamp_after_max_ms: how far ahead of it.
        codec: what records are stored in, or None for the producer's choice.
        compression_level: for `codec`; None is the codec's default.
        compacted: cleanup.policy contains compact, so every record needs a key.
        max_message_bytes: largest entry, as stored (header included).
        segment_bytes: largest append as a whole.
        target_magic: format stored; 2 unless a test or tool asks for an older log.
        decompressed_bytes_max: cap on what one batch may decompress to.
    """

    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    timestamp_before_max_ms: int = INT64_MAX
    timestamp_after_max_ms: int = INT64_MAX
    codec: Codec | None = None
    compression_level: int | None = None
    compacted: bool = False
    max_message_bytes: int = 1_048_588
    segment_bytes: int = 1_073_741_824
    target_magic: int = MAGIC_V2
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX

    @classmethod
    def from_config(cls, config: TopicConfig) -> AppendRules:
        """The rules that `config` asks for."""
        codec, level = _codec_and_level(config)
        return cls(
            timestamp_type=(
                TimestampType.LOG_APPEND_TIME
                if config.message_timestamp_type == "LogAppendTime"
                else TimestampType.CREATE_TIME
            ),
            timestamp_before_max_ms=config.message_timestamp_before_max_ms,
            timestamp_after_max_ms=config.message_timestamp_after_max_ms,
            codec=codec,
            compression_level=level,
            compacted="compact" in config.cleanup_policy,
            max_message_bytes=config.max_message_bytes,
            segment_bytes=config.segment_bytes,
        )


def _codec_and_level(config: TopicConfig) -> tuple[Codec | None, int | None]:
    """(codec, level) of compression.type; codec None keeps the producer's."""
    name = config.compression_type
    if name == "producer":
        return None, None
    if name == "uncompressed":
        return Codec.NONE, None
    levels = {
        "gzip": config.compression_gzip_level,
        "lz4": config.compression_lz4_level,
        "zstd": config.compression_zstd_level,
    }
    return Codec[name.upper()], levels.get(name)

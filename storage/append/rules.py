"""A topic's configuration in the form that the append needs, computed once per change.

Owns only the translation of settings into the values that `storage.append.plan` compares with.
"""

from __future__ import annotations

from functools import lru_cache

from config import TopicConfig
from protocol.records.layout import (
    INT64_MAX,
    INT64_MIN,
    Codec,
    TimestampType,
)
from protocol.records.record import DECOMPRESSED_BYTES_MAX
from storage.append.entries import Window
from values.dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendRules:
    """A topic's configuration in the form that the append needs, computed once per change.

    Attributes:
        timestamp_type: whether producers or the broker stamp records.
        timestamp_before_max_ms: how far behind the broker's clock a record may be.
        timestamp_after_max_ms: how far ahead of it.
        codec: the codec that records are stored in, or None for the producer's choice.
        compression_level: for `codec`; None is the codec's default.
        compacted: cleanup.policy contains compact, so every record needs a key.
        max_message_bytes: largest entry, as stored (header included).
        segment_bytes: largest append as a whole.
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
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX

    @classmethod
    @lru_cache(maxsize=64)
    def from_config(cls, config: TopicConfig) -> AppendRules:
        """The rules that follow from `config`; the logs of a topic share them."""
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

    @property
    def stamps(self) -> bool:
        """Whether the broker's clock replaces the producers' timestamps."""
        return self.timestamp_type == TimestampType.LOG_APPEND_TIME

    def window(self, now_ms: int) -> Window:
        """The conditions for a record that arrives at `now_ms`."""
        if self.stamps:
            return Window(INT64_MIN, INT64_MAX, True, self.compacted)
        return Window(
            max(now_ms - self.timestamp_before_max_ms, INT64_MIN),
            min(now_ms + self.timestamp_after_max_ms, INT64_MAX),
            False,
            self.compacted,
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

"""The argument and result types of a `Log`: small, without behaviour, never changed.

Read next: `storage.log.log`.
"""

from dataclasses import field
from enum import Enum
from typing import Final, NamedTuple

from protocol.records.layout import NO_TIMESTAMP
from storage.append.values import AppendPlan
from storage.producers.state import CachedBatch
from storage.segment.txn_index import AbortedTxn
from values.dataclasses import dataclass


class Isolation(Enum):
    """How far a reader sees the log."""

    READ_UNCOMMITTED = "high watermark"
    READ_COMMITTED = "last stable offset"
    LOG_END = "log end offset"


@dataclass(slots=True)
class AppendResult:
    """The result of an append.

    For a duplicate, offsets are those of the first appearance. They are NO_OFFSET when there was
    nothing to append. `log_append_time_ms` is NO_TIMESTAMP unless the log stamps records; for a
    duplicate it is the max timestamp of the first appearance. `size_bytes` is the number of bytes
    written. `min_timestamp` is NO_TIMESTAMP if a record has none, and for a duplicate.
    """

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    is_duplicate: bool
    records_count: int
    size_bytes: int
    min_timestamp: int
    max_timestamp: int


def appended(plan: AppendPlan, log_start_offset: int) -> AppendResult:
    """The result of an append that was written as planned, or of one that had nothing to write."""
    return AppendResult(
        plan.first_offset,
        plan.last_offset,
        plan.log_append_time_ms,
        log_start_offset,
        False,
        plan.records_count,
        len(plan.buffer),
        plan.min_timestamp,
        plan.max_timestamp,
    )


def appended_before(first: CachedBatch, log_start_offset: int) -> AppendResult:
    """The result for a duplicate of `first`.

    Its stamp is the batch's max timestamp, under CreateTime too, as in Kafka.
    """
    return AppendResult(
        first.first_offset,
        first.last_offset,
        first.max_timestamp,
        log_start_offset,
        True,
        first.offset_delta + 1,
        0,
        NO_TIMESTAMP,
        first.max_timestamp,
    )


class ReadResult(NamedTuple):
    """Whole batches, owned by the caller, and the log's offsets at that moment.

    `next_offset` is where a reader continues. `aborted_transactions` is None unless the reader
    wants committed records only.
    """

    records: memoryview
    next_offset: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted_transactions: list[AbortedTxn] | None


@dataclass(slots=True)
class RecoveryReport:
    """The findings and repairs of opening a partition directory; empty after a clean stop.

    Attributes:
        scanned_bytes: log bytes whose checksums were verified.
        truncated_bytes: bytes cut off after the last whole batch.
        removed_segments: base offsets of segments that lay after such a cut.
        rebuilt_indexes: base offset and fault of every index that was rebuilt.
        removed_files: temporary files of interrupted deletions and rewrites.
        notes: sentences for the operator.
    """

    scanned_bytes: int = 0
    truncated_bytes: int = 0
    removed_segments: list[int] = field(default_factory=list)
    rebuilt_indexes: list[tuple[int, str]] = field(default_factory=list)
    removed_files: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


NOTHING_FOUND: Final = RecoveryReport()
"""What nearly every log keeps as its report; it stays empty."""

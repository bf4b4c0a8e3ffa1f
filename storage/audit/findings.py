"""The results of an audit: findings, and summaries of the logs that it read."""

from dataclasses import field
from enum import Enum
from typing import NamedTuple

from protocol.records.layout import INT64_MAX, NO_OFFSET, NO_TIMESTAMP
from values.dataclasses import dataclass


class Severity(Enum):
    """How bad a finding is."""

    ERROR = "error"
    """Something is wrong that a start does not repair, or that must not be there."""

    WARNING = "warning"
    """A fault that the next start repairs, or a state that is legal but unusual."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fault. `position` is a byte in the file, -1 if none."""

    severity: Severity
    rule: str
    path: str
    position: int = -1
    expected: str
    found: str

    def __str__(self) -> str:
        """One line for people."""
        where = self.path if self.position < 0 else f"{self.path} at byte {self.position}"
        return (
            f"{self.severity.value} {self.rule} {where}: expected {self.expected}, "
            f"found {self.found}"
        )


class IndexProblem(NamedTuple):
    """A fault of an auxiliary index.

    `is_legal` when the engine only ignores the file, `is_usual` when every crash may leave one.
    """

    position: int
    expected: str
    found: str
    is_legal: bool = False
    is_usual: bool = False


@dataclass(slots=True, kw_only=True)
class LogSummary:
    """The results of the walk over a log, for the audit of the files that describe it."""

    first_base_offset: int = 0
    log_start_offset: int = NO_OFFSET
    log_end_offset: int = 0
    segments: int = 0
    batches: int = 0
    records: int = 0
    size_bytes: int = 0
    remote_segments: int = 0
    remote_bytes: int = 0


@dataclass(slots=True, kw_only=True)
class SegmentSummary:
    """The results of the walk over one segment."""

    base_offset: int
    size: int = 0
    next_offset: int = 0
    max_timestamp: int = NO_TIMESTAMP
    # of all records, or INT64_MAX; only a deep audit knows it and the number of records
    min_timestamp: int = INT64_MAX
    data_max_timestamp: int = NO_TIMESTAMP
    records: int = 0
    batches: int = 0
    # last offset -> position, for the offset index
    positions: dict[int, int] = field(default_factory=dict)
    # last offset -> running maximum, where a batch raised it; for the time index
    maxima: dict[int, int] = field(default_factory=dict)
    # the expected content of the transaction index
    aborted: list[tuple[int, int, int, int]] = field(default_factory=list)

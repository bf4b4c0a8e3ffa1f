"""The plan of an append: the bytes to write and the facts about them.

Every Produce makes one. It is never changed (a frozen dataclass costs four
times as much to make, a named tuple a third more); `storage.append.plan` and
`storage.append.plain` make them, `storage.log.log` writes them.
"""

from __future__ import annotations

from protocol.records.entry import Entry
from values.dataclasses import dataclass


@dataclass(slots=True)
class AppendPlan:
    """The bytes to write and the facts about them, or an empty plan (no `batches`, offsets -1).

    Attributes:
        buffer: exactly the bytes to write; the caller's own memory unless records were rebuilt.
        batches: the stamped entries in `buffer`, in order; their positions count from its start.
        first_offset: offset of the first record, or NO_OFFSET.
        last_offset: offset of the last record, or NO_OFFSET.
        max_timestamp: largest timestamp of all records (ms), or NO_TIMESTAMP.
        log_append_time_ms: the time stamped on all records, or NO_TIMESTAMP on CreateTime topics.
        records_count: number of records.
        min_timestamp: smallest timestamp of all records (ms); NO_TIMESTAMP if one has none.
    """

    buffer: memoryview
    batches: tuple[Entry, ...]
    first_offset: int
    last_offset: int
    max_timestamp: int
    log_append_time_ms: int
    records_count: int
    min_timestamp: int

    @property
    def is_marker(self) -> bool:
        """Whether the append is a transaction's marker, which no reader sees."""
        return len(self.batches) == 1 and self.batches[0].is_control

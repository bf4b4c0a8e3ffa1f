"""The plan of an append as plain tuples: the bytes to write and the facts about them.

Tuples, because every Produce makes them. They have no behaviour; `storage.append.plan` and
`storage.append.plain` make them, `storage.log.log` writes them.
"""

from __future__ import annotations

from typing import NamedTuple


class PlannedBatch(NamedTuple):
    """One entry of the bytes to write; a plain tuple because each Produce makes one.

    Attributes:
        position: bytes from the start of the plan's buffer.
        size: bytes of the entry.
        base_offset: offset of its first record.
        last_offset: offset of its last record, inclusive.
        max_timestamp: ms, true for the records; NO_TIMESTAMP if none has one.
        producer_id: NO_PRODUCER_ID unless idempotent.
        producer_epoch: NO_PRODUCER_EPOCH unless idempotent.
        base_sequence: NO_SEQUENCE unless idempotent (also in transaction markers).
        last_sequence: sequence number of the last record, or NO_SEQUENCE.
        is_transactional: part of a transaction.
        is_control: a transaction marker.
        records_count: number of records.
    """

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
    """The bytes to write and the facts about them, or an empty plan (no `batches`, offsets -1).

    Attributes:
        buffer: exactly the bytes to write; the caller's own memory unless records were rebuilt.
        batches: the entries in `buffer`, in order; their positions count from its start.
        first_offset: offset of the first record, or NO_OFFSET.
        last_offset: offset of the last record, or NO_OFFSET.
        max_timestamp: largest timestamp of all records (ms), or NO_TIMESTAMP.
        log_append_time_ms: the time stamped on all records, or NO_TIMESTAMP on CreateTime topics.
        records_count: number of records.
        min_timestamp: smallest timestamp of all records (ms); NO_TIMESTAMP if one has none.
    """

    buffer: memoryview
    batches: tuple[PlannedBatch, ...]
    first_offset: int
    last_offset: int
    max_timestamp: int
    log_append_time_ms: int
    records_count: int
    min_timestamp: int

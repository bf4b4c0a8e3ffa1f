"""A consumer as the protocol describes it, over a `LogWindow`, and what it has to find.

The consumer knows nothing but what an answer of Fetch carries: batches, aborted transactions, the
ends. Brute force reads the whole log and filters.
"""

from protocol.records.layout import ControlType
from protocol.records.record import Record, control_type
from protocol.records.scan import iter_records, scan_entries
from storage.disk.steps import run_steps
from storage.log.log import Log
from storage.log.values import Isolation, ReadResult
from storage.window.log_window import LogWindow

COMMITTED = Isolation.READ_COMMITTED
UNCOMMITTED = Isolation.READ_UNCOMMITTED


def seen_by_consumer(result: ReadResult, position: int) -> tuple[list[Record], int]:
    """The records that a consumer at `position` hands on, and its next position.

    Source: Kafka `CompletedFetch`.
    """
    records: list[Record] = []
    coming = sorted(result.aborted_transactions or [], key=lambda txn: txn.first_offset)
    aborted: set[int] = set()
    for entry in scan_entries(result.records):
        while coming and coming[0].first_offset <= entry.last_offset:
            aborted.add(coming.pop(0).producer_id)
        content = list(iter_records(result.records, entry.position))
        if entry.is_control:
            if content and control_type(content[0]) is ControlType.ABORT:
                aborted.discard(entry.producer_id)
        elif not (entry.is_transactional and entry.producer_id in aborted):
            records += [record for record in content if record.offset >= position]
        position = max(position, entry.next_offset)
    return records, position


def consume(
    window: LogWindow, offset: int = 0, *, max_bytes: int = 300, isolation: Isolation = UNCOMMITTED
) -> list[Record]:
    """Every record from `offset` to the window's end, by as many fetches as it takes."""
    found: list[Record] = []
    while True:
        result = run_steps(
            window.read(offset, max_bytes=max_bytes, isolation=isolation, min_one=True)
        )
        records, offset_after = seen_by_consumer(result, offset)
        assert result.log_start_offset <= result.high_watermark
        assert result.last_stable_offset <= result.high_watermark
        found += records
        if offset_after == offset:
            end = result.last_stable_offset if isolation is COMMITTED else result.high_watermark
            assert offset >= min(end, window.log.end_offset(isolation)), "a reader is stuck"
            return found
        assert offset_after == result.next_offset
        offset = offset_after


def expected(log: Log, start_ms: int, end_ms: int, isolation: Isolation) -> list[Record]:
    """The records of the window, found by reading all of the log."""
    found: list[Record] = []
    offset = log.log_start_offset
    while True:
        result = log.read(offset, max_bytes=1 << 20, isolation=isolation)
        records, offset = seen_by_consumer(result, offset)
        if not result.records:
            return found
        found += [record for record in records if start_ms <= record.timestamp < end_ms]

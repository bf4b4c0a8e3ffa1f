"""How plausible the times of stored records are: ahead, behind, out of order, and whose they are.

Owns the count over the records of one partition. A record keeps the time that its producer gave it;
when it was appended is known per segment only, from the manifest: after the last append of the
segment before, and not after the last append of its own. So *ahead* and *behind* are what is
certain: a record is at least so much newer than its append, or older. Lateness against the records
before it is exact.

Read next: `protocol.records.lateness`, `broker.operator.skew`.
"""

from bisect import bisect_right
from collections.abc import Sequence

from protocol.records.lateness import Lateness
from protocol.records.layout import TimestampType
from protocol.records.scan import Entry, iter_records, scan_entries
from storage.disk.files import Bytes
from values.dataclasses import dataclass


@dataclass(slots=True)
class ProducerTimes:
    """The times of one producer's records; -1 is every producer that is not idempotent.

    Attributes:
        records: how many records it has.
        without_time: how many carry no time.
        out_of_order: how many are older than an earlier one of the same producer, so that a
            producer is not blamed for another one whose clock is ahead.
        youngest_ms: its youngest time so far.
        ahead_ms: the most by which one is newer than its append, at least; 0 for none.
        ahead: offset and timestamp of that record.
        behind_ms: the most by which one is older than its append, at least; 0 for none.
        behind: offset and timestamp of that record.
    """

    records: int = 0
    without_time: int = 0
    out_of_order: int = 0
    youngest_ms: int = -1
    ahead_ms: int = 0
    ahead: tuple[int, int] | None = None
    behind_ms: int = 0
    behind: tuple[int, int] | None = None


class RecordTimes:
    """The count for one partition; feed it its records in the order of offsets.

    Attributes:
        lateness: of the records with a time of their own.
        stamped: how many have the broker's time (LogAppendTime), which is always right.
        producers: by producer id.
    """

    def __init__(self, appends: Sequence[tuple[int, int]]) -> None:
        """`appends` are base offset and time of the last append of each segment, oldest first."""
        self.lateness = Lateness()
        self.stamped = 0
        self.producers: dict[int, ProducerTimes] = {}
        self._bases = [base for base, _ in appends]
        self._times = [appended_ms for _, appended_ms in appends]

    def add(self, data: Bytes) -> None:
        """Count the records of the whole entries in `data`.

        Raises:
            RecordsError: an entry, its compression or a record is broken.
        """
        for entry in scan_entries(data):
            if entry.is_control:
                continue
            if entry.timestamp_type is TimestampType.LOG_APPEND_TIME:
                self.stamped += entry.records_count
                continue
            self._add_entry(entry, data)

    def _add_entry(self, entry: Entry, data: Bytes) -> None:
        producer = self.producers.setdefault(entry.producer_id, ProducerTimes())
        number = max(0, bisect_right(self._bases, entry.last_offset) - 1)
        not_after_ms = self._times[number]
        after_ms = self._times[number - 1] if number else -1
        for record in iter_records(data, entry.position):
            producer.records += 1
            time_ms = record.timestamp
            if time_ms < 0:
                producer.without_time += 1
                continue
            self.lateness.add(time_ms)
            producer.out_of_order += time_ms < producer.youngest_ms
            producer.youngest_ms = max(producer.youngest_ms, time_ms)
            if time_ms - not_after_ms > producer.ahead_ms:
                producer.ahead_ms = time_ms - not_after_ms
                producer.ahead = (record.offset, time_ms)
            if after_ms - time_ms > producer.behind_ms:
                producer.behind_ms = after_ms - time_ms
                producer.behind = (record.offset, time_ms)

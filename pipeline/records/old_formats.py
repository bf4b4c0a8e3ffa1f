"""Messages of magic 0 and 1 as rows, by way of Python objects: a log of today holds none of them.

The same columns and the same judgement of times as `arrow_loops` has for magic 2.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.errors import CorruptData
from pipeline.records.arrow_loops import MICROS_MS_MAX
from protocol.errors import RecordsError
from protocol.records.layout import NO_TIMESTAMP
from protocol.records.record import Record
from protocol.records.scan import iter_records, scan_entries


@dataclass(frozen=True, slots=True)
class OldEntry:
    """An entry of the log and those of its records that are wanted."""

    last_offset: int
    timestamp_type: int
    records: Sequence[Record]

    def misfits(self) -> list[int]:
        """The offsets of records whose time does not fit into microseconds."""
        return [one.offset for one in self.records if abs(one.timestamp) > MICROS_MS_MAX]

    def rows(self, topic: str, partition: int, on_malformed: str) -> dict[str, list[Any]]:
        """The values of all columns, by name."""
        count = len(self.records)
        return {
            "key": [one.key for one in self.records],
            "value": [one.value for one in self.records],
            "topic": [topic] * count,
            "partition": [partition] * count,
            "offset": [one.offset for one in self.records],
            "timestamp": [_micros(one.timestamp, on_malformed) for one in self.records],
            "timestampType": [self.timestamp_type] * count,
            "headers": [None] * count,
        }


def read_entry(where: str, data: bytes, limits: tuple[int, int, int, int]) -> OldEntry:
    """The only entry in `data`, with its records inside `limits` as `fill_rows` takes them.

    Raises:
        CorruptData: it does not parse; `where` is how the sentence begins.
    """
    first, end, oldest, newest = limits
    try:
        (entry,) = scan_entries(data)
        records = [
            record
            for record in iter_records(data)
            if first <= record.offset < end and oldest <= record.timestamp <= newest
        ]
    except RecordsError as error:
        raise CorruptData(f"{where}{error}") from error
    return OldEntry(entry.last_offset, int(entry.timestamp_type), records)


def _micros(timestamp_ms: int, on_malformed: str) -> int | None:
    """The value of one time by `fill_rows` and the rules."""
    fits = abs(timestamp_ms) <= MICROS_MS_MAX
    if on_malformed == "null" and (timestamp_ms == NO_TIMESTAMP or not fits):
        return None
    return 1000 * max(-MICROS_MS_MAX, min(timestamp_ms, MICROS_MS_MAX))

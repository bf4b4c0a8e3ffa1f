"""A log as a list of records: what `Log` has to be equal to, whatever happens to it.

Everything is answered by looking at every record. `ModelLog` knows no segments, indexes or files.
"""

from typing import NamedTuple

from protocol.records.layout import NO_TIMESTAMP


class ModelRecord(NamedTuple):
    """One record; `batch_start` is the offset of its batch's first record."""

    offset: int
    timestamp: int
    value: bytes
    batch_start: int


class ModelLog:
    """The records of a log in order, with its start and its end."""

    def __init__(self) -> None:
        self.records: list[ModelRecord] = []
        self.start = 0
        self.end = 0

    def append(self, timestamps: list[int], values: list[bytes]) -> None:
        first = self.end
        for timestamp, value in zip(timestamps, values, strict=True):
            self.records.append(ModelRecord(self.end, timestamp, value, first))
            self.end += 1

    def delete_before(self, offset: int) -> None:
        self.start = max(self.start, offset)

    def visible(self) -> list[ModelRecord]:
        return [record for record in self.records if record.offset >= self.start]

    def find(self, timestamp: int) -> ModelRecord | None:
        return next((r for r in self.visible() if r.timestamp >= timestamp), None)

    def find_max(self) -> ModelRecord | None:
        largest = max((r.timestamp for r in self.visible()), default=NO_TIMESTAMP)
        return None if largest == NO_TIMESTAMP else self.find(largest)

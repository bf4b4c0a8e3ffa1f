"""How disordered a sequence of timestamps is: the one meaning of "late" for all audits.

The *lateness* of a record is how much older it is than the youngest record before it in its
partition. It needs no clock, so it can be found at any time after the append. The Spark job `skew`
computes the same over columns, the broker's /skew record by record.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

LATENESS_MS: Final = (0, 1_000, 60_000, 300_000, 3_600_000, 21_600_000, 86_400_000, 604_800_000)
"""Upper bounds of the histogram's buckets, inclusive; one more bucket holds the rest."""


class Lateness:
    """Counts over the records of one partition, in the order of their offsets.

    Attributes:
        records: how many records had a time.
        out_of_order: how many of them are older than one before.
        largest_step_back_ms: the most by which one is.
        youngest_ms: the youngest time so far, -1 before the first.
        histogram: records by lateness, see `LATENESS_MS`.
    """

    __slots__ = ("histogram", "largest_step_back_ms", "out_of_order", "records", "youngest_ms")

    def __init__(self) -> None:
        """Begin before the first record."""
        self.records = 0
        self.out_of_order = 0
        self.largest_step_back_ms = 0
        self.youngest_ms = -1
        self.histogram = [0] * (len(LATENESS_MS) + 1)

    def add(self, timestamp_ms: int) -> int:
        """Count a record with a time (>= 0); its lateness in ms."""
        self.records += 1
        lateness_ms = self.youngest_ms - timestamp_ms
        if lateness_ms <= 0:
            self.youngest_ms = timestamp_ms
            self.histogram[0] += 1
            return 0
        self.out_of_order += 1
        self.largest_step_back_ms = max(self.largest_step_back_ms, lateness_ms)
        self.histogram[bisect_left(LATENESS_MS, lateness_ms)] += 1
        return lateness_ms


def quantile(histogram: Sequence[int], share: float) -> int:
    """The bound (ms) that `share` of the records are below; -1 beyond the last bound."""
    wanted = share * sum(histogram)
    below = 0
    for bound, count in zip((*LATENESS_MS, -1), histogram, strict=True):
        below += count
        if below >= wanted:
            return bound
    return -1

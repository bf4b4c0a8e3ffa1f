"""The density variants of KIP-33's drafts: the rules for a density file's entries, and their use.

The time index that shipped gets an entry after a number of *bytes*. The drafts went by *time*. A
topic may have one of them beside the shipped index (`time.index.variant`); lookups then start from
it.

| variant      | entry (timestamp, offset)                   | added when                          |
|--------------|---------------------------------------------|-------------------------------------|
| `interval`   | start of a bucket of `time.index.interval.  | a batch is in a bucket above all    |
|              | ms`, last offset of the batch               | before, older segments' too         |
| `minute`     | largest timestamp so far, last offset of    | the offset index gets an entry, and |
|              | the batch that set it                       | the largest timestamp a new minute  |
| `minute-map` | start of a minute, last offset of the first | a batch is in a minute that no      |
|              | batch in it                                 | other was in                        |

`interval` is a later draft; `minute` is option 1 of the first, by LogAppendTime; `minute-map` is
its option 2, by CreateTime.

A batch counts by its largest timestamp, since for the drafts the unit of a log was a message. These
rules make lookups exact, which the drafts did not require:

* `interval`, `minute`: **no batch that ends before an entry's offset is as new as its timestamp.**
  So the last entry not above T is where to start. Entries may be missing; fewer cost a longer scan.
* `minute-map`: minutes come in any order, so the entry of T's own minute is not enough (the draft
  looked at that one): a *later* minute may have begun at a lower offset. **The first entry, in the
  order of the file, of T's minute or a later one** is the least offset of all these minutes. Here
  no entry may be missing, except for minutes that began after a later one, which never decide.

Owns entries in memory and the rules; `storage.segment.density_file` owns the bytes. New entries
gather in memory and are written together with those of the other indexes. An open `minute-map`
keeps all of its entries in memory, as in the draft; the other variants keep only unwritten ones.

Source: KIP-33 drafts. Read next: `storage.log.density_upkeep`, docs/density.md.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import ClassVar, Final

from config import TopicConfig
from protocol.records.layout import NO_TIMESTAMP
from storage.disk.files import Files
from storage.segment.density_file import ENTRY, Coverage, DamagedDensity, DensityFile, DensityHeader
from storage.segment.time_index import TimestampedOffset

MS_PER_MINUTE: Final = 60_000

NO_VARIANT: Final = "none"
"""The value of `time.index.variant` for no density file."""


class Variant(IntEnum):
    """The rules, by their numbers in a file's header."""

    INTERVAL = 1
    MINUTE = 2
    MINUTE_MAP = 3

    @property
    def setting(self) -> str:
        """The value of `time.index.variant`."""
        return self.name.lower().replace("_", "-")


@dataclass(frozen=True, slots=True, kw_only=True)
class DensityRule:
    """A variant and the width of its buckets in ms."""

    variant: Variant
    interval_ms: int

    @classmethod
    def from_config(cls, config: TopicConfig) -> "DensityRule | None":
        """The rule that a topic configures; None for the shipped time index alone, the default."""
        if config.time_index_variant == NO_VARIANT:
            return None
        variant = Variant[config.time_index_variant.upper().replace("-", "_")]
        is_minute = variant is not Variant.INTERVAL
        return cls(
            variant=variant,
            interval_ms=MS_PER_MINUTE if is_minute else config.time_index_interval_ms,
        )


class DensityIndex:
    """The entries of one segment by one rule: the part that the three variants share.

    Lifecycle: `create` or `load`; the segment passes in every batch and index entry, writes out,
    seals and closes. Nothing unsealed survives a restart.

    Attributes:
        rule: the rule.
        base_offset: of the segment.
        stored: the file, with the entries that are written.
    """

    __slots__ = ("_next_ms", "_offsets", "_times", "base_offset", "rule", "stored")

    VARIANT: ClassVar[Variant]

    def __init__(self, rule: DensityRule, base_offset: int, stored: DensityFile) -> None:
        """Continue after the stored entries."""
        self.rule = rule
        self.base_offset = base_offset
        self.stored = stored
        self._times = array("q")
        self._offsets = array("i")
        # The next entry is made at the first timestamp from here on.
        self._next_ms = self._bucket_after(stored.header.carried_ms)
        if stored.count:
            self._next_ms = max(
                self._next_ms, self._bucket_after(stored.entry(stored.count - 1)[0])
            )

    @property
    def count(self) -> int:
        """Number of entries, written out or not."""
        return self.stored.count + len(self._times)

    @property
    def name(self) -> str:
        """The variant's name for people."""
        return self.rule.variant.setting

    def is_full(self, max_bytes: int) -> bool:
        """Whether `segment.index.bytes` has room for no more than a closing entry."""
        return self.count >= max_bytes // ENTRY.size - 1

    def note_batch(self, timestamp: int, last_offset: int) -> None:
        """A batch was appended; `timestamp` is its largest (ms), or NO_TIMESTAMP."""

    def note_entry(self, timestamp: int, offset: int) -> None:
        """The offset index got an entry; the largest timestamp so far is that of `offset`'s batch.

        Called after the `note_batch` of the batches before, and before that of its own batch.
        """

    def close_with(self, timestamp: int, offset: int) -> None:
        """The segment is closed; its largest timestamp is that of `offset`'s batch."""

    def fill(self, points: Iterable[TimestampedOffset]) -> None:
        """Make the entries of an existing segment from its time index.

        There are at most as many as live ones, since less is known, and they are just as correct.
        """
        for timestamp, offset in points:
            if timestamp >= self._next_ms:
                self._add(timestamp, offset)
                self._next_ms = self._bucket_after(timestamp)

    def floor(self, timestamp: int) -> TimestampedOffset:
        """The entry with whose batch the search for `timestamp` (ms) or later must begin.

        No batch that ends before its offset has such a record. Without a usable entry:
        (NO_TIMESTAMP, base offset). Raises OSError.
        """
        if self._times and self._times[0] <= timestamp:
            slot = bisect_right(self._times, timestamp) - 1
            return self._absolute(self._times[slot], self._offsets[slot])
        slot = self.stored.count_up_to(timestamp) - 1
        return self._absolute(*self.stored.entry(slot)) if slot >= 0 else self._nothing()

    def write_out(self) -> None:
        """Write the entries gathered in memory. Raises OSError; they stay in memory then."""
        if not self._times:
            return
        pairs: list[int] = [0] * (2 * len(self._times))
        pairs[0::2] = self._times
        pairs[1::2] = self._offsets
        layout = Struct(">" + ENTRY.format[1:] * len(self._times))
        self.stored.append(layout.pack(*pairs))
        del self._times[:], self._offsets[:]

    def seal(self, coverage: Coverage, max_timestamp_offset: int) -> None:
        """Complete the file: the segment is closed or the log stops, and no batch is missing here.

        What cannot be written is left: without its seal the file is rebuilt when needed.
        """
        self.close_with(coverage.max_timestamp, max_timestamp_offset)
        with suppress(OSError):
            self.write_out()
            self.stored.seal(coverage)

    def release(self) -> None:
        """Release memory that only appends need; nothing is appended any more."""

    def _bucket_after(self, timestamp: int) -> int:
        if timestamp < 0:
            return 0
        interval = self.rule.interval_ms
        return timestamp - timestamp % interval + interval

    def _add(self, timestamp: int, offset: int) -> None:
        self._times.append(timestamp)
        self._offsets.append(offset - self.base_offset)

    def _absolute(self, timestamp: int, relative: int) -> TimestampedOffset:
        return TimestampedOffset(timestamp, self.base_offset + relative)

    def _nothing(self) -> TimestampedOffset:
        return TimestampedOffset(NO_TIMESTAMP, self.base_offset)


class IntervalIndex(DensityIndex):
    """An entry per `time.index.interval.ms`, by the timestamps of the records."""

    __slots__ = ()

    VARIANT = Variant.INTERVAL

    def note_batch(self, timestamp: int, last_offset: int) -> None:
        """An entry for the start of the bucket, if it is above all buckets before."""
        if timestamp >= self._next_ms:
            interval = self.rule.interval_ms
            bucket = timestamp - timestamp % interval
            self._add(bucket, last_offset)
            self._next_ms = bucket + interval

    def close_with(self, timestamp: int, offset: int) -> None:
        """An entry for the largest timestamp, if it is the largest of the log so far."""
        if timestamp < max(self.stored.header.carried_ms, 0):
            return
        if self.count == 0 or self._last_timestamp() < timestamp:
            self._add(timestamp, offset)
            self._next_ms = max(self._next_ms, self._bucket_after(timestamp))

    def _last_timestamp(self) -> int:
        return self._times[-1] if self._times else self.stored.entry(self.stored.count - 1)[0]


class MinuteIndex(DensityIndex):
    """An entry per minute at most, made beside an entry of the offset index."""

    __slots__ = ()

    VARIANT = Variant.MINUTE

    def note_entry(self, timestamp: int, offset: int) -> None:
        """An entry, if the largest timestamp has reached another minute."""
        if timestamp >= self._next_ms:
            self._add(timestamp, offset)
            self._next_ms = self._bucket_after(timestamp)


class MinuteMap(DensityIndex):
    """The first offset of every minute, minutes in any order; all in memory while appended to.

    Minutes above all before them are the *peaks*. A lookup needs no others, since the first entry
    of T's minute or a later one is a peak. The other minutes, *late* ones, are kept because the
    draft kept them, and cost more memory.
    """

    __slots__ = ("_is_open", "_late", "_peak_offsets", "_peaks")

    VARIANT = Variant.MINUTE_MAP

    def __init__(self, rule: DensityRule, base_offset: int, stored: DensityFile) -> None:
        """Continue after the stored entries, which are read."""
        super().__init__(rule, base_offset, stored)
        self._is_open = True
        self._late: set[int] = set()
        self._peaks = array("q")
        self._peak_offsets = array("i")
        self._next_ms = 0
        for minute, relative in stored.entries():
            if minute >= self._next_ms:
                self._add_peak(minute, relative)
            else:
                self._late.add(minute)
        # Lists grown by appending have room to spare; a map that was loaded is likely to stay.
        self._peaks, self._peak_offsets = self._peaks[:], self._peak_offsets[:]

    def note_batch(self, timestamp: int, last_offset: int) -> None:
        """An entry for the minute, if no other batch was in it."""
        assert self._is_open, "appended to a segment that is closed"
        if timestamp >= self._next_ms:
            minute = timestamp - timestamp % MS_PER_MINUTE
            self._add(minute, last_offset)
            self._add_peak(minute, last_offset - self.base_offset)
        elif 0 <= timestamp < self._next_ms - MS_PER_MINUTE:
            minute = timestamp - timestamp % MS_PER_MINUTE
            peak = self._peaks[bisect_left(self._peaks, minute)]
            if minute != peak and minute not in self._late:
                self._add(minute, last_offset)
                self._late.add(minute)

    def fill(self, points: Iterable[TimestampedOffset]) -> None:
        """As in the draft, but from points: a minute begins at or after the previous point."""
        before = self.base_offset
        for timestamp, offset in points:
            if timestamp >= self._next_ms:
                minute = timestamp - timestamp % MS_PER_MINUTE
                self._add(minute, before)
                self._add_peak(minute, before - self.base_offset)
            before = offset

    def floor(self, timestamp: int) -> TimestampedOffset:
        """The first entry of the minute of `timestamp` (ms) or a later one. Raises OSError."""
        minute = timestamp - timestamp % MS_PER_MINUTE
        if self._is_open:
            slot = bisect_left(self._peaks, minute)
            if slot < len(self._peaks):
                return self._absolute(self._peaks[slot], self._peak_offsets[slot])
            return self._nothing()
        for here, relative in self.stored.entries():
            if here >= minute:
                return self._absolute(here, relative)
        return self._nothing()

    def release(self) -> None:
        """Read the map from the file from now on, unless it could not be written."""
        if not self._times:
            self._is_open = False
            self._late = set()
            self._peaks, self._peak_offsets = array("q"), array("i")

    def _add_peak(self, minute: int, relative: int) -> None:
        self._peaks.append(minute)
        self._peak_offsets.append(relative)
        self._next_ms = minute + MS_PER_MINUTE


_CLASSES: Final = {kind.VARIANT: kind for kind in (IntervalIndex, MinuteIndex, MinuteMap)}


def create_density(
    files: Files, path: str, base_offset: int, rule: DensityRule, carried_ms: int
) -> DensityIndex:
    """An index without entries; `carried_ms` is the log's largest timestamp before the segment."""
    is_carried = rule.variant is Variant.INTERVAL
    header = DensityHeader(
        variant=rule.variant,
        interval_ms=rule.interval_ms,
        carried_ms=carried_ms if is_carried else NO_TIMESTAMP,
    )
    return _CLASSES[rule.variant](rule, base_offset, DensityFile(files, path, header))


def load_density(
    files: Files, path: str, base_offset: int, rule: DensityRule, coverage: Coverage
) -> DensityIndex:
    """The index in the file at `path`, after all checks.

    Raises:
        DamagedDensity: it is damaged, follows another rule, or covers another log than `coverage`.
        OSError: it cannot be read.
    """
    stored = DensityFile.load(files, path, coverage)
    if (stored.header.variant, stored.header.interval_ms) != (rule.variant, rule.interval_ms):
        stored.close()
        raise DamagedDensity("it was made by another rule")
    return _CLASSES[rule.variant](rule, base_offset, stored)

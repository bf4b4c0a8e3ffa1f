"""The density variants of KIP-33's drafts: rules for entries, their use, and the density file.

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

New entries gather in memory and are written together with those of the other indexes. An open
`minute-map` keeps all of its entries in memory, as in the draft; the other variants keep only
unwritten ones. The engine knows these indexes by `storage.segment.auxiliary_index` alone.

The file `<base>.density`; integers are big-endian:

| part    | size | fields                                                                          |
|---------|------|---------------------------------------------------------------------------------|
| header  | 28   | `TLDX`, version i8 = 1, variant i8, 0 i16, interval ms i64, carried ms i64, crc |
| entries | 12   | timestamp i64, offset minus base i32: the entry of KIP-33's drafts              |
| seal    | 40   | `TLDS`, entries u32, log size i64, next offset i64, largest timestamp i64,      |
|         |      | CRC-32C of header and entries u32, CRC-32C of the seal u32                      |

The header stores the rule by which the entries were made, because the setting may have changed
since. The seal stores what they cover. It is written when the segment is closed or the log stops
cleanly, and cut off by the first write after that. A file is trusted only if it has a seal,
everything in it is correct, and the log still has the size, the end and the maximum in the seal. A
file that is not trusted is rebuilt (`storage.log.auxiliary_indexes`): everything in it can be
derived from the log and the time index.

Differs from Kafka: it has no such files, and ignores them. It would not ignore the draft's name
`<base>.time.index`: its tools take the last part for that of an offset index.

Source: KIP-33 drafts. See docs/density.md.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from contextlib import suppress
from enum import IntEnum
from struct import Struct
from typing import ClassVar, Final, NamedTuple

from config import TopicConfig
from protocol.records.checksums import crc32c
from protocol.records.layout import INT32_MAX, NO_TIMESTAMP
from storage.disk.file_names import DENSITY_SUFFIX
from storage.disk.files import File, Files
from storage.segment.auxiliary_index import (
    AppendedBatch,
    AuxiliaryIndex,
    Coverage,
    DamagedAuxiliaryIndex,
)
from storage.segment.time_index import TimestampedOffset, TimestampIndex
from values.dataclasses import dataclass

MS_PER_MINUTE: Final = 60_000

NO_VARIANT: Final = "none"
"""The value of `time.index.variant` for no density file."""

MAGIC: Final = b"TLDX"
SEAL_MAGIC: Final = b"TLDS"
VERSION: Final = 1

HEADER: Final = Struct(">4sbbhqqI")
ENTRY: Final = Struct(">qi")
SEAL: Final = Struct(">4sIqqqII")

_CRC_SIZE: Final = 4


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
    """A variant and the width of its buckets in ms; implements `AuxiliaryRule`."""

    SUFFIX: ClassVar[str] = DENSITY_SUFFIX
    GUIDES_LOOKUPS: ClassVar[bool] = True

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

    def create(self, files: Files, path: str, base_offset: int, carried_ms: int) -> "DensityIndex":
        """See `AuxiliaryRule.create`."""
        if self.variant is not Variant.INTERVAL:
            carried_ms = NO_TIMESTAMP
        return _CLASSES[self.variant](files, path, base_offset, self, carried_ms)

    @classmethod
    def load(cls, files: Files, path: str, base_offset: int, coverage: Coverage) -> "DensityIndex":
        """See `AuxiliaryRule.load`."""
        file = files.open(path)
        try:
            stored = parse_density(file.pread(file.size, 0))
            if stored.coverage != coverage:
                raise DamagedAuxiliaryIndex(f"it covers {stored.coverage}, the log is {coverage}")
            if stored.variant not in _CLASSES or stored.interval_ms < 1:
                raise DamagedAuxiliaryIndex(f"its rule {stored.variant} is not known")
            rule = cls(variant=Variant(stored.variant), interval_ms=stored.interval_ms)
            index = rule.create(files, path, base_offset, stored.carried_ms)
            index.adopt(file, stored.entries, coverage)
        except BaseException:
            file.close()
            raise
        return index


class DensityIndex(TimestampIndex, AuxiliaryIndex):
    """The entries of one segment by one rule: the part that the three variants share.

    Its file has a header before the entries, and a seal after them while it is complete. There is
    no file before the first write, which replaces an untrusted one. Nothing unsealed survives a
    restart.

    Attributes:
        interval_ms: the width of a bucket.
        carried_ms: the largest timestamp of the log before the segment, or NO_TIMESTAMP.
    """

    __slots__ = ("_is_torn", "_next_ms", "_sealed", "carried_ms", "interval_ms", "rule")

    SUFFIX = DENSITY_SUFFIX
    VARIANT: ClassVar[Variant]

    def __init__(
        self, files: Files, path: str, base_offset: int, rule: DensityRule, carried_ms: int
    ) -> None:
        """An index without entries."""
        super().__init__(files, path, base_offset, is_new=True)
        self.rule: DensityRule = rule
        self.interval_ms = rule.interval_ms
        self.carried_ms = carried_ms
        # The next entry is made at the first timestamp from here on.
        self._next_ms = self._bucket_after(carried_ms)
        self._is_torn = False
        self._sealed: Coverage | None = None

    def adopt(self, file: File, entries: bytes, coverage: Coverage) -> None:
        """Continue after the entries of a file that has been verified."""
        self._file = file
        self._written = self.count = len(entries) // ENTRY.size
        self._sealed = coverage
        if self._written:
            self._last = ENTRY.unpack(entries[-ENTRY.size :])
            self._next_ms = max(self._next_ms, self._bucket_after(self._last[0]))

    def close_with(self, timestamp: int, offset: int) -> None:
        """The segment is closed; its largest timestamp is that of `offset`'s batch."""

    def fill(self, points: Iterable[TimestampedOffset], coverage: Coverage) -> None:
        """See `AuxiliaryIndex.fill`.

        There are at most as many as live ones, since less is known, and they are just as correct.
        """
        for timestamp, offset in points:
            if timestamp >= self._next_ms:
                self._add(timestamp, offset)
                self._next_ms = self._bucket_after(timestamp)

    def write_out(self) -> None:
        """Write the entries gathered in memory. Raises OSError; they stay in memory then."""
        if self._first:
            self._write(self._encode_tail())
            self._forget_tail()

    def seal(self, coverage: Coverage, max_timestamp_offset: int) -> None:
        """See `AuxiliaryIndex.seal`."""
        self.close_with(coverage.max_timestamp, max_timestamp_offset)
        with suppress(OSError):
            self.write_out()
            if self._sealed != coverage:
                crc = self.checksum(crc32c(self._header()))
                self._write(encode_seal(self._written, coverage, crc))
                self._sealed = coverage

    def _bucket_after(self, timestamp: int) -> int:
        if timestamp < 0:
            return 0
        return timestamp - timestamp % self.interval_ms + self.interval_ms

    def _add(self, timestamp: int, offset: int) -> None:
        relative = offset - self.base_offset
        assert 0 <= relative <= INT32_MAX, f"offset {offset} does not fit base {self.base_offset}"
        assert not self._first or relative >= self._second[-1], f"offset {offset} is below the last"
        self.add(timestamp, relative)

    def _header(self) -> bytes:
        return encode_header(self.VARIANT, self.interval_ms, self.carried_ms)

    def _write(self, data: bytes) -> None:
        """Write `data` after the entries; a seal, or the rest of a failed write, is cut off."""
        if self._file is None:
            if self._files.exists(self.path):
                self._files.unlink(self.path)
            self._file = self._files.create(self.path)
        end = HEADER.size + self._written * ENTRY.size
        if not self._written:
            data, end = self._header() + data, 0
        if self._is_torn or self._file.size != end:
            self._file.truncate(end)
        self._sealed, self._is_torn = None, True
        self._file.append(data)
        self._is_torn = False

    def _pread(self, size: int, position: int) -> bytes:
        return super()._pread(size, HEADER.size + position)


class IntervalIndex(DensityIndex):
    """An entry per `time.index.interval.ms`, by the timestamps of the records."""

    __slots__ = ()

    VARIANT = Variant.INTERVAL
    NAME = VARIANT.setting

    def note_batch(self, batch: AppendedBatch, position: int, min_timestamp: int) -> None:
        """An entry for the start of the bucket, if it is above all buckets before."""
        timestamp = batch.max_timestamp if batch.records_count else NO_TIMESTAMP
        if timestamp >= self._next_ms:
            self._add(timestamp - timestamp % self.interval_ms, batch.last_offset)
            self._next_ms = self._bucket_after(timestamp)

    def close_with(self, timestamp: int, offset: int) -> None:
        """An entry for the largest timestamp, if it is the largest of the log so far."""
        if timestamp < max(self.carried_ms, 0):
            return
        last = self.load_last()
        if last is None or last[0] < timestamp:
            self._add(timestamp, offset)
            self._next_ms = max(self._next_ms, self._bucket_after(timestamp))


class MinuteIndex(DensityIndex):
    """An entry per minute at most, made beside an entry of the offset index."""

    __slots__ = ()

    VARIANT = Variant.MINUTE
    NAME = VARIANT.setting

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
    NAME = VARIANT.setting

    def __init__(
        self, files: Files, path: str, base_offset: int, rule: DensityRule, carried_ms: int
    ) -> None:
        """A map without minutes."""
        super().__init__(files, path, base_offset, rule, carried_ms)
        self._is_open = True
        self._late: set[int] = set()
        self._peaks = array("q")
        self._peak_offsets = array("i")

    def adopt(self, file: File, entries: bytes, coverage: Coverage) -> None:
        """Continue after the entries of a file, which are kept in memory."""
        super().adopt(file, entries, coverage)
        self._next_ms = 0
        for minute, relative in ENTRY.iter_unpack(entries):
            if minute >= self._next_ms:
                self._add_peak(minute, relative)
            else:
                self._late.add(minute)
        # Lists grown by appending have room to spare; a map that was loaded is likely to stay.
        self._peaks, self._peak_offsets = self._peaks[:], self._peak_offsets[:]

    def note_batch(self, batch: AppendedBatch, position: int, min_timestamp: int) -> None:
        """An entry for the minute, if no other batch was in it."""
        assert self._is_open, "appended to a segment that is closed"
        timestamp = batch.max_timestamp if batch.records_count else NO_TIMESTAMP
        last_offset = batch.last_offset
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

    def fill(self, points: Iterable[TimestampedOffset], coverage: Coverage) -> None:
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
                return TimestampedOffset(
                    self._peaks[slot], self.base_offset + self._peak_offsets[slot]
                )
            return self._nothing()
        for here, relative in self.entries():
            if here >= minute:
                return TimestampedOffset(here, self.base_offset + relative)
        return self._nothing()

    def release(self) -> None:
        """Read the map from the file from now on, unless it could not be written."""
        if not self._first:
            self._is_open = False
            self._late = set()
            self._peaks, self._peak_offsets = array("q"), array("i")

    def _add_peak(self, minute: int, relative: int) -> None:
        self._peaks.append(minute)
        self._peak_offsets.append(relative)
        self._next_ms = minute + MS_PER_MINUTE


_CLASSES: Final = {kind.VARIANT: kind for kind in (IntervalIndex, MinuteIndex, MinuteMap)}


# --- the file -----------------------------------------------------------------------------------


class DensityContent(NamedTuple):
    """A whole file, its checksums verified.

    Attributes:
        variant: the number of the rule; see `Variant`.
        interval_ms: the width of a bucket.
        carried_ms: the largest timestamp of the log before the segment, or NO_TIMESTAMP.
        entries: the bytes of whole entries.
        coverage: what the seal says; None when there is none.
    """

    variant: int
    interval_ms: int
    carried_ms: int
    entries: bytes
    coverage: Coverage | None


def encode_header(variant: int, interval_ms: int, carried_ms: int) -> bytes:
    """The first bytes of a file; the fields are those of `DensityContent`."""
    return _summed(HEADER.pack(MAGIC, VERSION, variant, 0, interval_ms, carried_ms, 0))


def encode_seal(count: int, coverage: Coverage, crc: int) -> bytes:
    """The seal after `count` entries; `crc` is the CRC-32C of all bytes before it."""
    return _summed(SEAL.pack(SEAL_MAGIC, count, *coverage, crc, 0))


def parse_density(content: bytes) -> DensityContent:
    """Parse the content of a file.

    Raises:
        DamagedAuxiliaryIndex: it is too short, of another version, cut off, or a checksum is wrong.
    """
    if len(content) < HEADER.size:
        raise DamagedAuxiliaryIndex(f"{len(content)} bytes are no header")
    magic, version, *rule, _ = HEADER.unpack_from(content)
    if magic != MAGIC or not _is_summed(content[: HEADER.size]):
        raise DamagedAuxiliaryIndex("the header is damaged")
    if version != VERSION:
        raise DamagedAuxiliaryIndex(f"version {version} is not known")
    variant, _, interval_ms, carried_ms = rule
    body = content[HEADER.size :]
    if len(body) < SEAL.size or not body[-SEAL.size :].startswith(SEAL_MAGIC):
        entries = body[: len(body) - len(body) % ENTRY.size]
        return DensityContent(variant, interval_ms, carried_ms, entries, None)
    entries, seal = body[: -SEAL.size], body[-SEAL.size :]
    _, count, *coverage, entries_crc, _ = SEAL.unpack(seal)
    if not _is_summed(seal):
        raise DamagedAuxiliaryIndex("the seal is damaged")
    if count * ENTRY.size != len(entries) or entries_crc != crc32c(content[: -SEAL.size]):
        raise DamagedAuxiliaryIndex("the entries are not those that were sealed")
    return DensityContent(variant, interval_ms, carried_ms, entries, Coverage(*coverage))


def _summed(part: bytes) -> bytes:
    """The part with the CRC-32C of the other bytes in its last four."""
    return part[:-_CRC_SIZE] + crc32c(part[:-_CRC_SIZE]).to_bytes(_CRC_SIZE, "big")


def _is_summed(part: bytes) -> bool:
    return _summed(part) == part

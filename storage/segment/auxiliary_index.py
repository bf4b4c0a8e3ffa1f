"""What the engine requires of an auxiliary index: an optional index besides Kafka's three.

An auxiliary index observes the batches of one segment. It is derived from the log and the time
index, so it may be missing at any time, and no failure of it fails an append, a lookup or a start.
A kind that *guides lookups* gives lookups by time another place to start from. It never changes an
answer: the search continues from there by offset index and scan.

A kind is a class of `AuxiliaryRule`, listed in `storage.log.auxiliary_indexes`, which keeps the
indexes of one log. `Segment` passes batches on to them, writes them out, seals, renames and closes
them. `fsck` and `dump-segment` check the files with code of their own (`storage.audit.auxiliary`).
"""

from collections.abc import Iterable
from typing import ClassVar, NamedTuple, Protocol, Self

from config import TopicConfig
from storage.disk.files import File, Files
from storage.segment.time_index import TimestampedOffset


class DamagedAuxiliaryIndex(Exception):
    """The file differs from what was sealed, or does not belong to the current log."""


class Coverage(NamedTuple):
    """The state of a segment's log when the entries of an index were complete."""

    size_bytes: int
    next_offset: int
    max_timestamp: int


class AppendedBatch(Protocol):
    """What an index sees of a batch: an `Entry`, or the `PlainBatch` of the lane."""

    @property
    def size(self) -> int:
        """Its bytes."""

    @property
    def last_offset(self) -> int:
        """The offset of its last record."""

    @property
    def attributes(self) -> int:
        """The attributes of its header."""

    @property
    def records_count(self) -> int:
        """How many records it has."""

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of its records (ms)."""


class AuxiliaryRule(Protocol):
    """What a topic configures for one kind of index. Indexes by equal rules are interchangeable."""

    SUFFIX: ClassVar[str]
    """Of the files; one of `storage.disk.file_names.AUXILIARY_SUFFIXES`."""
    GUIDES_LOOKUPS: ClassVar[bool]
    """Whether lookups start from these indexes: closed segments get theirs when one is needed."""

    @classmethod
    def from_config(cls, config: TopicConfig) -> Self | None:
        """The rule that a topic configures; None when it has no index of this kind."""

    def create(
        self, files: Files, path: str, base_offset: int, carried_ms: int
    ) -> "AuxiliaryIndex":
        """An index without entries, and without a file until the first write.

        `carried_ms` is the log's largest timestamp before the segment, or NO_TIMESTAMP.
        """

    @classmethod
    def load(
        cls, files: Files, path: str, base_offset: int, coverage: Coverage
    ) -> "AuxiliaryIndex":
        """The index in an existing file, by whatever rule of this kind, after all checks.

        Raises DamagedAuxiliaryIndex when the file must not be trusted, or OSError.
        """


class AuxiliaryIndex:
    """One auxiliary index of one segment. One writer, which also reads.

    Attributes:
        SUFFIX: of its file.
        NAME: for explanations of lookups.
        rule: the rule that the entries follow.
        path: of its file; the file may not exist.
    """

    __slots__ = ()

    SUFFIX: ClassVar[str]
    NAME: ClassVar[str]
    rule: AuxiliaryRule
    path: str

    @property
    def file(self) -> File | None:
        """The file, for syncing; None when there is nothing to sync."""
        return None

    def is_full(self, max_bytes: int) -> bool:
        """Whether an index file of `max_bytes` has no more room, so that the segment must roll."""
        return False

    def floor(self, timestamp: int) -> TimestampedOffset | None:
        """The entry with whose batch the search for `timestamp` or later must begin.

        No batch that ends before its offset has such a record. None for a kind that does not guide
        lookups. Raises OSError.
        """
        return None

    def note_entry(self, timestamp: int, offset: int) -> None:
        """The offset index got an entry; the largest timestamp so far is that of `offset`'s batch.

        Called after the `note_batch` of the batches before, and before that of its own batch.
        """

    def note_batch(self, batch: AppendedBatch, position: int, min_timestamp: int) -> None:
        """A batch was appended at `position` of the log.

        No record in it is older than `min_timestamp` (ms): exactly the oldest one's time if it came
        alone, UNKNOWN_MINIMUM where nothing is known.
        """

    def fill(self, points: Iterable[TimestampedOffset], coverage: Coverage) -> None:
        """Make the entries of an existing segment, by the points of its time index."""
        raise NotImplementedError

    def write_out(self) -> None:
        """Write the entries gathered in memory. Raises OSError; they stay in memory then."""

    def seal(self, coverage: Coverage, max_timestamp_offset: int) -> None:
        """Complete the file: the segment is closed or the log stops, and no batch is missing here.

        What cannot be written is left: without its seal the file is rebuilt when needed.
        """
        raise NotImplementedError

    def release(self) -> None:
        """Release memory that only appends need; nothing is appended any more."""

    def move_to(self, path: str) -> None:
        """Rename the file; it stays open. Raises OSError."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the descriptor; entries not written out are gone."""

"""What the engine requires of an auxiliary index: an optional index besides Kafka's three.

An auxiliary index gives lookups by time another place to start from. It never changes an answer:
the search continues from there by offset index and scan. It is derived from the log and the time
index, so it may be missing at any time, and no failure of it fails an append, a lookup or a start.

A kind is a class of `AuxiliaryRule`, listed in `storage.log.auxiliary_indexes`, which keeps the
indexes of one log. `Segment` passes batches on to them, writes them out, seals, renames and closes
them. `fsck` and `dump-segment` check the files with code of their own (`storage.audit.auxiliary`).
"""

from collections.abc import Iterable
from typing import ClassVar, NamedTuple, Protocol, Self

from config import TopicConfig
from storage.disk.files import Files
from storage.segment.time_index import TimestampedOffset, TimestampIndex


class DamagedAuxiliaryIndex(Exception):
    """The file differs from what was sealed, or does not belong to the current log."""


class Coverage(NamedTuple):
    """The state of a segment's log when the entries of an index were complete."""

    size_bytes: int
    next_offset: int
    max_timestamp: int


class AuxiliaryRule(Protocol):
    """What a topic configures for one kind of index. Indexes by equal rules are interchangeable."""

    SUFFIX: ClassVar[str]
    """Of the files; one of `storage.disk.file_names.AUXILIARY_SUFFIXES`."""

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


class AuxiliaryIndex(TimestampIndex):
    """One auxiliary index of one segment. One writer, which also reads.

    `floor(T)` is the entry with whose batch the search for T or later must begin: no batch that
    ends before its offset has such a record.

    Attributes:
        rule: the rule that the entries follow.
    """

    __slots__ = ("rule",)

    def __init__(self, files: Files, path: str, base_offset: int, rule: AuxiliaryRule) -> None:
        """An index without entries; the first write replaces a file at `path`."""
        super().__init__(files, path, base_offset, is_new=True)
        self.rule = rule

    def note_entry(self, timestamp: int, offset: int) -> None:
        """The offset index got an entry; the largest timestamp so far is that of `offset`'s batch.

        Called after the `note_batch` of the batches before, and before that of its own batch.
        """

    def note_batch(self, timestamp: int, last_offset: int) -> None:
        """A batch was appended; `timestamp` is its largest (ms), or NO_TIMESTAMP."""

    def fill(self, points: Iterable[TimestampedOffset]) -> None:
        """Make the entries of an existing segment from those of its time index."""
        raise NotImplementedError

    def seal(self, coverage: Coverage, max_timestamp_offset: int) -> None:
        """Complete the file: the segment is closed or the log stops, and no batch is missing here.

        What cannot be written is left: without its seal the file is rebuilt when needed.
        """
        raise NotImplementedError

    def release(self) -> None:
        """Release memory that only appends need; nothing is appended any more."""

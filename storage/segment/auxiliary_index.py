"""The contract between the engine and auxiliary indexes: optional indexes besides Kafka's three.

An auxiliary index gives lookups by time another place to start from. It never changes an answer:
the search continues from there by offset index and scan. It is derived from the log and the time
index, so it may be missing at any time, and no failure of it fails an append, a lookup or a start.

| event                                       | call                                            |
|---------------------------------------------|-------------------------------------------------|
| the offset index gets an entry              | `AuxiliaryIndex.note_entry`                     |
| a batch is appended                         | `AuxiliaryIndex.note_batch`                     |
| the log decides whether to roll             | `AuxiliaryIndex.is_full`                        |
| index entries are written to files          | `AuxiliaryIndex.write_out`                      |
| the segment is closed, the log is stopped   | `AuxiliaryIndex.seal`                           |
| nothing is appended to the segment any more | `AuxiliaryIndex.release`                        |
| a time is looked up                         | `AuxiliaryIndex.floor`, `name`                  |
| files are synced, renamed, closed           | `AuxiliaryIndex.file`, `path`, `SUFFIX`,`close` |
| a topic is configured                       | `AuxiliaryKind.rule_of`                         |
| a segment is created                        | `AuxiliaryRule.create`                          |
| an existing segment needs the index         | `AuxiliaryKind.load`; else `create` and `fill`  |

The engine knows only this module. `storage.log.auxiliary_indexes` lists the kinds and keeps the
indexes of one log. `fsck` and `dump-segment` check the files with code of their own
(`storage.audit.auxiliary`). Read next: `storage.segment.segment`.
"""

from collections.abc import Callable, Iterable
from typing import ClassVar, NamedTuple, Protocol

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


class SegmentIndex(Protocol):
    """The file of any index of a segment; the offset, time and transaction index have this too."""

    SUFFIX: ClassVar[str]
    path: str

    @property
    def file(self) -> File | None:
        """The open file, for syncing and renaming; None while there is none."""

    def close(self) -> None:
        """Close the descriptor; entries not written out are gone."""


class AuxiliaryIndex(SegmentIndex, Protocol):
    """One auxiliary index of one segment. One writer, which also reads."""

    @property
    def rule(self) -> "AuxiliaryRule":
        """The rule that its entries follow."""

    @property
    def name(self) -> str:
        """Its name for people."""

    def note_entry(self, timestamp: int, offset: int) -> None:
        """The offset index got an entry; the largest timestamp so far is that of `offset`'s batch.

        Called after the `note_batch` of the batches before, and before that of its own batch.
        """

    def note_batch(self, timestamp: int, last_offset: int) -> None:
        """A batch was appended; `timestamp` is its largest (ms), or NO_TIMESTAMP."""

    def fill(self, points: Iterable[TimestampedOffset]) -> None:
        """Make the entries of an existing segment from those of its time index."""

    def is_full(self, max_bytes: int) -> bool:
        """Whether `segment.index.bytes` has room for no more than a closing entry."""

    def floor(self, timestamp: int) -> TimestampedOffset:
        """The entry with whose batch the search for `timestamp` (ms) or later must begin.

        No batch that ends before its offset has such a record. Without a usable entry:
        (NO_TIMESTAMP, base offset). Raises OSError.
        """

    def write_out(self) -> None:
        """Write the entries gathered in memory. Raises OSError; they stay in memory then."""

    def seal(self, coverage: Coverage, max_timestamp_offset: int) -> None:
        """Complete the file: the segment is closed or the log stops, and no batch is missing here.

        What cannot be written is left: without its seal the file is rebuilt when needed.
        """

    def release(self) -> None:
        """Release memory that only appends need; nothing is appended any more."""


class AuxiliaryRule(Protocol):
    """What a topic configures for one kind of index. Indexes by equal rules are interchangeable."""

    def create(self, files: Files, path: str, base_offset: int, carried_ms: int) -> AuxiliaryIndex:
        """An index without entries, and without a file until the first write.

        `carried_ms` is the log's largest timestamp before the segment, or NO_TIMESTAMP.
        """


class AuxiliaryKind(NamedTuple):
    """A kind of auxiliary index.

    Attributes:
        suffix: of its files; one of `storage.disk.file_names.AUXILIARY_SUFFIXES`.
        rule_of: the rule that a topic configures; None when it has no index of this kind.
        load: (files, path, base offset, coverage) to the index in an existing file, after all
            checks. Raises DamagedAuxiliaryIndex when the file must not be trusted, or OSError.
    """

    suffix: str
    rule_of: Callable[[TopicConfig], AuxiliaryRule | None]
    load: Callable[[Files, str, int, Coverage], AuxiliaryIndex]

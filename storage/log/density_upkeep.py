"""The density files of a log's segments: which segments have one, and where it comes from.

Owns the decision per segment, for one log: make an index with a new segment, trust the existing
file, or rebuild it. The rules are in `storage.segment.density`, the bytes in
`storage.segment.density_file`.

| the segment                       | its density file                                             |
|-----------------------------------|--------------------------------------------------------------|
| is new                            | grows with it                                                |
| was there when the log was opened | is verified before its first use, else rebuilt               |
| has one of another setting        | is rebuilt when next needed                                  |
| of a topic without a variant      | is removed: at once when the setting changes, else at start  |

*Rebuilt* means from the time index, which is small, and not from the log: the result has at most as
many entries and is just as correct. So no error here can fail a start, an append or a lookup. A
file that cannot be written is kept in memory; for one that cannot be read, the time index answers.

A start after a crash removes the density files of all segments that recovery reads again, and those
of other segments that do not verify (`storage.recovery.recovery`).

Read next: `storage.log.lookup`, which starts from these files; `storage.segment.segment`, which
feeds them.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress

from protocol.records.layout import NO_TIMESTAMP
from storage.disk.file_names import DENSITY_SUFFIX
from storage.disk.files import Files
from storage.log.flush import Unsynced
from storage.segment.density import DensityIndex, DensityRule, create_density, load_density
from storage.segment.density_file import DamagedDensity
from storage.segment.segment import Segment
from storage.segment.time_index import TimestampedOffset


class DensityUpkeep:
    """The density files of one log. Same thread as the log.

    Attributes:
        rule: the variant that the topic has configured; None means none, and costs nothing.
    """

    __slots__ = ("_files", "_unsynced", "rule")

    def __init__(self, files: Files, unsynced: Unsynced) -> None:
        """No density files until `configure`."""
        self._files = files
        self._unsynced = unsynced
        self.rule: DensityRule | None = None

    def configure(self, rule: DensityRule | None, segments: Iterable[Segment]) -> None:
        """Apply another setting; the last of `segments` is the active one."""
        before, self.rule = self.rule, rule
        if rule is None:
            if before is not None:
                for segment in segments:
                    self._remove(segment)
            return
        *_, active = segments
        if active.indexes_verified:
            self.ensure(active, is_active=True)

    def begin(self, segment: Segment, *, carried_ms: int = NO_TIMESTAMP) -> None:
        """Give an empty segment its index; `carried_ms` is the log's largest timestamp before it.

        When the file cannot be made, the segment has none: a roll does not fail for it.
        """
        if self.rule is not None:
            with suppress(OSError):
                segment.density = self._create(segment, self.rule, carried_ms)

    def ensure(self, segment: Segment, *, is_active: bool) -> None:
        """Give a segment whose time index is verified a density index, if it has none yet.

        When the time index cannot be read, the segment has none.
        """
        rule, index = self.rule, segment.density
        if rule is None or (index is not None and index.rule == rule):
            return
        self._drop(segment)
        with suppress(OSError):
            index = self._load(segment, rule) or self._make(segment, rule, is_active)
            if not is_active:
                index.release()
            segment.density = index

    def _load(self, segment: Segment, rule: DensityRule) -> DensityIndex | None:
        path = segment.path(DENSITY_SUFFIX)
        with suppress(DamagedDensity, OSError):
            if self._files.exists(path):
                return load_density(
                    self._files, path, segment.base_offset, rule, segment.coverage()
                )
        return None

    def _make(self, segment: Segment, rule: DensityRule, is_active: bool) -> DensityIndex:
        index = self._create(segment, rule, NO_TIMESTAMP)
        index.fill(_points(segment))
        if not is_active:
            index.seal(segment.coverage(), segment.max_timestamp_offset)
            self._unsynced.add_created(index.stored.file)
        return index

    def _create(self, segment: Segment, rule: DensityRule, carried_ms: int) -> DensityIndex:
        path = segment.path(DENSITY_SUFFIX)
        return create_density(self._files, path, segment.base_offset, rule, carried_ms)

    def _drop(self, segment: Segment) -> None:
        """Drop the index; no flush may wait for an unused file, which could not be opened again."""
        if segment.density is not None:
            stored, segment.density = segment.density.stored, None
            if stored.file is not None:
                self._unsynced.forget((stored.file,))
            stored.close()

    def _remove(self, segment: Segment) -> None:
        self._drop(segment)
        path = segment.path(DENSITY_SUFFIX)
        with suppress(OSError):
            if self._files.exists(path):
                self._files.unlink(path)


def _points(segment: Segment) -> Iterator[TimestampedOffset]:
    """The entries of the time index, and the maximum that is ahead of them."""
    timestamp = NO_TIMESTAMP
    for timestamp, relative in segment.time_index.entries():
        yield TimestampedOffset(timestamp, segment.base_offset + relative)
    if segment.max_timestamp > timestamp:
        yield TimestampedOffset(segment.max_timestamp, segment.max_timestamp_offset)

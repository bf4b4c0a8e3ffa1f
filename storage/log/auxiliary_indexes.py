"""The auxiliary indexes of a log's segments: which segments have one, and where it comes from.

Owns the list of kinds, and the decision per segment, for one log: make an index with a new segment,
trust the existing file, or rebuild it. Refuses to know what an index contains: it reaches them
through `storage.segment.auxiliary_index` only.

| the segment                       | its file of a kind                                           |
|-----------------------------------|--------------------------------------------------------------|
| is new                            | grows with it                                                |
| was there when the log was opened | is verified before its first use, else rebuilt               |
| is closed, the kind guides none   | is used when counts are asked for (`storage.log.histogram`)  |
| has one by another rule           | is rebuilt when next needed                                  |
| of a topic without this kind      | is removed: at once when the setting changes, else at start  |

*Rebuilt* means from the time index, which is small, and not from the log: the result has at most as
many entries and is just as correct. So no error here can fail a start, an append or a lookup. A
file that cannot be written is kept in memory; for one that cannot be read, the time index answers.

A start after a crash removes the files of all segments that recovery reads again, and those of
other segments that do not verify (`storage.recovery.recovery`).
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Final

from config import TopicConfig
from protocol.records.layout import NO_TIMESTAMP
from storage.disk.files import Files
from storage.log.flush import Unsynced
from storage.segment.auxiliary_index import (
    AuxiliaryIndex,
    AuxiliaryRule,
    DamagedAuxiliaryIndex,
)
from storage.segment.density import DensityRule
from storage.segment.segment import Segment
from storage.segment.time_counts import TimeCountsRule
from storage.segment.time_index import TimestampedOffset

KINDS: Final[tuple[type[AuxiliaryRule], ...]] = (DensityRule, TimeCountsRule)


@lru_cache(maxsize=64)
def _rules_of(config: TopicConfig) -> tuple[AuxiliaryRule, ...]:
    """The rules of a topic, one for each kind that it has; its logs share them."""
    rules = [kind.from_config(config) for kind in KINDS]
    return tuple(rule for rule in rules if rule is not None)


class AuxiliaryIndexes:
    """The auxiliary indexes of one log. Same thread as the log.

    Attributes:
        rules: what the topic has configured, one for each kind that it has.
        guides: those of them from whose indexes lookups start; none costs a lookup nothing.
    """

    __slots__ = ("_files", "_unsynced", "guides", "rules")

    def __init__(self, files: Files, unsynced: Unsynced) -> None:
        """No indexes until `configure`."""
        self._files = files
        self._unsynced = unsynced
        self.rules: tuple[AuxiliaryRule, ...] = ()
        self.guides: tuple[AuxiliaryRule, ...] = ()

    def configure(self, config: TopicConfig, segments: Iterable[Segment]) -> None:
        """Apply other settings; the last of `segments` is the active one."""
        before = {rule.SUFFIX for rule in self.rules}
        self.rules = _rules_of(config)
        self.guides = tuple(rule for rule in self.rules if rule.GUIDES_LOOKUPS)
        for suffix in before - {rule.SUFFIX for rule in self.rules}:
            for segment in segments:
                self._remove(segment, suffix)
        *_, active = segments
        if active.indexes_verified:
            self.ensure(active, is_active=True)

    def begin(self, segment: Segment, *, carried_ms: int = NO_TIMESTAMP) -> None:
        """Give an empty segment its indexes; `carried_ms` is the log's largest timestamp before it.

        No file is written yet, so a roll does not fail for it.
        """
        segment.auxiliary = tuple(self._create(segment, rule, carried_ms) for rule in self.rules)

    def ensure(self, segment: Segment, *, is_active: bool) -> None:
        """Give a segment whose time index is verified the indexes that it does not have yet.

        A closed segment gets only those that guide lookups. When the time index cannot be read, the
        segment has none.
        """
        for rule in self.rules if is_active else self.guides:
            index = _find(segment, rule.SUFFIX)
            if index is not None and index.rule == rule:
                continue
            self._drop(segment, rule.SUFFIX)
            with suppress(OSError):
                index = load_index(self._files, segment, type(rule))
                if index is None or index.rule != rule:
                    if index is not None:
                        index.close()
                    index = self._make(segment, rule, is_active)
                if not is_active:
                    index.release()
                segment.auxiliary += (index,)

    def _make(self, segment: Segment, rule: AuxiliaryRule, is_active: bool) -> AuxiliaryIndex:
        index = self._create(segment, rule, NO_TIMESTAMP)
        index.fill(_points(segment), segment.coverage())
        if not is_active:
            index.seal(segment.coverage(), segment.max_timestamp_offset)
            self._unsynced.add_created(index.file)
        return index

    def _create(self, segment: Segment, rule: AuxiliaryRule, carried_ms: int) -> AuxiliaryIndex:
        path = segment.path(rule.SUFFIX)
        return rule.create(self._files, path, segment.base_offset, carried_ms)

    def _drop(self, segment: Segment, suffix: str) -> None:
        """Drop the index; no flush may wait for an unused file, which could not be opened again."""
        index = _find(segment, suffix)
        if index is not None:
            segment.auxiliary = tuple(other for other in segment.auxiliary if other is not index)
            if index.file is not None:
                self._unsynced.drop((index.file,))
            index.close()

    def _remove(self, segment: Segment, suffix: str) -> None:
        self._drop(segment, suffix)
        path = segment.path(suffix)
        with suppress(OSError):
            if self._files.exists(path):
                self._files.unlink(path)


def load_index(files: Files, segment: Segment, kind: type[AuxiliaryRule]) -> AuxiliaryIndex | None:
    """The index in the segment's file; None when there is none, or none that can be trusted."""
    path = segment.path(kind.SUFFIX)
    with suppress(DamagedAuxiliaryIndex, OSError):
        if files.exists(path):
            return kind.load(files, path, segment.base_offset, segment.coverage())
    return None


def _find(segment: Segment, suffix: str) -> AuxiliaryIndex | None:
    return next((index for index in segment.auxiliary if suffix == index.SUFFIX), None)


def _points(segment: Segment) -> Iterator[TimestampedOffset]:
    """The entries of the time index, and the maximum that is ahead of them."""
    timestamp = NO_TIMESTAMP
    for timestamp, relative in segment.time_index.entries():
        yield TimestampedOffset(timestamp, segment.base_offset + relative)
    if segment.max_timestamp > timestamp:
        yield TimestampedOffset(segment.max_timestamp, segment.max_timestamp_offset)

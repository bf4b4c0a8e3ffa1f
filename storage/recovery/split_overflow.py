"""Segments that span more offsets than an index can store: split when a directory is opened.

An index stores offsets relative to the segment's base in 31 bits. No segment written here spans
more, but directories of Kafka may have such segments. Kafka's compaction merged small segments
without a check (KAFKA-6264), and large gaps can have the same effect. Such a segment cannot be
indexed, so it is rewritten into several before anything else is read:

    part 0   base of the segment       entries up to 2^31-1 offsets above it
    part 1   one above part 0's end, or the base of its first entry if that is too far above
    ...

If the first entry is too far above the base, because compaction has emptied the part before it,
part 0 gets a batch without records: the start of the log does not move.

Crash safety is that of a rewrite (`storage.segment.swap`). The parts are written as `.cleaned` and
synced, then renamed `.swap` from the last one to the first, each durably before the next. The
rename of the first part decides, and `storage.recovery.temporary_files` does the rest. Bytes after
the last whole entry are copied too, for recovery to judge.

Source: Kafka `LocalLog.splitOverflowedSegment`.
"""

from itertools import pairwise
from typing import Final

from protocol.records.builder import build_empty_batch
from protocol.records.entry_loops import STOP_CORRUPT, check_entries
from protocol.records.layout import INT32_MAX, INT64_MAX, MAGIC_V2
from protocol.records.scan import Entry, scan_entries
from storage.disk.file_names import (
    CLEANED_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    MANIFEST_NAME,
    SWAP_SUFFIX,
    parsed_names,
)
from storage.disk.files import sync_file
from storage.errors import CorruptLog
from storage.recovery.opening import DirectoryOpening
from storage.recovery.temporary_files import finish_rewrites
from storage.segment.facts import UNKNOWN, SegmentFacts
from storage.segment.segment import Segment
from values.dataclasses import dataclass

_COPY_BYTES: Final = 1 << 20


@dataclass(slots=True, kw_only=True)
class _Part:
    """The content of one new segment: `cuts` are positions between entries, ends included."""

    base_offset: int
    cuts: list[int]


def split_overflowing(opening: DirectoryOpening) -> None:
    """Rewrite the segments of the directory that need it; updates `opening.names`.

    Raises OSError.
    """
    parsed = parsed_names(opening.names)
    bases = sorted(name.base_offset for name in parsed if name.kind == LOG_SUFFIX)
    suspects = [base for base, following in pairwise(bases) if following - 1 - base > INT32_MAX]
    if bases and MANIFEST_NAME not in opening.names:
        # Only its entries show where the last one ends; a directory with a manifest was checked
        # before.
        suspects.append(bases[-1])
    facts: list[SegmentFacts] = []
    for base in suspects:
        old = Segment.open(opening.files, opening.path, base, now_ms=opening.now_ms)
        try:
            known = opening.manifest.facts.get(base)
            if (known is None or known.size_bytes != old.size) and _overflows(old):
                facts += _split(opening, old, _plan(old))
        finally:
            old.close()
    # Only now: a start that finds a manifest skips this check.
    for one in facts:
        opening.manifest.remember(one)


def _overflows(segment: Segment) -> bool:
    """Whether the last entry is too far above the base; a correct index gives its position."""
    starts = [segment.offset_index.last().position] if segment.offset_index.exists else []
    for start in (*starts, 0):
        last_offset = _last_offset(segment, start)
        if last_offset is not None:
            return last_offset - segment.base_offset > INT32_MAX
    return False


def _last_offset(segment: Segment, position: int) -> int | None:
    """The last offset of the entries from a position on, up to the first invalid one."""
    last_offset, chunk_bytes = None, _COPY_BYTES
    while position < segment.size:
        data = segment.log.pread(min(chunk_bytes, segment.size - position), position)
        heads, taken, stop = check_entries(data, 0, len(data), None, None)
        if heads:
            last_offset = Entry._make(heads[-1]).last_offset
        position += taken
        if stop == STOP_CORRUPT or (not taken and position + len(data) >= segment.size):
            break
        chunk_bytes = _COPY_BYTES if taken else 2 * chunk_bytes
    return last_offset


def _plan(segment: Segment) -> list[_Part]:
    """The distribution of a segment's entries over parts; one part when they fit."""
    parts = [_Part(base_offset=segment.base_offset, cuts=[0])]
    next_offset = segment.base_offset
    try:
        for head in segment.walk().heads(0):
            if head.last_offset - parts[-1].base_offset > INT32_MAX:
                next_offset = max(next_offset, segment.base_offset + 1)
                base_offset = _base_for(head, next_offset)
                parts.append(_Part(base_offset=base_offset, cuts=[head.position]))
            parts[-1].cuts.append(head.position + head.size)
            next_offset = head.last_offset + 1
    except CorruptLog:
        # A torn end, or damage: it stays at the end of the last part.
        pass
    return parts


def _base_for(head: Entry, next_offset: int) -> int:
    """The base of a part that begins with this entry, without a gap if possible.

    The head of an older message has its last offset only, so the least base that fits is taken.
    """
    if head.last_offset - next_offset <= INT32_MAX:
        return next_offset
    return head.base_offset if head.magic == MAGIC_V2 else head.last_offset - INT32_MAX


def _split(opening: DirectoryOpening, old: Segment, parts: list[_Part]) -> list[SegmentFacts]:
    appended_ms = opening.files.modified_ms(old.log.path)
    new, facts = [], []
    for part in parts:
        segment = _write_part(opening, old, part, appended_ms)
        new.append(segment)
        facts.append(segment.seal(now_ms=appended_ms))
    end = parts[-1].cuts[-1]
    if end < old.size:
        new[-1].log.append(old.log.pread(old.size - end, end))
    for segment in new:
        for file in segment.all_files():
            sync_file(file)
    opening.files.sync_directory(opening.path)
    for segment in reversed(new):
        segment.move_to(SWAP_SUFFIX, (*INDEX_SUFFIXES, LOG_SUFFIX))
        opening.files.sync_directory(opening.path)
        segment.close()
    opening.names = opening.files.list_directory(opening.path)
    finish_rewrites(opening)
    opening.report.notes.append(
        f"{old.log.path} spanned more than 2^31 offsets and was split into {len(new)} segments"
    )
    return facts


def _write_part(opening: DirectoryOpening, old: Segment, part: _Part, appended_ms: int) -> Segment:
    """One new segment with its indexes, as `.cleaned`."""
    new = Segment.create(
        opening.files, opening.path, part.base_offset, now_ms=appended_ms, stage=CLEANED_SUFFIX
    )
    start, *ends = part.cuts
    if not ends:
        data = build_empty_batch(part.base_offset, part.base_offset + 1)
        new.append(data, scan_entries(data), now_ms=appended_ms, index_interval=INT32_MAX)
    for end, following in pairwise([*ends, INT64_MAX]):
        if following - start > _COPY_BYTES:
            data = old.log.pread(end - start, start)
            new.append(
                data,
                scan_entries(data),
                now_ms=appended_ms,
                index_interval=opening.config.index_interval_bytes,
            )
            start = end
    for txn in old.txn_index.read_from(part.base_offset):
        if txn.last_offset < new.next_offset:
            new.txn_index.append(txn)
    # Wrappers were counted as one record: `storage.log.segment_stats` reads their content.
    new.records = UNKNOWN
    return new

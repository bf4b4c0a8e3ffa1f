"""Temporary files of an interrupted run in a partition directory, put in order by names alone.

Owns the first four passes of opening a log:

1. `remove_temporary_files` `.deleted` files, `.tmp` files, outputs of unfinished rewrites
2. `finish_rewrites`        outputs of finished rewrites take the place of what they replace
3. `remove_orphans`         index files without a log
4. `remove_below_start`     segments whose removal was decided and did not finish

Each can be interrupted and run again: a replacement is complete before the original goes.

Source: Kafka `LogLoader`.
"""

from contextlib import suppress
from itertools import pairwise

from storage.disk.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    SegmentFileName,
    parsed_names,
)
from storage.disk.files import TEMPORARY_SUFFIX
from storage.errors import CorruptLog
from storage.log.auxiliary_indexes import KINDS
from storage.recovery.opening import DirectoryOpening
from storage.segment.entry_heads import HeadWalk


def remove_temporary_files(opening: DirectoryOpening) -> None:
    """Pass 1: unlink `.deleted` files, temporary files, and outputs of unfinished rewrites.

    A `.swap` file at or above the lowest `.cleaned` one belongs to a rewrite into several segments
    that was interrupted; the old segments all still exist. Only the `.cleaned` files show this, so
    they are unlinked last: a `.swap` file that outlived them would replace the old segments.
    """
    parsed = parsed_names(opening.names)
    cleaned = [name for name in parsed if name.stage == CLEANED_SUFFIX]
    lowest = min((name.base_offset for name in cleaned), default=None)
    unfinished = [
        name
        for name in parsed
        if name.stage == SWAP_SUFFIX and lowest is not None and name.base_offset >= lowest
    ]
    for name in unfinished:
        opening.remove(name.format())
    if unfinished:
        opening.files.sync_directory(opening.path)
    for name in parsed:
        if name.stage in (CLEANED_SUFFIX, DELETED_SUFFIX):
            opening.remove(name.format())
    for raw in [raw for raw in opening.names if raw.endswith(TEMPORARY_SUFFIX)]:
        opening.remove(raw)


def finish_rewrites(opening: DirectoryOpening) -> None:
    """Pass 2: put `.swap` files in place of the segments whose range they cover.

    The names change in the order of `storage.segment.swap`, with the same syncs between.
    """
    swaps = [name for name in parsed_names(opening.names) if name.stage == SWAP_SUFFIX]
    logs = [name for name in swaps if name.kind == LOG_SUFFIX]
    for name in logs:
        first, end = name.base_offset, _end_of_swap(opening, name)
        for other in parsed_names(opening.names):
            is_replaced = other.kind in SEGMENT_SUFFIXES and not other.stage
            if is_replaced and first <= other.base_offset < end:
                opening.remove(other.format())
        manifest = opening.manifest
        manifest.drop([base for base in manifest.facts if first <= base < end])
        if manifest.supersede([base for base in manifest.remote if first <= base < end]):
            # Before the new log has its name: beside it these objects would be segments, too.
            manifest.rewrite()
    for names in (logs, [name for name in swaps if name.kind != LOG_SUFFIX]):
        if not names:
            continue
        opening.files.sync_directory(opening.path)
        for name in names:
            final = SegmentFileName(base_offset=name.base_offset, kind=name.kind).format()
            opening.files.rename(f"{opening.path}/{name.format()}", f"{opening.path}/{final}")
            opening.names.remove(name.format())
            opening.names.append(final)


def _end_of_swap(opening: DirectoryOpening, name: SegmentFileName) -> int:
    """One above the last offset in a `.log.swap`."""
    file = opening.files.open(f"{opening.path}/{name.format()}")
    end = name.base_offset
    with suppress(CorruptLog):
        # A torn end may have been copied when a segment was split.
        for head in HeadWalk(file, file.size).heads(0):
            end = head.last_offset + 1
    file.close()
    return end


def remove_orphans(opening: DirectoryOpening) -> None:
    """Pass 3: unlink indexes that have no log, here or in an object store, and auxiliary ones that
    the topic does not want.
    """
    parsed = parsed_names(opening.names)
    bases = {name.base_offset for name in parsed if name.kind == LOG_SUFFIX}
    bases.update(opening.remote)
    unwanted = {kind.SUFFIX for kind in KINDS if kind.from_config(opening.config) is None}
    for name in parsed:
        is_orphan = name.kind in INDEX_SUFFIXES and name.base_offset not in bases
        if is_orphan or name.kind in unwanted:
            opening.remove(name.format())


def remove_below_start(opening: DirectoryOpening) -> None:
    """Pass 4: unlink segments that end at or below the stored start of the log.

    The last run had decided to remove them. This pass runs before anything is read, because a crash
    may have left some of them and not others: that is no gap in the log.
    """
    parsed = parsed_names(opening.names)
    bases = sorted(name.base_offset for name in parsed if name.kind == LOG_SUFFIX)
    gone = {
        base
        for base, following in pairwise(bases)
        if following <= opening.manifest.log_start_offset
    }
    for name in parsed:
        if name.base_offset in gone and name.kind in SEGMENT_SUFFIXES:
            opening.remove(name.format())
    opening.manifest.drop(gone)

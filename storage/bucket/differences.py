"""One log beside what the bucket's map has of it: what is not there, or is other there.

Owns the rules by which a log and its `ShippedLog` differ; `storage.bucket.shipping` makes entries
of the differences. Changes nothing but the notes in a `ShippedLog`.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Final

from protocol.records.layout import NO_OFFSET
from storage.bucket.map import Piece
from storage.bucket.shipped_log import ShippedLog
from storage.disk.reading import sum_up
from storage.disk.steps import Steps
from storage.errors import DirectoryOlder
from storage.log.log import Log
from storage.log.reader import LogPosition
from storage.segment.facts import RemoteObject
from storage.segment.manifest import remote_lines
from storage.segment.segment import Segment

MERGED_BYTES: Final = 4 * 1024 * 1024
"""The largest piece that is made of smaller ones."""

MERGED_AT_ONCE: Final = 16
_ROOM: Final = 4

_OBJECTS_AT_ONCE: Final = 100
"""Objects of a log that are looked at before other work has a turn."""


def compare_objects(log: Log, found: ShippedLog) -> Steps[None]:
    """Note of which objects the map has the lines: formatting those of thousands takes time."""
    for number, segment in enumerate(log.segments):
        base = segment.base_offset
        where, stored = segment.remote, log.manifest.facts.get(base)
        if where is not None and stored is not None and not found.knows(where, stored):
            if found.segments.get(base) == remote_lines(stored, where):
                found.known[base] = where, stored
            if number % _OBJECTS_AT_ONCE == 0:
                yield None


def newest_object(log: Log) -> RemoteObject | None:
    """The newest object that the log wants.

    One below its start may have been deleted just before a crash, and still be noted.
    """
    remote = log.manifest.remote
    newest = remote[max(remote)] if remote else None
    return None if newest is None or newest.next_offset <= log.log_start_offset else newest


def unsealed(log: Log, found: ShippedLog, objects: int) -> list[Segment]:
    """The segments of which the records are shipped in pieces, oldest first.

    The map names the `objects` oldest objects. One that was rewritten is left to its upload, if
    there is one, and an object after it stays as the map has it.
    """
    segments = log.segments
    waits = log.config.remote_storage_enable
    return [
        segment
        for segment in (segments[number] for number in range(objects, len(segments)))
        if not (waits and found.is_rewritten(segment))
        and (segment.remote is None or not (segment.is_remote or found.has_object(segment)))
    ]


def durable_bytes(log: Log, segment: Segment, end: LogPosition) -> int:
    """How many bytes of the segment's log are on disk, if `end` is the end of what is."""
    if segment is not log.segments.active and segment.next_offset <= end.offset:
        return segment.size
    return min(segment.size, end.position) if segment.base_offset == end.base_offset else 0


def facts_of(log: Log, objects: int) -> tuple[object, ...]:
    """What the map has of a log besides records, when it names its `objects` oldest objects."""
    entries = log.leader_epochs.entries
    return (
        log.log_start_offset,
        log.segments.first.base_offset,
        objects,
        log.segments.replacements,
        log.manifest.cleaned_offset,
        len(entries),
        entries[-1:],
    )


def pieces_to_merge(pieces: Mapping[int, Piece], fresh: int) -> list[int]:
    """The positions of the last pieces that are written once more, with `fresh` new bytes.

    None unless they are many, and each is small beside their sum.
    """
    last, total, best = [], fresh, 0
    largest = 0
    for position, piece in sorted(pieces.items(), reverse=True):
        total += piece.size
        if total > MERGED_BYTES:
            break
        largest = max(largest, piece.size)
        last.append(position)
        if len(last) >= MERGED_AT_ONCE and largest * _ROOM <= total:
            best = len(last)
    return last[:best]


def may_be_rewritten(log: Log) -> bool:
    """Whether closed segments may have other bytes than they had when they were closed."""
    return log.config.is_compacted or log.manifest.cleaned_offset != NO_OFFSET


def bases_of_merged(log: Log, found: ShippedLog) -> set[int]:
    """The base offsets of pieces whose segment here has merged with later ones of the map.

    Their bytes may be here unchanged, and the segment here has those of the later ones, too.
    """
    bases = sorted(found.pieces.keys() | found.segments.keys())
    return {
        base
        for base, following in pairwise(bases)
        if log.segments.floor(following).base_offset <= base
    }


def is_same(segment: Segment, position: int, piece: Piece) -> Steps[bool]:
    """Whether the bytes of a piece are here, too."""
    if segment.size < position + piece.size:
        return False
    return (yield from sum_up(segment.log, piece.size, position)) == piece.crc


def older(log: Log, offset: int) -> DirectoryOlder:
    """The error of a directory whose log differs from the bucket's from `offset` on."""
    return DirectoryOlder(
        f"the bucket has other records of {log.topic}-{log.partition} from offset {offset} on than "
        "this data directory, which is an older copy or was damaged; stop the broker and restore "
        "from the bucket, or give it another remote.storage.url"
    )

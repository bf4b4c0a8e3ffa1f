"""The journal of a bucket against its objects: is everything there that a restore would need?

Only reads. Each object of a segment and each entry that has records of a tail must be there, with
the size and the CRC-32C that were written. What nothing names is listed, and deleted by nothing
here: `storage.audit.remote` judges which of it is garbage.
"""

from collections.abc import Iterable, Iterator
from dataclasses import field

from storage.bucket.emptied import Hole, find_hole, name_unreadable
from storage.bucket.journal import JOURNAL_PREFIX, damaged_checkpoints, entry_key
from storage.bucket.map import BucketState, Piece, parse_piece
from storage.bucket.restore import objects_in, read_piece
from storage.errors import ObjectDamaged, ObjectMissing
from storage.remote.object_store import ObjectStore, StoredObject
from storage.remote.upload import VERIFY_BYTES
from storage.segment.facts import OBJECT_SUFFIX, RemoteObject
from values.dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class BucketReport:
    """What was found.

    Attributes:
        objects, pieces: how many the journal names.
        problems: sentences about what is missing or differs.
        orphans: objects of segments that neither the journal nor the directory names.
    """

    objects: int = 0
    pieces: int = 0
    problems: list[str] = field(default_factory=list)
    orphans: list[StoredObject] = field(default_factory=list)


def audit_bucket(
    state: BucketState,
    store: ObjectStore,
    *,
    hole: Hole | None = None,
    named_here: Iterable[RemoteObject] = (),
    is_deep: bool = True,
) -> BucketReport:
    """Compare the map with the bucket; `named_here` are the objects that a directory names.

    `hole` is what ended the reading of the map. With `is_deep` every byte is read. Raises
    StoreFailed.
    """
    report = BucketReport()
    stored = {one.key: one for one in store.list_objects()}
    named = {one.key: one for one in (*objects_in(state), *named_here)}
    for where in named.values():
        report.objects += 1
        problem = _problem_of(where, stored.get(where.key), store, is_deep=is_deep)
        if problem is not None:
            report.problems.append(f"{where.key}: {problem}")
    for key, value in state.keys("tail"):
        report.pieces += 1
        piece = parse_piece(value)
        if entry_key(piece.entry) not in stored:
            report.problems.append(f"{key}: {entry_key(piece.entry)} is missing")
        elif is_deep and not _is_whole(store, piece):
            report.problems.append(f"{key}: {entry_key(piece.entry)} has other bytes (checksum)")
    for one in stored.values():
        if one.key.endswith(OBJECT_SUFFIX) and one.key not in named:
            report.orphans.append(one)
    report.orphans += store.list_unfinished()
    report.problems += _problems_of_journal(state, store, stored, hole or find_hole(state, store))
    return report


def _problems_of_journal(
    state: BucketState, store: ObjectStore, keys: Iterable[str], hole: Hole | None
) -> Iterator[str]:
    for key in damaged_checkpoints(store):
        yield f"{key} is damaged; a restore begins at another one, or at the first entry"
    if hole is not None:
        yield f"the journal has a hole: {hole}"
    if unreadable := name_unreadable(state):
        yield f"the journal ends in damage: {unreadable}"
    if state.number >= 0 and not any(key.startswith(JOURNAL_PREFIX) for key in keys):
        yield "the bucket has no entry of a journal"


def _problem_of(
    where: RemoteObject, found: StoredObject | None, store: ObjectStore, *, is_deep: bool
) -> str | None:
    if found is None:
        return f"missing, offsets {where.base_offset} to {where.next_offset - 1}"
    if found.size != where.object_bytes:
        return f"{found.size} bytes, expected {where.object_bytes}"
    if not is_deep:
        return None
    crc = 0
    try:
        for start in range(0, where.object_bytes, VERIFY_BYTES):
            end = min(start + VERIFY_BYTES, where.object_bytes)
            crc = store.crc32c_of(where.key, start, end, crc)
    except ObjectMissing as error:
        return str(error)
    return None if crc == where.crc else f"CRC-32C {crc:08x}, expected {where.crc:08x}"


def _is_whole(store: ObjectStore, piece: Piece) -> bool:
    try:
        read_piece(store, piece)
    except (ObjectMissing, ObjectDamaged):
        return False
    return True

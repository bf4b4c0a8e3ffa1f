"""Whether bytes that a store has answered are those of a segment: checksums, order, index.

A GET for a range of an object has no checksum of its own, and one answer with a wrong byte must not
be kept. What is compared:

* the checksum of each whole batch, which covers all but offset, size and leader epoch;
* the offsets: each batch begins after the one before it has ended, inside the segment;
* the offset index, whose entries name where a batch is and its last offset: no batch reaches over
  the position of a later entry. Kafka has written others: one entry for several batches, with the
  last offset of all (up to 3.x), or with the first of all (up to 0.10). These bind less;
* the leader epoch, which is at most that of the upload, unless several batches have a later one: a
  log whose checkpoint of epochs was lost has begun again at 0.

The last batch of a range may be cut off. Its records are not checked, and it is kept only where a
reader needs it: its own range, from its first byte on, comes with the next read.

Any thread may call `check_range`. It refuses to know where bytes come from.

Source: the theorem of `storage.segment.offset_index`; Kafka leaves all of it to plugins (KIP-405).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from protocol.records.checksums import crc32, crc32c
from protocol.records.entry import Entry
from protocol.records.entry_loops import (
    STOP_CORRUPT,
    STOP_INCOMPLETE,
    check_entries,
    entry_head,
)
from protocol.records.layout import (
    BATCH_OVERHEAD,
    LOG_OVERHEAD,
    MAGIC_V2,
    NO_LEADER_EPOCH,
    SIZE_AT,
)
from storage.segment.facts import RemoteObject
from storage.segment.offset_index import OffsetPosition

_Head: TypeAlias = tuple[int, ...]
_NO_MAGIC: Final = -1

SLICE_BYTES: Final = 256 * 1024
"""As much is checked at a time: about 2 ms for batches of 100 bytes."""

_POSITION: Final = Entry._fields.index("position")
_SIZE: Final = Entry._fields.index("size")
_MAGIC: Final = Entry._fields.index("magic")
_BASE_OFFSET: Final = Entry._fields.index("base_offset")
_LAST_OFFSET: Final = Entry._fields.index("last_offset")
_LEADER_EPOCH: Final = Entry._fields.index("partition_leader_epoch")


class RangeDamage(NamedTuple):
    """What is wrong with a range, in words; it `misleads` where readers follow wrong offsets."""

    reason: str
    misleads: bool


class CheckedRange(NamedTuple):
    """The damage, or None; and how many bytes from the start on are whole batches."""

    damage: RangeDamage | None
    whole_bytes: int


def check_range(
    where: RemoteObject, start: int, data: bytes, landmarks: Sequence[OffsetPosition]
) -> CheckedRange:
    """Check `data`, the log of the object `where` from the batch at byte `start` on.

    `landmarks` are entries of the offset index in their order: all that lie in the range, with the
    two before and the one after it, as far as the index has them.
    """
    if not data:
        return CheckedRange(None, 0)
    heads, end, stop = _walk(data)
    if stop == STOP_CORRUPT:
        reason = f"the batch at byte {start + end} has a wrong checksum or head"
        return CheckedRange(RangeDamage(reason, misleads=False), end)
    cut = _cut_head(data, end) if stop == STOP_INCOMPLETE else None
    if stop == STOP_INCOMPLETE and cut is None and start + len(data) >= where.log_bytes:
        return CheckedRange(RangeDamage("the log ends inside a batch", misleads=False), end)
    damage = next(_damages(where, start, [*heads, cut] if cut else heads, landmarks), None)
    return CheckedRange(damage, end)


def _walk(data: bytes) -> tuple[list[_Head], int, int]:
    """As `check_entries` for all of `data`, in slices: other threads have turns in between."""
    heads: list[_Head] = []
    end, slice_bytes = 0, SLICE_BYTES
    while True:
        until = min(end + slice_bytes, len(data))
        found, reached, stop = check_entries(data, end, until, crc32c, crc32)
        heads += found
        if stop == STOP_CORRUPT or until == len(data):
            return heads, reached, stop
        slice_bytes = SLICE_BYTES if reached > end else 2 * slice_bytes
        end = reached


def _cut_head(data: bytes, position: int) -> _Head | None:
    """The head of the batch at `position`, whose end is not here; None if not even its size is."""
    rest = len(data) - position
    if rest >= BATCH_OVERHEAD:
        return entry_head(data, position, position)
    if rest < LOG_OVERHEAD:
        return None
    size = LOG_OVERHEAD + int.from_bytes(data[position + SIZE_AT : position + LOG_OVERHEAD])
    unknown = Entry(*(_NO_MAGIC,) * len(Entry._fields))
    return unknown._replace(position=position, size=size)


def _damages(
    where: RemoteObject, start: int, heads: Sequence[_Head], landmarks: Sequence[OffsetPosition]
) -> Iterator[RangeDamage]:
    positions = [one.position for one in landmarks]
    next_offset = where.base_offset
    # Where the batch before is at a landmark and ends below its offset, this one begins up to it.
    begins_by = where.next_offset
    after, limit = 0, positions[0] if positions else where.log_bytes
    later = Counter(one[_LEADER_EPOCH] for one in heads if one[_LEADER_EPOCH] > where.epoch)
    for head in heads:
        position = start + head[_POSITION]
        while limit <= position and after < len(positions):
            after += 1
            limit = positions[after] if after < len(positions) else where.log_bytes
        if position + head[_SIZE] > limit:
            yield _wrong(position, f"reaches over byte {limit}")
        if head[_MAGIC] == _NO_MAGIC:
            return
        if head[_MAGIC] > MAGIC_V2:
            yield _wrong(position, f"has magic {head[_MAGIC]}")
        last = head[_LAST_OFFSET]
        is_first_known = head[_MAGIC] >= MAGIC_V2
        first = head[_BASE_OFFSET] if is_first_known else last
        if not next_offset <= first <= last < where.next_offset:
            yield _wrong(position, f"has the offsets {first} to {last}", misleads=True)
        lowest = landmarks[after - 2].offset + 1 if after > 1 else where.base_offset
        is_landmark = after > 0 and positions[after - 1] == position
        named = landmarks[after - 1].offset if is_landmark else last
        if not lowest <= first <= begins_by or (is_first_known and first > named):
            yield _wrong(position, f"has the offsets {first} to {last}, unlike the index")
        epoch = head[_LEADER_EPOCH]
        if epoch < NO_LEADER_EPOCH or later.get(epoch) == 1:
            yield _wrong(position, f"has leader epoch {epoch}")
        next_offset = last + 1
        begins_by = named if last < named else where.next_offset


def _wrong(position: int, what: str, *, misleads: bool = False) -> RangeDamage:
    return RangeDamage(f"the batch at byte {position} {what}", misleads)

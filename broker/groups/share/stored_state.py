"""The stored state of a share partition: a snapshot and the updates since, folded.

Owns the merge of new states into known ones. Refuses to know records and logs: see
`broker.groups.share.records` and `broker.groups.share_states`.

Newer states win where they overlap: those of a higher delivery count, or of the same count and a
higher state. What lies below the start offset is cut off, and equal neighbours are joined, so that
the fold of all records equals that of the last snapshot and the updates after it.

Source: Kafka's `ShareCoordinatorShard`, `PersisterStateBatchCombiner`.
"""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import field
from typing import Final, NamedTuple

from broker.groups.share.values import UNKNOWN_START, StateBatch
from values.dataclasses import dataclass

UNKNOWN_EPOCH: Final = -1
UNKNOWN_COUNT: Final = -1
FIRST_LEADER_EPOCH: Final = 0
_INT32_MIN: Final = -(2**31)


class ShareKey(NamedTuple):
    """A partition as one group has it."""

    group_id: str
    topic_id: bytes
    partition: int


class Fences(NamedTuple):
    """The highest epochs of a stored state; lower ones are fenced."""

    leader_epoch: int
    state_epoch: int

    def raised(self, leader_epoch: int, state_epoch: int) -> "Fences":
        """The fences with these epochs stored, too."""
        return Fences(max(self.leader_epoch, leader_epoch), max(self.state_epoch, state_epoch))


NO_FENCES: Final = Fences(_INT32_MIN, _INT32_MIN)


@dataclass(slots=True, kw_only=True)
class StoredState:
    """What a restart would find.

    Attributes:
        state_epoch: grows with each new beginning; an older one is fenced.
        leader_epoch: of the broker that read the state last; 0 before the first one.
        fences: the highest epochs that were stored, which requests of brokers are held to.
        updates: records since the last snapshot.
        done_count: records of the window that are done; -1 is unknown.
        position: the offset of the last snapshot in its partition of the state topic.
    """

    snapshot_epoch: int = 0
    state_epoch: int = 0
    leader_epoch: int = FIRST_LEADER_EPOCH
    fences: Fences = NO_FENCES
    start_offset: int = UNKNOWN_START
    done_count: int = UNKNOWN_COUNT
    created_ms: int = 0
    batches: list[StateBatch] = field(default_factory=list)
    updates: int = 0
    position: int = -1
    was_written: bool = True

    def merge(
        self,
        start_offset: int,
        batches: Iterable[StateBatch],
        done_count: int,
        leader_epoch: int = UNKNOWN_EPOCH,
    ) -> None:
        """Fold an update in; a start or a leader epoch of -1 is unchanged."""
        if start_offset != UNKNOWN_START:
            self.start_offset = start_offset
        if leader_epoch != UNKNOWN_EPOCH:
            self.leader_epoch = leader_epoch
            self.fences = self.fences.raised(leader_epoch, self.state_epoch)
        for batch in batches:
            _overlay(self.batches, batch)
        _cut_below(self.batches, self.start_offset)
        assert not self.batches or self.batches[0].first >= self.start_offset, self.start_offset
        self.done_count = done_count


def _overlay(known: list[StateBatch], new: StateBatch) -> None:
    """Put one range over a sorted list of ranges that do not overlap."""
    begin = bisect_left(known, new.first, key=lambda each: each.last)
    end = begin
    pieces: list[StateBatch] = []
    at = new.first
    while end < len(known) and known[end].first <= new.last:
        old = known[end]
        if old.first < new.first:
            _add(pieces, old._replace(last=new.first - 1))
        if at < old.first:
            _add(pieces, new._replace(first=at, last=old.first - 1))
        first, last = max(old.first, new.first), min(old.last, new.last)
        winner = new if (new.deliveries, new.state) >= (old.deliveries, old.state) else old
        _add(pieces, winner._replace(first=first, last=last))
        if old.last > new.last:
            _add(pieces, old._replace(first=new.last + 1))
        at = last + 1
        end += 1
    if at <= new.last:
        _add(pieces, new._replace(first=at))
    if begin > 0:
        begin -= 1
        before = known[begin]
        pieces, rest = [before], pieces
        for piece in rest:
            _add(pieces, piece)
    if end < len(known):
        _add(pieces, known[end])
        end += 1
    known[begin:end] = pieces


def _add(pieces: list[StateBatch], piece: StateBatch) -> None:
    """Append a range, joined with an equal neighbour."""
    if pieces:
        last = pieces[-1]
        is_same = (last.state, last.deliveries) == (piece.state, piece.deliveries)
        if is_same and last.last + 1 == piece.first:
            pieces[-1] = last._replace(last=piece.last)
            return
    pieces.append(piece)


def _cut_below(known: list[StateBatch], start_offset: int) -> None:
    at = bisect_left(known, start_offset, key=lambda each: each.last)
    del known[:at]
    if known and known[0].first < start_offset:
        known[0] = known[0]._replace(first=start_offset)

"""A bucket that lacks what its owner has put there: emptied, created again, or another one.

Owns the questions that tell it from a new bucket. The owner asks while it writes (`check_journal`).
A start asks for holes in the journal (`check_entries`), and without a journal for the objects that
its logs name (`check_objects`). A standby asks before it takes over (`check_followed`), a restore
what it would leave out (`read_to_hole`). An owner that wrote on would acknowledge records that no
restore finds, and local retention would remove the only copies.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

from storage.bucket.journal import (
    BucketJournal,
    entries_in,
    entry_key,
    newest_checkpoint,
    read_state,
)
from storage.bucket.map import BucketState
from storage.disk.steps import Steps, off_loop
from storage.errors import BucketEmptied, JournalDamaged
from storage.remote.object_store import ObjectStore
from storage.segment.facts import RemoteObject


def check_journal(journal: BucketJournal) -> Steps[None]:
    """Look for a take-over, then for the last entry, and the one that was the last a look ago.

    The last one alone says little: an emptied bucket takes new entries. Raises:
        Fenced: another broker has taken over; it may have deleted entries.
        BucketEmptied: one is missing. The journal has no owner any more, and is read again.
        StoreFailed: nothing is known.
    """
    state = journal.state
    numbers = sorted({journal.anchor, state.number}.difference(state.voids))
    missing = yield from off_loop(partial(_missing_of, numbers, journal.store))
    yield from journal.check()
    if missing is not None:
        journal.is_owner = False
        raise BucketEmptied(entry_key(missing))
    journal.anchor = numbers[-1]


def _missing_of(numbers: Iterable[int], store: ObjectStore) -> int | None:
    return next((one for one in numbers if store.size_of(entry_key(one)) is None), None)


def check_entries(state: BucketState, store: ObjectStore) -> Steps[None]:
    """See that the journal of which `state` is the map has no hole: after it, or in its tails.

    New entries would run into those after a hole. Raises BucketEmptied, StoreFailed.
    """
    missing = yield from off_loop(partial(_hole_in, state, store))
    if missing is not None:
        raise BucketEmptied(entry_key(missing))


def _hole_in(state: BucketState, store: ObjectStore) -> int | None:
    listed, following = entries_in(store), state.number + 1
    asked = {piece[0] for _, piece in state.keys("tail")} - listed
    if max(listed, default=-1) > following:
        asked |= {following} - listed
    # A listing may be late, or another owner has just written that entry and the ones after it.
    return _missing_of(sorted(asked), store)


class Hole(NamedTuple):
    """What a journal lacks, or has in a state that cannot be read, while later entries are there.

    Attributes:
        damage: a clause about an object that is damaged; empty where entries are missing.
        missing: the numbers of missing entries.
        following: the numbers of entries after that. What they say is lost: they change a map that
            is not known.
    """

    damage: str
    missing: tuple[int, ...]
    following: tuple[int, ...]

    def __str__(self) -> str:
        """What is wrong, and which entries are of no use because of that."""
        clauses = [self.damage or name_entries(self.missing, "missing")]
        if self.following:
            clauses.append(name_entries(self.following, "left out"))
        return ", ".join(clauses)


def read_to_hole(store: ObjectStore) -> tuple[BucketState, Hole | None]:
    """The newest map that can be read, and what keeps it from being the newest one there was.

    Raises StoreFailed, UnknownBucketFormat.
    """
    try:
        state = read_state(store)
    except JournalDamaged as error:
        state = error.state
        later = {number for number in entries_in(store) if number > state.number}
        return state, Hole(error.damage, (), tuple(sorted(later - {error.entry})))
    return state, find_hole(state, store)


def find_hole(state: BucketState, store: ObjectStore) -> Hole | None:
    """The entries that are missing after `state`, which was read there. Raises StoreFailed."""
    following = sorted(number for number in entries_in(store) if number > state.number)
    if not following:
        return None
    there = set(following)
    missing = [one for one in range(state.number + 1, following[-1]) if one not in there]
    if _missing_of(missing[:1], store) is None or newest_checkpoint(store) > state.number:
        # A broker writes them just now, or its checkpoint has replaced them.
        return None
    return Hole("", tuple(missing), tuple(following))


def name_entries(numbers: Sequence[int], what: str) -> str:
    """A clause that says what is so of the entries with these numbers, which rise."""
    if len(numbers) == 1:
        return f"entry {numbers[0]} is {what}"
    spans = [[numbers[0], numbers[0]]]
    for number in numbers[1:]:
        if number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    text = ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in spans)
    return f"entries {text} are {what}"


def name_unreadable(state: BucketState) -> str:
    """A sentence about the last entries if they cannot be read; else the empty string.

    An upload that a crash cut short looks like one that was damaged later. Only the former was
    never reported as written, so what reads such a journal says that it leaves them out.
    """
    if not state.voids:
        return ""
    named = name_entries(sorted(state.voids), "damaged")
    return (
        f"{named}, with none after that: what was acknowledged there is lost, unless the upload "
        "had not ended"
    )


def check_followed(state: BucketState, store: ObjectStore) -> Steps[None]:
    """See that the journal still has the entries which a standby has followed, up to the last one.

    It would write the next entry of a journal that has none of them. Raises BucketEmptied,
    StoreFailed.
    """
    missing = yield from off_loop(partial(_missing_up_to, state, store))
    if missing is not None:
        raise BucketEmptied(entry_key(missing))


def _missing_up_to(state: BucketState, store: ObjectStore) -> int | None:
    missing = _hole_in(state, store)
    if missing is None and state.number not in state.voids:
        missing = _missing_of([state.number], store)
    # The owner deletes what a checkpoint has replaced, and that one is read by the next look.
    is_replaced = missing is not None and newest_checkpoint(store) > state.number
    return None if is_replaced else missing


def check_objects(journal: BucketJournal, newest: Iterable[RemoteObject]) -> Steps[None]:
    """See that the newest object of each log is there. Raises BucketEmptied, StoreFailed.

    Nothing is asked for the first journal that is found: a start that is repeated would ask for all
    logs.
    """
    if journal.state.number >= 0 and not journal.epoch:
        return
    for where in newest:
        if (yield from off_loop(partial(journal.store.size_of, where.key))) is None:
            raise BucketEmptied(where.key)

"""A bucket that lacks what its owner has put there: emptied, created again, or another one.

Owns the two questions that tell it from a new bucket, a request or two each. The owner asks while
it writes (`check_journal`), the start of a broker that finds no journal (`check_objects`). An
owner that wrote on would acknowledge records that no restore finds, and local retention would
remove the only copies.
"""

from collections.abc import Iterable
from functools import partial

from storage.bucket.journal import BucketJournal, entry_key
from storage.disk.steps import Steps, off_loop
from storage.errors import BucketEmptied
from storage.log.log import Log
from storage.remote.object_store import ObjectStore


def check_journal(journal: BucketJournal) -> Steps[None]:
    """Look for a take-over, then for the last entry, and the one that was the last a look ago.

    The last one alone says little: an emptied bucket takes new entries. Raises:
        Fenced: another broker has taken over; it may have deleted entries.
        BucketEmptied: one is missing. The journal has no owner any more, and is read again.
        StoreFailed: nothing is known.
    """
    state, missing = journal.state, []
    numbers = {journal.anchor, state.number}.difference(state.voids)
    for key in map(entry_key, sorted(numbers)):
        if (yield from off_loop(partial(journal.store.size_of, key))) is None:
            missing.append(key)
    yield from journal.check()
    if missing:
        journal.is_owner = False
        raise BucketEmptied(missing[0])
    journal.anchor = max(numbers)


def check_objects(logs: Iterable[Log], store: ObjectStore) -> Steps[None]:
    """See that the newest object that each log wants is there. Raises BucketEmptied, StoreFailed.

    One below the log's start may have been deleted just before a crash, and still be noted.
    """
    for log in logs:
        remote = log.manifest.remote
        if remote and (newest := remote[max(remote)]).next_offset > log.log_start_offset:
            if (yield from off_loop(partial(store.size_of, newest.key))) is None:
                raise BucketEmptied(newest.key)

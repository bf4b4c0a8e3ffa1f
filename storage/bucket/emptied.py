"""A bucket that lacks what its owner has put there: emptied, created again, or another one.

Owns the two questions that tell it from a new bucket, one request each. The journal asks while it
is written (`check_last_entry`), the start of a broker that finds no journal (`check_objects`). An
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


def check_last_entry(journal: BucketJournal) -> Steps[None]:
    """See that the last entry of the map is there.

    Raises StoreFailed, and BucketEmptied: the journal has no owner any more, and is read again.
    """
    state, key = journal.state, entry_key(journal.state.number)
    if state.number in state.voids:
        return
    if (yield from off_loop(partial(journal.store.size_of, key))) is None:
        journal.is_owner = False
        raise BucketEmptied(key)


def check_objects(logs: Iterable[Log], store: ObjectStore) -> Steps[None]:
    """See that the newest object of each log is there. Raises BucketEmptied, StoreFailed."""
    for log in logs:
        remote = log.manifest.remote
        if remote:
            key = remote[max(remote)].key
            if (yield from off_loop(partial(store.size_of, key))) is None:
                raise BucketEmptied(key)

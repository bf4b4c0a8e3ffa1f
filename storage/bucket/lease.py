"""The lease of a bucket's owner: how long it may go on without an entry, and who sees it end.

Owns two spans of time, and no entry: each entry of the journal (`storage.bucket.journal`) renews
the lease. A broker with `remote.lease.ms` notes that span beside its name when it takes the bucket
over. From then on

* the owner writes an entry at least every third of the lease, an empty one if there is nothing to
  write. Its lease runs from the moment at which it *sent* the last entry that counts. When the
  lease is over, the owner accepts nothing until another entry of its own counts (`OwnerLease`);
* a standby notes when it has *read* the newest entry. When it has found no other one for the lease
  and a quarter more, it takes over, if the entry after that one is still free (`LeaseWatch`).

An entry is sent before it can be read, so the span of the standby begins later, and is longer. Both
are measured by the monotonic clock of the machine that waits, and no times of two clocks are
compared: a wall clock that jumps changes nothing. So the lease of the owner is over before another
broker has the bucket, as long as its clock loses less than a fifth against the standby's.

Where that does not hold (a virtual machine that was halted with its clock, for instance), the
condition of the entries does: whatever such an owner accepts, no entry of it counts any more. So
the lease says when to take over, and that an owner stops in time. That one broker writes to the
bucket does not depend on clocks.

A store that a standby cannot read says nothing of the owner: its span begins again after that.

Source: ours (docs/adr/0028); the span of the observer's own clock is that of Amazon's DynamoDB lock
client, the quarter is our bound of drift.
"""

from typing import Final

from storage.bucket.journal import BucketJournal
from storage.bucket.map import BucketState
from storage.errors import StoreFailed

RENEWALS: Final = 3
"""Entries that the owner writes within one lease, at least."""

_MARGIN: Final = 4


def span_of_standby_ms(lease_ms: int) -> int:
    """How long a standby waits for the next entry of an owner with this lease."""
    return lease_ms + lease_ms // _MARGIN


class OwnerLease:
    """The lease as its owner counts it, from the last entry of its journal that counts.

    Times are of the monotonic clock of the journal, in ms. A journal without a lease has promised
    nothing, and nothing is ever over.
    """

    def __init__(self, journal: BucketJournal) -> None:
        """Begin with a lease that is over, if there is one."""
        self._journal = journal

    @property
    def span_ms(self) -> int:
        """The whole lease; 0 for none."""
        return self._journal.lease_ms

    def left_ms(self, now_ms: int) -> int:
        """What is left of the lease; 0 when it is over."""
        sent_ms = self._journal.sent_ms
        return 0 if sent_ms is None else max(0, sent_ms + self.span_ms - now_ms)

    def is_over(self, now_ms: int) -> bool:
        """Whether nothing may be accepted."""
        return self.span_ms > 0 and self.left_ms(now_ms) == 0

    def is_due(self, now_ms: int) -> bool:
        """Whether an entry has to be written now."""
        used_ms = self.span_ms - self.left_ms(now_ms)
        return self.span_ms > 0 and used_ms >= self.span_ms // RENEWALS


class LeaseWatch:
    """The lease of the owner as a standby sees it. Times are of one monotonic clock, in ms."""

    def __init__(self) -> None:
        """Nothing was read yet."""
        self._number = -1
        self._since_ms: int | None = None

    def seen(self, state: BucketState, now_ms: int) -> None:
        """All entries were read, and the last one is that of `state`; `now_ms` is after it."""
        if self._since_ms is None or state.number != self._number:
            self._number, self._since_ms = state.number, now_ms

    def interrupted(self) -> None:
        """The bucket could not be read: the owner may have written meanwhile, or could not."""
        self._since_ms = None

    def left_ms(self, state: BucketState, now_ms: int) -> int | None:
        """How long to wait for the owner still; None when it has promised nothing."""
        if state.lease_ms <= 0:
            return None
        span_ms = span_of_standby_ms(state.lease_ms)
        return span_ms if self._since_ms is None else max(0, self._since_ms + span_ms - now_ms)

    def has_ended(self, state: BucketState, now_ms: int) -> bool:
        """Whether the owner has written nothing for its lease and the margin."""
        return self.left_ms(state, now_ms) == 0


def check_last(number: int, state: BucketState) -> None:
    """Take over only directly after that entry: none has renewed the lease. Raises StoreFailed."""
    if state.number != number:
        raise StoreFailed(
            f"entry {state.number} came into the bucket while this broker was about to take over"
        )

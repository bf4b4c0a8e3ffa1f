"""One share partition: which records of a partition a group has, and which it has done (KIP-932).

Owns the window of offsets between the first that is not done (the start) and the first that was
never acquired (the end), as runs of equal state. Refuses to know logs, connections, clocks and the
state topic: it gets the extents of batches that were read, and gives the changes to store.

```
             acquire: count + 1, a lock until now + lock duration
 AVAILABLE ──────────────────────────────────────────────▶ ACQUIRED ──accept──▶ ACKNOWLEDGED
     ▲                                                        │ │
     └── release, lock expired, session ended: count < limit ─┘ └─reject, gap──▶ ARCHIVED
                                               count = limit ──────────────────▶ ARCHIVED
```

A change by a member is in transition until it is stored: its runs are not acquirable and the start
does not pass them. `commit` makes it final, `rollback` undoes it. An acknowledgement counts once it
is stored, so that after its answer the offset is never delivered again. What happens by itself
(lock expired, session ended) takes effect at once and is stored as soon as possible: when that
fails, a restart finds the records available, as if the lock had just expired.

Invariants: the runs cover the window without holes, in order; a run in transition is not split; the
start passes only runs that are done and settled.

Acquisition is not stored, as in Kafka. Offsets of the window that the stored state does not name
were acquired when the broker stopped: they are available, with a count that starts over.

Source: KIP-932, KIP-1206, KIP-1222; Kafka's `SharePartition`, `InFlightBatch`, `InFlightState`.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from broker.groups.deadlines import earliest
from broker.groups.share.values import (
    Ack,
    AckBatch,
    AckRefused,
    Acquired,
    AcquireWish,
    Delivery,
    Extent,
    ShareLimits,
    StateBatch,
)
from protocol.error_codes import ErrorCode

_SUSPICIOUS_LEAST: Final = 2

_OUTCOME: Final = {
    Ack.GAP: Delivery.ARCHIVED,
    Ack.ACCEPT: Delivery.ACKNOWLEDGED,
    Ack.RELEASE: Delivery.AVAILABLE,
    Ack.REJECT: Delivery.ARCHIVED,
}


class Run:
    """Offsets `first` to `last` of one state. `batch_size` is that of the first acquisition."""

    __slots__ = (
        "batch_size",
        "deliveries",
        "due_ms",
        "first",
        "last",
        "moving_to",
        "owner",
        "state",
    )

    def __init__(
        self, first: int, last: int, state: Delivery, deliveries: int, batch_size: int = 0
    ) -> None:
        """A run without owner, not in transition."""
        self.first = first
        self.last = last
        self.state = state
        self.deliveries = deliveries
        self.batch_size = batch_size or last - first + 1
        self.owner: str | None = None
        self.due_ms = 0
        self.moving_to: Delivery | None = None

    @property
    def size(self) -> int:
        """How many offsets it has."""
        return self.last - self.first + 1

    @property
    def is_available(self) -> bool:
        """Whether it can be acquired."""
        return self.state is Delivery.AVAILABLE and self.moving_to is None

    def split(self, offset: int) -> "Run":
        """Cut at `offset`, which begins the run returned."""
        assert self.first < offset <= self.last, (self.first, offset, self.last)
        assert self.moving_to is None, "a run in transition is not split"
        rest = Run(offset, self.last, self.state, self.deliveries, self.batch_size)
        rest.owner, rest.due_ms = self.owner, self.due_ms
        self.last = offset - 1
        return rest


class Transition:
    """Changes that wait for the disk: the runs that move, and the state to store."""

    __slots__ = ("runs",)

    def __init__(self) -> None:
        self.runs: list[Run] = []

    def __bool__(self) -> bool:
        """Whether there is anything to store."""
        return bool(self.runs)

    def batches(self) -> list[StateBatch]:
        """The state to store, in order of offsets."""
        found = []
        for run in sorted(self.runs, key=_first_of):
            assert run.moving_to is not None, "a transition is stored before it ends"
            found.append(StateBatch(run.first, run.last, run.moving_to, run.deliveries))
        return found


class SharePartition:
    """The delivery state of one partition for one group. Loop thread only.

    `limits` are replaced whenever settings change; each rule uses the limits of its moment.
    """

    def __init__(
        self, start_offset: int, batches: Iterable[StateBatch], limits: ShareLimits
    ) -> None:
        """Take the stored state: `batches` in order of offsets, those below the start ignored."""
        assert start_offset >= 0, start_offset
        self.start_offset = start_offset
        self.end_offset = start_offset
        self.limits = limits
        self.wake_ms: int | None = None
        self._runs: list[Run] = []
        self._available_from = start_offset
        for batch in batches:
            first = max(batch.first, self.end_offset)
            if batch.last < first:
                continue
            self._append_hole(first, Delivery.AVAILABLE)
            self._append(Run(first, batch.last, batch.state, batch.deliveries))
        self._advance_start()

    # -- what a fetch needs to know ------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """Offsets of the window, those that are done included."""
        return self.end_offset - self.start_offset

    @property
    def done_count(self) -> int:
        """Offsets of the window that are done, or about to be."""
        return sum(
            run.size
            for run in self._runs
            if (run.state if run.moving_to is None else run.moving_to).is_done
        )

    @property
    def run_count(self) -> int:
        """How many ranges of equal state the window has."""
        return len(self._runs)

    def next_fetch_offset(self) -> int | None:
        """Where to read next: the first available offset; None when the window is full."""
        run = self._first_available()
        if run is not None:
            return run.first
        if self.in_flight >= self.limits.record_locks:
            return None
        return self.end_offset

    def runs(self) -> Iterator[tuple[StateBatch, str | None]]:
        """Every run of the window with its owner, in order, for people and tests."""
        for run in self._runs:
            yield StateBatch(run.first, run.last, run.state, run.deliveries), run.owner

    # -- acquiring -----------------------------------------------------------------------------

    def acquire(
        self,
        member_id: str,
        asked_offset: int,
        extents: Sequence[Extent],
        wish: AcquireWish,
        now_ms: int,
    ) -> list[Acquired]:
        """Give a member records of the batches that were read from `asked_offset` on.

        Returns the ranges in order; adjacent ones differ in count or come from other batches.
        Offsets that the log no longer has, and those of aborted transactions, are archived.
        """
        if not extents or wish.records <= 0:
            return []
        self.skip(asked_offset, extents[0].first - 1)
        for extent in extents:
            if extent.is_aborted:
                self._archive(extent.first, extent.last)
        taken: list[Run] = []
        left = self._take_available(extents[0].first, extents[-1].last, wish, taken)
        if left > 0:
            self._take_new(extents, left, wish, taken)
        due_ms = now_ms + self.limits.lock_duration_ms
        for run in taken:
            assert run.is_available, (run.first, run.last, run.state)
            run.state = Delivery.ACQUIRED
            run.deliveries += 1
            run.owner = member_id
            run.due_ms = due_ms
        if taken:
            self._wake_by(due_ms)
        self._advance_start()
        return [Acquired(run.first, run.last, run.deliveries) for run in taken]

    def skip(self, first: int, last: int) -> None:
        """The log has no records from `first` to `last`: archive what is available of them."""
        self._archive(first, last)
        if first <= self.end_offset <= last:
            self._append(Run(self.end_offset, last, Delivery.ARCHIVED, 0))
        self._advance_start()

    def _take_available(self, first: int, last: int, wish: AcquireWish, taken: list[Run]) -> int:
        """Collect available runs between two offsets; return how many records may still come.

        A suspicious run comes alone.
        """
        left = wish.records
        for run in self._available(first, last):
            most = self._deliverable(run)
            is_suspicious = self._is_suspicious(run)
            if is_suspicious and taken:
                return 0
            size = min(most, left) if wish.is_strict else most
            if size < run.size:
                self._cut(run, run.first + size)
            taken.append(run)
            left -= run.size
            if is_suspicious or left <= 0:
                return 0
        return left

    def _take_new(
        self, extents: Sequence[Extent], left: int, wish: AcquireWish, taken: list[Run]
    ) -> None:
        """Collect records beyond the window, in ranges that end where a batch of the log ends.

        With strict limits it is one range, which may end anywhere.
        """
        left = min(left, self.limits.record_locks - self.in_flight)
        begin: int | None = None
        end = self.end_offset - 1
        for extent in extents:
            if extent.last < self.end_offset:
                continue
            if left <= 0:
                return
            if extent.is_aborted:
                if begin is not None:
                    left -= end - begin + 1
                self._open_range(begin, end, taken)
                begin = None
                self._append_hole(extent.first, Delivery.ARCHIVED)
                self._append(Run(self.end_offset, extent.last, Delivery.ARCHIVED, 0))
                continue
            begin = max(extent.first, self.end_offset) if begin is None else begin
            end = min(extent.last, begin + left - 1) if wish.is_strict else extent.last
            size = end - begin + 1
            if size >= left or (size >= wish.batch_records and not wish.is_strict):
                self._open_range(begin, end, taken)
                begin = None
                left -= size
        self._open_range(begin, end, taken)

    def _open_range(self, first: int | None, last: int, taken: list[Run]) -> None:
        """Append a new range to the window, after a hole if the log has one there."""
        if first is not None:
            self._append_hole(first, Delivery.ARCHIVED)
            taken.append(Run(first, last, Delivery.AVAILABLE, 0))
            self._append(taken[-1])

    def _is_suspicious(self, run: Run) -> bool:
        limit = self.limits.delivery_count
        return run.deliveries >= max(_SUSPICIOUS_LEAST, (limit + 1) // 2)

    def _deliverable(self, run: Run) -> int:
        """How many records of a run to deliver at once: fewer and fewer as its count grows.

        A record that no member can process would else take its neighbours with it when the limit
        of deliveries is reached.
        """
        if not self._is_suspicious(run):
            return run.size
        limit = self.limits.delivery_count
        if limit > _SUSPICIOUS_LEAST and run.deliveries >= limit - 1:
            return 1
        threshold = max(_SUSPICIOUS_LEAST, (limit + 1) // 2)
        return min(run.size, max(1, run.batch_size >> (run.deliveries - threshold + 1)))

    # -- acknowledging -------------------------------------------------------------------------

    def acknowledge(self, member_id: str, batches: Sequence[AckBatch], now_ms: int) -> Transition:
        """Apply a member's acknowledgements, all or none; store the transition returned.

        Renewals need no storing. What lies below the start was acknowledged before, and is ignored.

        Raises:
            AckRefused: INVALID_RECORD_STATE for records that are not the member's or in transition;
                INVALID_REQUEST for offsets beyond the window.
        """
        transition = Transition()
        renewed: list[Run] = []
        try:
            for batch in batches:
                self._acknowledge(member_id, batch, transition, renewed)
        except AckRefused:
            for run in transition.runs:
                run.moving_to = None
            raise
        due_ms = now_ms + self.limits.lock_duration_ms
        for run in renewed:
            run.due_ms = due_ms
        return transition

    def _acknowledge(
        self, member_id: str, batch: AckBatch, transition: Transition, renewed: list[Run]
    ) -> None:
        if batch.last < self.start_offset:
            return
        if batch.last >= self.end_offset:
            raise AckRefused(
                ErrorCode.INVALID_REQUEST,
                f"Offset {batch.last} was never acquired; the last one is {self.end_offset - 1}.",
            )
        for first, last, number in _by_type(batch):
            if last < self.start_offset:
                continue
            for run in self._owned(member_id, max(first, self.start_offset), last):
                if number == Ack.RENEW:
                    self._check_renewal()
                    renewed.append(run)
                    continue
                run.moving_to = self._after(run, _OUTCOME[Ack(number)])
                transition.runs.append(run)

    def _check_renewal(self) -> None:
        if not self.limits.may_renew:
            raise AckRefused(
                ErrorCode.INVALID_RECORD_STATE,
                "Renewal is switched off for this group: share.renew.acknowledge.enable.",
            )

    def _owned(self, member_id: str, first: int, last: int) -> Iterator[Run]:
        """The runs from `first` to `last`, cut out.

        Raises:
            AckRefused: one of them is not the member's.
        """
        at = self._index_of(first)
        while at < len(self._runs) and self._runs[at].first <= last:
            run = self._runs[at]
            is_held = run.state is Delivery.ACQUIRED and run.moving_to is None
            if not is_held or run.owner != member_id:
                held = "being acknowledged" if run.moving_to is not None else run.state.name.lower()
                raise AckRefused(
                    ErrorCode.INVALID_RECORD_STATE,
                    f"Offsets {run.first} to {run.last} are {held}, not acquired by {member_id}.",
                )
            if run.first < first:
                run = self._cut(run, first)
                at += 1
            if run.last > last:
                self._cut(run, last + 1)
            yield run
            at += 1

    def commit(self, transition: Transition) -> None:
        """The transition is stored."""
        for run in transition.runs:
            assert run.moving_to is not None, "a transition ends once"
            self._settle(run, run.moving_to)
        self._advance_start()

    def rollback(self, transition: Transition, now_ms: int) -> None:
        """The transition could not be stored: its runs are the member's again.

        Those whose lock has expired meanwhile are available again, or archived.
        """
        for run in transition.runs:
            assert run.moving_to is not None, "a transition ends once"
            run.moving_to = None
            if run.due_ms <= now_ms:
                self._settle(run, self._after(run, Delivery.AVAILABLE))
            else:
                self._wake_by(run.due_ms)
        self._advance_start()

    # -- what happens by itself ----------------------------------------------------------------

    def expire(self, now_ms: int) -> list[StateBatch]:
        """End the locks that are due, and set `wake_ms`; return the state to store."""
        due = [run for run in self._held() if run.due_ms <= now_ms]
        changed = self._give_back(due)
        self.wake_ms = min((run.due_ms for run in self._held()), default=None)
        assert self.wake_ms is None or self.wake_ms > now_ms, "a lock that is due was kept"
        return changed

    def release(self, member_id: str) -> list[StateBatch]:
        """Give back what a member has acquired, as its session has ended; return what to store."""
        return self._give_back([run for run in self._held() if run.owner == member_id])

    def log_start_moved(self, log_start_offset: int) -> None:
        """Records below this offset are deleted: the window begins there."""
        if log_start_offset <= self.start_offset:
            return
        if log_start_offset >= self.end_offset:
            self._runs.clear()
            self.end_offset = log_start_offset
        else:
            at = self._index_of(log_start_offset)
            run = self._runs[at]
            if run.first < log_start_offset and run.moving_to is None:
                run = self._cut(run, log_start_offset)
                at += 1
            # A run in transition that reaches over the start stays; its end moves the start.
            log_start_offset = run.first
            del self._runs[:at]
        assert self.start_offset <= log_start_offset <= self.end_offset, log_start_offset
        self.start_offset = log_start_offset
        self._available_from = max(self._available_from, self.start_offset)
        self._advance_start()

    def _held(self) -> Iterator[Run]:
        for run in self._runs:
            if run.state is Delivery.ACQUIRED and run.moving_to is None:
                yield run

    def _give_back(self, runs: Sequence[Run]) -> list[StateBatch]:
        for run in runs:
            self._settle(run, self._after(run, Delivery.AVAILABLE))
        changed = [StateBatch(run.first, run.last, run.state, run.deliveries) for run in runs]
        self._advance_start()
        return changed

    # -- runs ----------------------------------------------------------------------------------

    def _after(self, run: Run, wanted: Delivery) -> Delivery:
        """The state that a run gets: one that was delivered too often is archived."""
        if wanted is Delivery.AVAILABLE and run.deliveries >= self.limits.delivery_count:
            return Delivery.ARCHIVED
        return wanted

    def _settle(self, run: Run, state: Delivery) -> None:
        assert state is not Delivery.ACQUIRED, "records are acquired by a fetch alone"
        run.state = state
        run.moving_to = None
        run.owner = None
        if state is Delivery.AVAILABLE:
            self._available_from = min(self._available_from, run.first)

    def _archive(self, first: int, last: int) -> None:
        """Archive what is available between two offsets."""
        for run in self._available(first, last):
            run.state = Delivery.ARCHIVED

    def _available(self, first: int, last: int) -> Iterator[Run]:
        """The available runs between two offsets, cut out; the caller may cut the last again."""
        if last < first:
            return
        at = self._index_of(max(first, self.start_offset))
        while at < len(self._runs) and self._runs[at].first <= last:
            run = self._runs[at]
            if run.is_available:
                if run.first < first:
                    run = self._cut(run, first)
                    at += 1
                if run.last > last:
                    self._cut(run, last + 1)
                yield run
            at += 1

    def _first_available(self) -> Run | None:
        at = self._index_of(self._available_from)
        while at < len(self._runs):
            run = self._runs[at]
            if run.is_available:
                self._available_from = run.first
                return run
            at += 1
        self._available_from = self.end_offset
        return None

    def _index_of(self, offset: int) -> int:
        """The index of the run that contains `offset`, or of the first one above it."""
        at = bisect_right(self._runs, offset, key=_first_of)
        return at - 1 if at and self._runs[at - 1].last >= offset else at

    def _cut(self, run: Run, offset: int) -> Run:
        """Split a run in place; return the part that begins at `offset`."""
        rest = run.split(offset)
        self._runs.insert(self._index_of(run.first) + 1, rest)
        return rest

    def _append(self, run: Run) -> None:
        assert run.first == self.end_offset <= run.last, (run.first, run.last, self.end_offset)
        self._runs.append(run)
        self.end_offset = run.last + 1
        if run.is_available:
            self._available_from = min(self._available_from, run.first)

    def _append_hole(self, end: int, state: Delivery) -> None:
        """Fill the window up to `end`, exclusive."""
        if end > self.end_offset:
            self._append(Run(self.end_offset, end - 1, state, 0))

    def _advance_start(self) -> None:
        at = 0
        for run in self._runs:
            if not run.state.is_done or run.moving_to is not None:
                break
            self.start_offset = run.last + 1
            at += 1
        del self._runs[:at]
        first = self._runs[0].first if self._runs else self.end_offset
        assert self.start_offset == first <= self.end_offset, (self.start_offset, first)

    def _wake_by(self, due_ms: int) -> None:
        self.wake_ms = earliest((self.wake_ms, due_ms))


def _first_of(run: Run) -> int:
    return run.first


def _by_type(batch: AckBatch) -> Iterator[tuple[int, int, int]]:
    """The ranges of one acknowledgement type: first, last, type."""
    if len(batch.types) == 1:
        yield batch.first, batch.last, batch.types[0]
        return
    first = batch.first
    for at in range(1, len(batch.types) + 1):
        if at == len(batch.types) or batch.types[at] != batch.types[at - 1]:
            yield first, batch.first + at - 1, batch.types[at - 1]
            first = batch.first + at

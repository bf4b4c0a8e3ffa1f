"""The lease of a bucket: one broker at a time accepts anything, whatever clocks and stores do."""

import os
from collections.abc import Callable
from functools import partial
from random import Random

import pytest

from storage.bucket import lease as leases
from storage.bucket.journal import BucketJournal, catch_up, check_owner, entry_key, read_state
from storage.bucket.lease import LeaseWatch, OwnerLease, check_last, span_of_standby_ms
from storage.bucket.map import BucketState
from storage.disk.steps import Steps, off_loop, run_steps
from storage.errors import Fenced, StoreFailed
from tests.support.simulated_store import SimulatedStore, StoreFault

LEASE_MS = 8_000
RUN_MS = 150_000
SEEDS = (*range(int(os.environ.get("LEASE_SEEDS", "60"))), 302, 530, 955, 1490)
"""The last ones have a former owner that had lost the answer to its last entry."""


class Clock:
    """A monotonic clock that loses or gains against the true time, and begins anywhere."""

    def __init__(self, true_ms: Callable[[], int], rate: float, offset_ms: int) -> None:
        self._true_ms, self._rate, self._offset_ms = true_ms, rate, offset_ms

    def __call__(self) -> int:
        return self._offset_ms + int(self._true_ms() * self._rate)


class Node:
    """One broker of the simulation: a standby, until it takes over; a standby again when fenced.

    Attributes:
        counted: what it was answered for as the owner, by key.
    """

    def __init__(self, name: str, store: SimulatedStore, clock: Clock, rng: Random) -> None:
        self.name, self.store, self.clock, self.rng = name, store, clock, rng
        self.counted: dict[str, int] = {}
        self.paused_until_ms = 0
        self.take_overs = 0
        self.become_standby()

    def become_standby(self) -> None:
        self.journal: BucketJournal | None = None
        self.lease: OwnerLease | None = None
        self.state = BucketState()
        self.watch = LeaseWatch()
        self.work: Steps[None] | None = None

    def accepts(self) -> bool:
        """Whether a record would be accepted at this moment, if the process got a turn."""
        if self.journal is None or self.lease is None:
            return False
        return self.journal.is_owner and not self.lease.is_over(self.clock())

    def turn(self) -> None:
        """Go on to the next request of the work that is under way, or begin some."""
        if self.work is None:
            self.work = self._follow() if self.journal is None else self._own(self.journal)
        try:
            call = next(self.work)
            if call is not None:
                call.run()
        except StopIteration:
            self.work = None
        except Fenced:
            self.become_standby()
        except StoreFailed:
            self.work = None
            self.watch.interrupted()

    def _own(self, journal: BucketJournal) -> Steps[None]:
        assert self.lease is not None
        if self.lease.is_due(self.clock()) or self.rng.random() < 0.1:
            key, step = f"meta/n/{self.rng.randrange(5)}", self.rng.getrandbits(40)
            if (yield from journal.append(lambda _: {key: step})) is not None:
                self.counted[key] = step
        if journal.entries > 6:
            yield from journal.checkpoint()

    def _follow(self) -> Steps[None]:
        yield from off_loop(partial(catch_up, self.store, self.state, {}))
        self.watch.seen(self.state, self.clock())
        if self.state.owner_id and not self.watch.has_ended(self.state, self.clock()):
            return
        journal = BucketJournal(
            self.store, self.name, self.rng, lease_ms=LEASE_MS, now_ms=self.clock
        )
        journal.state = BucketState(
            self.state.number, dict(self.state.documents), list(self.state.voids)
        )
        self.watch.interrupted()
        yield from journal.take_over(partial(check_last, self.state.number))
        self.journal, self.lease = journal, OwnerLease(journal)
        self.take_overs += 1


class Simulation:
    """Three brokers over one store, with a true time that none of them knows."""

    def __init__(self, seed: int, *, rates: tuple[float, float] = (0.9, 1.1)) -> None:
        self.rng = rng = Random(seed)
        self.true_ms = 0
        self.store = SimulatedStore()
        self.nodes = [
            Node(
                name * 22,
                self.store,
                Clock(lambda: self.true_ms, rng.uniform(*rates), rng.randrange(10**9)),
                rng,
            )
            for name in "abc"
        ]
        self.both: list[str] = []

    def run(self, until_ms: int, *, is_harsh: bool) -> None:
        """Let time pass: turns of nodes in random order, pauses, failures of the store."""
        rng, store = self.rng, self.store
        while self.true_ms < until_ms:
            self.true_ms += rng.choice((1, 20, 150, 400))
            if is_harsh and rng.random() < 0.01:
                node = rng.choice(self.nodes)
                node.paused_until_ms = self.true_ms + rng.randrange(3 * LEASE_MS)
            if is_harsh and rng.random() < (0.05 if store.is_down else 0.002):
                store.is_down = not store.is_down
            store.faults = {}
            if is_harsh and rng.random() < 0.03:
                store.faults = {rng.choice(("PUT", "GET", "HEAD")): [rng.choice([*StoreFault])]}
            ready = [one for one in self.nodes if one.paused_until_ms <= self.true_ms]
            if ready:
                rng.choice(ready).turn()
            self.judge()

    def judge(self) -> None:
        accepting = [node.name[0] for node in self.nodes if node.accepts()]
        if len(accepting) > 1:
            self.both.append(f"{self.true_ms} ms: {accepting}")

    def heal(self) -> None:
        self.store.is_down, self.store.faults = False, {}
        self.store.settle()
        for node in self.nodes:
            node.paused_until_ms = 0


def simulate(seed: int, **settings: tuple[float, float]) -> Simulation:
    simulation = Simulation(seed, **settings)
    simulation.run(RUN_MS, is_harsh=True)
    simulation.heal()
    simulation.run(simulation.true_ms + 6 * LEASE_MS, is_harsh=False)
    limit_ms = simulation.true_ms + 3 * LEASE_MS
    while simulation.true_ms < limit_ms and not any(one.accepts() for one in simulation.nodes):
        # An owner may be about to renew its lease, which is just over.
        simulation.run(simulation.true_ms + 1, is_harsh=False)
    return simulation


def test_one_broker_at_a_time_accepts_records() -> None:
    """Pauses, clocks that differ in rate by a fifth, stores that fail; each run takes minutes."""
    take_overs = 0
    for seed in SEEDS:
        simulation = simulate(seed)
        assert simulation.both == [], f"seed {seed}"
        take_overs += sum(node.take_overs for node in simulation.nodes)
        # In the end one of them serves, and what it was answered for is there.
        owners = [node for node in simulation.nodes if node.accepts()]
        assert len(owners) == 1, f"seed {seed}"
        state = read_state(simulation.store)
        assert state.owner_id == owners[0].name, f"seed {seed}"
        for key in owners[0].counted:
            assert key in state.documents
    assert take_overs > 2 * len(SEEDS)


def test_a_standby_that_waits_too_short_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: the simulation sees two brokers that accept."""
    monkeypatch.setattr(leases, "span_of_standby_ms", lambda lease_ms: lease_ms // 2)
    assert any(simulate(seed).both for seed in range(20))


def test_an_owner_that_goes_on_for_too_long_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: it counts two leases from its last entry."""

    def late(self: OwnerLease, now_ms: int) -> int:
        sent_ms = self._journal.sent_ms
        return 0 if sent_ms is None else max(0, sent_ms + self.span_ms * 2 - now_ms)

    monkeypatch.setattr(OwnerLease, "left_ms", late)
    assert any(simulate(seed).both for seed in range(20))


def test_clocks_that_differ_by_more_than_the_bound_are_found() -> None:
    """Negative control: the bound is needed, and is not far from what the rule can take."""
    assert any(simulate(seed, rates=(0.4, 2.0)).both for seed in range(20))


def test_spans() -> None:
    assert span_of_standby_ms(8_000) == 10_000
    now = [1_000]
    journal = BucketJournal(
        SimulatedStore(), "a" * 22, Random(1), lease_ms=9_000, now_ms=lambda: now[0]
    )
    lease = OwnerLease(journal)
    assert lease.is_over(now[0])
    assert lease.is_due(now[0])
    run_steps(journal.read())
    run_steps(journal.take_over())
    assert lease.left_ms(now[0]) == 9_000
    assert not lease.is_due(3_999)
    assert lease.is_due(4_000)
    assert not lease.is_over(9_999)
    assert lease.is_over(10_000)
    now[0] = 9_000
    assert run_steps(journal.append(lambda _: {})) == 1
    assert lease.left_ms(10_000) == 8_000


def test_a_journal_without_a_lease_promises_nothing() -> None:
    store = SimulatedStore()
    journal = BucketJournal(store, "a" * 22, Random(1))
    run_steps(journal.read())
    run_steps(journal.take_over())
    lease, watch = OwnerLease(journal), LeaseWatch()
    assert not lease.is_over(10**12)
    assert not lease.is_due(10**12)
    state = read_state(store)
    watch.seen(state, 0)
    assert watch.left_ms(state, 10**12) is None
    assert not watch.has_ended(state, 10**12)
    assert "lease_ms" not in state.owner


def test_a_standby_begins_its_wait_again_after_an_entry_and_after_a_failure() -> None:
    state = BucketState(3, {"owner": {"id": "a", "epoch": 1, "lease_ms": 8_000}})
    watch = LeaseWatch()
    assert watch.left_ms(state, 0) == 10_000
    watch.seen(state, 100)
    watch.seen(state, 9_000)
    assert watch.left_ms(state, 9_000) == 1_100
    assert watch.has_ended(state, 10_100)
    state.number = 4
    watch.seen(state, 10_100)
    assert not watch.has_ended(state, 20_099)
    watch.interrupted()
    assert not watch.has_ended(state, 30_000)
    watch.seen(state, 30_000)
    assert not watch.has_ended(state, 39_999)
    assert watch.has_ended(state, 40_000)


def test_a_broker_that_starts_does_not_take_over_from_one_that_was_faster() -> None:
    """It has read that it is the owner; before its entry another one has taken over."""
    store = SimulatedStore()
    journal = BucketJournal(store, "a" * 22, Random(1))
    run_steps(journal.read())
    run_steps(journal.take_over())
    starting, standby = (BucketJournal(store, name * 22, Random(name)) for name in "ab")
    run_steps(starting.read())
    run_steps(standby.read())
    run_steps(standby.take_over(partial(check_last, 0)))
    with pytest.raises(Fenced, match="b" * 22):
        run_steps(starting.take_over(partial(check_owner, "a" * 22)))
    assert read_state(store).owner_id == "b" * 22
    assert entry_key(2) not in store.objects


def test_of_two_standbys_one_takes_over() -> None:
    store = SimulatedStore()
    journal = BucketJournal(store, "a" * 22, Random(1), lease_ms=8_000)
    run_steps(journal.read())
    run_steps(journal.take_over())
    one, other = (BucketJournal(store, name * 22, Random(name)) for name in "bc")
    for standby in (one, other):
        run_steps(standby.read())
    run_steps(one.take_over(partial(check_last, 0)))
    with pytest.raises(StoreFailed, match="entry 1 came into the bucket"):
        run_steps(other.take_over(partial(check_last, 0)))
    state = read_state(store)
    assert (state.owner_id, state.number) == ("b" * 22, 1)

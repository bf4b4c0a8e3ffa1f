"""The share partition against a model that has one entry for each offset and no runs.

Members acquire, acknowledge every way, vanish and let locks expire; stores succeed and fail,
records are deleted, and the partition is loaded again from what was stored. After every step the
runs must say what the model says, and the promises of KIP-932 must hold for all that happened.
"""

import random
from dataclasses import dataclass, field

import pytest

from broker.groups.share.partition import SharePartition, Transition
from broker.groups.share.stored_state import StoredState
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

_MEMBERS = ("a", "b", "c")
_LIMITS = ShareLimits(lock_duration_ms=1_000, delivery_count=4, record_locks=100)


@dataclass
class Entry:
    """What the model knows of one offset of the window."""

    state: Delivery = Delivery.AVAILABLE
    count: int = 0
    owner: str | None = None
    due_ms: int = 0
    moving: Delivery | None = None


@dataclass
class Write:
    """A record of the state topic, in the order of the appends; settled once it is durable."""

    start: int
    batches: list[StateBatch]
    done_count: int
    is_settled: bool


@dataclass
class Waiting:
    """A transition that is not durable yet."""

    transition: Transition
    offsets: dict[int, Delivery]
    write: Write


@dataclass
class World:
    """The real partition, the model, the log and the store."""

    source: random.Random
    partition: SharePartition
    extents: list[Extent]
    start: int = 0
    end: int = 0
    now_ms: int = 0
    entries: dict[int, Entry] = field(default_factory=dict)
    log: list[Write] = field(default_factory=list)
    waiting: list[Waiting] = field(default_factory=list)
    accepted: set[int] = field(default_factory=set)
    """Offsets whose acceptance was stored: they may never be delivered again."""

    def advance(self) -> None:
        while self.start in self.entries:
            entry = self.entries[self.start]
            if not entry.state.is_done or entry.moving is not None:
                break
            del self.entries[self.start]
            self.start += 1

    def check(self) -> None:
        assert (self.partition.start_offset, self.partition.end_offset) == (self.start, self.end)
        seen = self.start
        for run, owner in self.partition.runs():
            assert run.first == seen
            seen = run.last + 1
            for offset in range(run.first, run.last + 1):
                entry = self.entries[offset]
                found = (run.state, run.deliveries, owner)
                assert found == (entry.state, entry.count, entry.owner), offset
        assert seen == self.end
        assert not self.accepted & {
            offset for offset, entry in self.entries.items() if entry.state is Delivery.ACQUIRED
        }
        is_done = [(entry.moving or entry.state).is_done for entry in self.entries.values()]
        assert self.partition.done_count == sum(is_done)
        free = [
            offset
            for offset, entry in sorted(self.entries.items())
            if entry.state is Delivery.AVAILABLE and entry.moving is None
        ]
        is_full = self.end - self.start >= _LIMITS.record_locks
        expected = free[0] if free else None if is_full else self.end
        assert self.partition.next_fetch_offset() == expected

    # -- steps ---------------------------------------------------------------------------------

    def acquire(self) -> None:
        offset = self.partition.next_fetch_offset()
        if offset is None:
            return
        found = [extent for extent in self.extents if extent.last >= offset]
        if not found:
            return
        found = found[: self.source.randint(1, 6)]
        wish = AcquireWish(
            records=self.source.choice((1, 3, 10, 50)),
            batch_records=self.source.choice((1, 4, 20)),
            is_strict=self.source.random() < 0.4,
        )
        member = self.source.choice(_MEMBERS)
        was_end = self.end
        acquired = self.partition.acquire(member, offset, found, wish, self.now_ms)
        self._account(member, offset, found, acquired, was_end)
        size = sum(each.last - each.first + 1 for each in acquired)
        if wish.is_strict:
            assert size <= wish.records
        assert [each.first for each in acquired] == sorted(each.first for each in acquired)

    def _account(
        self,
        member: str,
        offset: int,
        found: list[Extent],
        acquired: list[Acquired],
        was_end: int,
    ) -> None:
        """Apply what was acquired to the model; holes and aborted records are archived."""
        new_end = self.partition.end_offset
        for number in range(was_end, new_end):
            self.entries[number] = Entry()
        self.end = new_end
        held = {
            number: each.deliveries
            for each in acquired
            for number in range(each.first, each.last + 1)
        }
        there = set()
        aborted = set()
        for extent in found:
            there |= set(range(extent.first, extent.last + 1))
            if extent.is_aborted:
                aborted |= set(range(extent.first, extent.last + 1))
        assert not aborted & held.keys()
        last = found[-1].last
        for number, entry in self.entries.items():
            is_free = entry.state is Delivery.AVAILABLE and entry.moving is None
            if number in held:
                assert is_free, number
                assert found[0].first <= number <= last, "a hole may be inside of what was read"
                entry.state, entry.owner = Delivery.ACQUIRED, member
                entry.count += 1
                entry.due_ms = self.now_ms + _LIMITS.lock_duration_ms
                assert entry.count == held[number] <= _LIMITS.delivery_count
            elif is_free and number in aborted:
                entry.state = Delivery.ARCHIVED
            elif is_free and number >= was_end:
                assert number not in there, "a new record is acquired, or not in the window"
                entry.state = Delivery.ARCHIVED
            elif is_free and offset <= number < found[0].first <= last:
                entry.state = Delivery.ARCHIVED
        self.advance()

    def acknowledge(self) -> None:
        member = self.source.choice(_MEMBERS)
        held = [n for n, e in sorted(self.entries.items()) if e.owner == member]
        if not held or self.source.random() < 0.1:
            first = self.source.randint(0, self.end + 3)
        else:
            first = self.source.choice(held)
        last = first + self.source.choice((0, 0, 2, 9))
        kinds = [Ack.GAP, Ack.ACCEPT, Ack.ACCEPT, Ack.RELEASE, Ack.REJECT, Ack.RENEW]
        if self.source.random() < 0.5:
            types = [self.source.choice(kinds)] * 1
        else:
            types = [self.source.choice(kinds) for _ in range(first, last + 1)]
        batches = [AckBatch(first, last, types)]
        wanted = {
            number: types[0] if len(types) == 1 else types[number - first]
            for number in range(first, last + 1)
            if number >= self.start
        }
        is_allowed = last < self.start or (
            last < self.end
            and all(
                self.entries[n].state is Delivery.ACQUIRED
                and self.entries[n].owner == member
                and self.entries[n].moving is None
                for n in wanted
            )
        )
        try:
            transition = self.partition.acknowledge(member, batches, self.now_ms)
        except AckRefused:
            assert not is_allowed
            return
        assert is_allowed
        moving: dict[int, Delivery] = {}
        for number, kind in wanted.items():
            entry = self.entries[number]
            if kind is Ack.RENEW:
                entry.due_ms = self.now_ms + _LIMITS.lock_duration_ms
                continue
            after = {
                Ack.ACCEPT: Delivery.ACKNOWLEDGED,
                Ack.RELEASE: self._freed(entry),
            }.get(kind, Delivery.ARCHIVED)
            entry.moving = moving[number] = after
        if moving:
            write = self._write(transition.batches(), is_settled=False)
            self.waiting.append(Waiting(transition, moving, write))

    def _write(self, batches: list[StateBatch], *, is_settled: bool) -> Write:
        start, done = self.partition.start_offset, self.partition.done_count
        self.log.append(Write(start, batches, done, is_settled))
        return self.log[-1]

    def _freed(self, entry: Entry) -> Delivery:
        is_spent = entry.count >= _LIMITS.delivery_count
        return Delivery.ARCHIVED if is_spent else Delivery.AVAILABLE

    def settle(self) -> None:
        """The oldest write ends, well or not; writes of one partition end in order."""
        if not self.waiting:
            return
        oldest = self.waiting.pop(0)
        if self.source.random() < 0.8:
            oldest.write.is_settled = True
            self.partition.commit(oldest.transition)
            for number, after in oldest.offsets.items():
                entry = self.entries.get(number)
                if entry is not None:
                    entry.state, entry.owner, entry.moving = after, None, None
                if after is Delivery.ACKNOWLEDGED:
                    self.accepted.add(number)
        else:
            self.log.remove(oldest.write)
            self.partition.rollback(oldest.transition, self.now_ms)
            for number in oldest.offsets:
                entry = self.entries.get(number)
                if entry is None:
                    continue
                entry.moving = None
                if entry.due_ms <= self.now_ms:
                    entry.state, entry.owner = self._freed(entry), None
        self.advance()

    def expire(self) -> None:
        self.now_ms += self.source.choice((10, 400, 1_500))
        due = [
            n
            for n, e in self.entries.items()
            if e.state is Delivery.ACQUIRED and e.moving is None and e.due_ms <= self.now_ms
        ]
        wake_ms = self.partition.wake_ms
        assert not due or (wake_ms is not None and wake_ms <= self.now_ms), "a timer is missing"
        self._give_back(due, self.partition.expire(self.now_ms))

    def leave(self) -> None:
        member = self.source.choice(_MEMBERS)
        held = [
            n
            for n, e in self.entries.items()
            if e.owner == member and e.state is Delivery.ACQUIRED and e.moving is None
        ]
        self._give_back(held, self.partition.release(member))

    def _give_back(self, numbers: list[int], batches: list[StateBatch]) -> None:
        for number in numbers:
            entry = self.entries[number]
            entry.state, entry.owner = self._freed(entry), None
        stored = {n for batch in batches for n in range(batch.first, batch.last + 1)}
        assert stored == set(numbers)
        self._write(batches, is_settled=True)
        self.advance()

    def delete_records(self) -> None:
        if self.waiting:
            return
        log_start = self.start + self.source.randint(0, 15)
        self.partition.log_start_moved(log_start)
        for number in [n for n in self.entries if n < log_start]:
            del self.entries[number]
        self.start = max(self.start, log_start)
        self.end = max(self.end, self.start)
        self.extents = [extent for extent in self.extents if extent.last >= log_start]
        self.advance()

    def crash(self) -> None:
        """Load what was stored: what was accepted stays so, nothing else is lost."""
        before = self.entries
        self.waiting.clear()
        state = StoredState(start_offset=0)
        self.log = [each for each in self.log if each.is_settled or self.source.random() < 0.5]
        for write in self.log:
            write.is_settled = True
            state.merge(write.start, write.batches, write.done_count)
        self.partition = SharePartition(state.start_offset, state.batches, _LIMITS)
        passed = [e for n, e in before.items() if n < self.partition.start_offset]
        assert all((entry.moving or entry.state).is_done for entry in passed)
        self.start, self.end = self.partition.start_offset, self.partition.end_offset
        self.entries = {
            number: Entry(run.state, run.deliveries)
            for run, _ in self.partition.runs()
            for number in range(run.first, run.last + 1)
        }
        assert not self.accepted & {
            n for n, e in self.entries.items() if e.state is Delivery.AVAILABLE
        }
        for number, entry in before.items():
            if entry.state is Delivery.ACKNOWLEDGED and number in self.entries:
                assert self.entries[number].state is Delivery.ACKNOWLEDGED


def _extents(source: random.Random, upto: int) -> list[Extent]:
    """Batches of one to twelve records, some aborted, with holes between some."""
    extents, at = [], 0
    while at < upto:
        if source.random() < 0.1:
            at += source.randint(1, 5)
        last = at + source.randint(0, 11)
        extents.append(Extent(at, last, source.random() < 0.08))
        at = last + 1
    return extents


@pytest.mark.parametrize("seed", range(60))
def test_runs_and_a_model_of_single_offsets_agree(seed: int) -> None:
    source = random.Random(seed)
    world = World(source, SharePartition(0, [], _LIMITS), _extents(source, 1_500))
    steps = [
        *(world.acquire, world.acquire, world.acquire, world.acknowledge, world.acknowledge),
        *(world.acknowledge, world.settle, world.settle, world.expire, world.leave),
    ]
    for number in range(600):
        if number % 97 == 96:
            world.crash()
        elif number % 41 == 40:
            world.delete_records()
        else:
            source.choice(steps)()
        world.check()
    assert world.start > 100, "the group has worked"

"""A user's listener that fails is reported, and keeps no partition."""

import asyncio
from typing import Any

from client.aio.membership.rebalance import Listeners, PartitionsListener, Rebalance
from client.errors import ClientError, ListenerFailed
from client.types import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class FakeReader:
    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.is_paused = False


class FakeFetcher:
    def __init__(self) -> None:
        self.readers = {A: FakeReader(A), B: FakeReader(B)}

    def set_partitions(self, partitions: Any) -> None:
        self.readers = {partition: FakeReader(partition) for partition in partitions}


class FakePositions:
    def __init__(self) -> None:
        self.committed: list[TopicPartition] = []

    async def commit_consumed(self, readers: list[FakeReader]) -> None:
        self.committed += [reader.partition for reader in readers]


def made(
    listener: PartitionsListener | None,
    on_lost: PartitionsListener | None = None,
    failures: list[ClientError] | None = None,
) -> tuple[Rebalance, FakeFetcher, FakePositions]:
    fetcher, positions = FakeFetcher(), FakePositions()
    parts: dict[str, Any] = {"fetcher": fetcher, "positions": positions}
    rebalance = Rebalance(
        **parts,
        group_id="g",
        listeners=Listeners(listener, listener, on_lost),
        is_auto_commit=True,
        on_failure=([] if failures is None else failures).append,
    )
    return rebalance, fetcher, positions


async def test_what_is_revoked_is_committed_and_gone_though_the_listener_raises() -> None:
    def listener(_: frozenset[TopicPartition]) -> None:
        raise ValueError("planted")

    failures: list[ClientError] = []
    rebalance, fetcher, positions = made(listener, failures=failures)
    await rebalance.revoked(frozenset({A}))
    assert isinstance(failures[0], ListenerFailed)
    assert str(failures[0]) == "on_revoked raised ValueError: planted"
    assert isinstance(failures[0].__cause__, ValueError)
    assert positions.committed == [A]
    assert set(fetcher.readers) == {B}
    await rebalance.assigned(frozenset({A}))
    assert [str(failure) for failure in failures[1:]] == ["on_assigned raised ValueError: planted"]
    assert set(fetcher.readers) == {A}


async def test_listeners_may_be_coroutines_or_none() -> None:
    heard: list[frozenset[TopicPartition]] = []

    async def listener(partitions: frozenset[TopicPartition]) -> None:
        await asyncio.sleep(0)
        heard.append(partitions)

    rebalance, _, _ = made(listener)
    await rebalance.assigned(frozenset({A}))
    assert heard == [frozenset({A})]
    silent, fetcher, _ = made(None)
    await silent.revoked(frozenset({A, B}))
    assert fetcher.readers == {}


async def test_what_is_being_revoked_is_not_handed_out_meanwhile() -> None:
    paused: list[tuple[bool, bool]] = []

    def listener(_: frozenset[TopicPartition]) -> None:
        paused.append((fetcher.readers[A].is_paused, fetcher.readers[B].is_paused))

    rebalance, fetcher, _ = made(listener)
    await rebalance.revoked(frozenset({A}))
    assert paused == [(True, False)]


async def test_what_is_lost_is_gone_at_once_and_not_committed() -> None:
    heard: list[tuple[str, set[TopicPartition]]] = []

    def revoked(_: frozenset[TopicPartition]) -> None:
        heard.append(("revoked", set(fetcher.readers)))

    def lost(_: frozenset[TopicPartition]) -> None:
        heard.append(("lost", set(fetcher.readers)))

    rebalance, fetcher, positions = made(revoked, lost)
    await rebalance.lost(frozenset({A}))
    assert heard == [("lost", {B})]
    rebalance, fetcher, positions = made(revoked)
    await rebalance.lost(frozenset({A}))
    assert heard[1:] == [("revoked", {B})]
    assert positions.committed == []


async def test_a_listener_that_counts_as_false_is_called() -> None:
    class Lost(list[frozenset[TopicPartition]]):
        def __call__(self, partitions: frozenset[TopicPartition]) -> None:
            self.append(partitions)

    lost, revoked = Lost(), Lost()
    rebalance, _, _ = made(revoked, lost)
    await rebalance.lost(frozenset({A}))
    assert (lost, revoked) == ([frozenset({A})], [])

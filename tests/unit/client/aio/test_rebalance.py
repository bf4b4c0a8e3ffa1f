"""A user's listener that fails is reported, and keeps no partition."""

import asyncio
from typing import Any

import pytest

from client.aio.rebalance import PartitionsListener, Rebalance
from client.errors import ListenerFailed
from client.types import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class FakeFetcher:
    def __init__(self) -> None:
        self.readers: dict[TopicPartition, str] = {A: "reader of 0", B: "reader of 1"}

    def set_partitions(self, partitions: Any) -> None:
        self.readers = dict.fromkeys(partitions, "reader")


class FakePositions:
    def __init__(self) -> None:
        self.committed: list[str] = []

    async def commit_consumed(self, readers: list[str]) -> None:
        self.committed += readers


def made(listener: PartitionsListener | None) -> tuple[Rebalance, FakeFetcher, FakePositions]:
    fetcher, positions = FakeFetcher(), FakePositions()
    parts: tuple[Any, Any] = (fetcher, positions)
    rebalance = Rebalance(*parts, on_assigned=listener, on_revoked=listener, is_auto_commit=True)
    return rebalance, fetcher, positions


async def test_what_is_revoked_is_committed_and_gone_though_the_listener_raises() -> None:
    def listener(_: frozenset[TopicPartition]) -> None:
        raise ValueError("planted")

    rebalance, fetcher, positions = made(listener)
    with pytest.raises(ListenerFailed, match="on_revoked raised ValueError: planted") as caught:
        await rebalance.revoked(frozenset({A}))
    assert isinstance(caught.value.__cause__, ValueError)
    assert positions.committed == ["reader of 0"]
    assert set(fetcher.readers) == {B}
    with pytest.raises(ListenerFailed, match="on_assigned raised"):
        await rebalance.assigned(frozenset({A}))
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

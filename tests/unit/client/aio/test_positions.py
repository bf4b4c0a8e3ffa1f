"""Offsets in the name of a member whose epoch grows, or that has joined again meanwhile."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from client.aio import positions as module
from client.aio.fetching import FetchOptions, PartitionReader
from client.aio.positions import Positions
from client.core.offsets import EARLIEST, Isolation
from client.errors import BrokerRefused, ClientError
from client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from protocol.error_codes import ErrorCode

TP = TopicPartition("t", 0)
OFFSETS = {TP: OffsetAndMetadata(5)}


class FakeCluster:
    """Time that passes by a tenth of a second at each look, of a minute's patience."""

    class options:
        timeout_ms = 60_000

    def __init__(self) -> None:
        self.clock = self
        self.seconds = 0.0

    def now(self) -> float:
        self.seconds += 0.1
        return self.seconds


def epoch(generation: int, joins_count: int = 1) -> GroupMetadata:
    return GroupMetadata(
        group_id="g",
        generation=generation,
        member_id="m",
        has_epoch=True,
        joins_count=joins_count,
    )


def positions(group: Callable[[], GroupMetadata], failures: list[ClientError]) -> Positions:
    cluster: Any = FakeCluster()
    return Positions(cluster, Isolation.READ_UNCOMMITTED, EARLIEST, group, failures.append)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    async def pass_by(_: float) -> None:
        return

    monkeypatch.setattr(asyncio, "sleep", pass_by)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The epochs under which offsets were committed; only 3 is current."""
    epochs: list[int] = []

    async def commit(_: Any, group: GroupMetadata, __: Any) -> None:
        epochs.append(group.generation)
        if group.generation != 3:
            raise BrokerRefused("committing", ErrorCode.STALE_MEMBER_EPOCH)

    monkeypatch.setattr(module, "commit_offsets", commit)
    return epochs


async def test_a_stale_epoch_is_replaced_by_the_newer_one(said: list[int]) -> None:
    newer = iter([epoch(1), epoch(2), epoch(3)])
    await positions(lambda: next(newer), []).commit(epoch(1), OFFSETS)
    assert said == [1, 1, 2, 3]


async def test_a_member_that_joined_again_does_not_commit_what_it_lost(said: list[int]) -> None:
    with pytest.raises(BrokerRefused, match=r"STALE_MEMBER_EPOCH.*poll more often"):
        await positions(lambda: epoch(3, joins_count=2), []).commit(epoch(1), OFFSETS)
    assert said == [1]


async def test_an_epoch_that_never_comes_ends_with_the_patience(said: list[int]) -> None:
    with pytest.raises(BrokerRefused, match="STALE_MEMBER_EPOCH"):
        await positions(lambda: epoch(1), []).commit(epoch(1), OFFSETS)
    assert len(said) > 100


@pytest.mark.parametrize("code", [ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
async def test_positions_are_asked_for_again_in_the_newer_epoch(
    code: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    async def fetch(*_: Any, member: GroupMetadata, **__: Any) -> Any:
        asked.append(member.generation)
        if member.generation == 1:
            raise BrokerRefused("reading", code)
        return OFFSETS

    monkeypatch.setattr(module, "fetch_committed", fetch)
    epochs = iter([epoch(1), epoch(2)])
    found = positions(lambda: next(epochs), [])
    reader = PartitionReader(TP, FetchOptions())
    places: list[int | None] = []
    for _ in range(2):
        await found.find([reader])
        places.append(reader.position)
    assert places == [None, 5]  # and not the start of the log
    assert asked == [1, 2]

"""The order of changes and of serving: no client meets a worker that lacks a change answered."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from broker.groups.share_partitions import SharePartitions
from broker.security.service import Security
from broker.topics.registry import TopicRegistry
from broker.workers.first import FirstWorker
from broker.workers.further import FollowingTransactions, FurtherWorker
from broker.workers.link import Link, Message
from config import load
from storage.directory.data_dir import DataDir
from storage.disk.files import RealFiles
from storage.errors import StorageFailed

CLUSTER_ID = "RvDj9Mo7SeWb1ekO9mF6Ag"


class FakeDirectory:
    """What worker 1 reads of its data directory."""

    cluster_id = CLUSTER_ID
    node_id = 1
    metadata = SimpleNamespace(everything=dict[tuple[str, str], Any], deleted_topics=list[Any])


class FakeTopics:
    """Topics whose change waits for `may_apply`, and fails with `error`."""

    def __init__(self) -> None:
        self.may_apply = asyncio.Event()
        self.error: StorageFailed | None = None
        self.followed: list[str] = []

    def when_deleted(self, callback: Callable[[Any], object]) -> None:
        pass

    async def follow(self, kind: str, keys: list[str]) -> None:
        await self.may_apply.wait()
        if self.error is not None:
            raise self.error
        self.followed += keys

    def __iter__(self) -> Iterator[Any]:
        return iter(())


class Peer:
    """The other end of a link, which keeps what it gets."""

    def __init__(self, connected: socket.socket) -> None:
        self.received: list[Message] = []
        self.link = Link(connected, lambda message, _: self.received.append(message), lambda: None)
        self.link.open()


async def wait_until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not is_so():
            await asyncio.sleep(0.001)


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0.001)


async def test_worker_1_waits_for_a_worker_that_has_served_all_along() -> None:
    """After a restart of worker 1 the other one still serves, before it has the metadata."""
    ours, theirs = socket.socketpair()
    peer = Peer(theirs)
    first = FirstWorker(2, {2: ours})
    changed = first.begin(cast(DataDir, FakeDirectory()))
    peer.link.send({"addresses": {"PLAINTEXT": ["h", 1]}, "serving": True})
    await first.open()
    changed("topic", {"t": {}})
    settled = asyncio.create_task(first.topic_settled("t"))
    await settle()
    assert not settled.done(), "answered before the other worker knows the topic"
    peer.link.send({"opened": 0, "epochs": []})
    await settle()
    assert not settled.done()
    peer.link.send({"applied": 1, "failure": None})
    assert await asyncio.wait_for(settled, 10) is None
    first.close()
    peer.link.close()


async def _started(
    tmp_path: Path, topics: FakeTopics
) -> tuple[FurtherWorker, Peer, "asyncio.Task[None]"]:
    """Worker 2 in its start, with a change that it has not applied yet, and may serve after it."""
    ours, theirs = socket.socketpair()
    peer = Peer(theirs)
    further = FurtherWorker(2, ours)
    peer.link.send({"metadata": [], "seq": 0, "cluster_id": CLUSTER_ID, "node_id": 1})
    config = load(environment={}, command_line={"log.dirs": str(tmp_path / "worker.2")})
    await further.open_data_dir(config, {}, files=RealFiles(), now_ms=0)
    starting = asyncio.create_task(
        further.begin(
            cast(TopicRegistry, topics),
            cast(Security, None),
            Mock(spec=FollowingTransactions),
            Mock(spec=SharePartitions),
        )
    )
    await wait_until(lambda: any("opened" in message for message in peer.received))
    peer.link.send({"change": ["topic", {"t": {}}], "seq": 1})
    peer.link.send({"serve": True})
    await settle()
    return further, peer, starting


async def test_a_worker_serves_after_the_changes_of_its_start(tmp_path: Path) -> None:
    """Worker 1 does not wait for a worker that starts, so that one must not serve before."""
    topics = FakeTopics()
    further, peer, starting = await _started(tmp_path, topics)
    assert not starting.done(), "it serves without a change that has been answered"
    topics.may_apply.set()
    await asyncio.wait_for(starting, 10)
    assert topics.followed == ["t"]
    await further.close()
    peer.link.close()


async def test_a_worker_that_cannot_apply_a_change_of_its_start_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signals: list[int] = []
    note: Callable[[int], None] = signals.append
    monkeypatch.setattr("signal.raise_signal", note)
    topics = FakeTopics()
    topics.error = StorageFailed("create", "t-0", "No space left on device")
    topics.may_apply.set()
    further, peer, starting = await _started(tmp_path, topics)
    await wait_until(lambda: bool(signals))
    assert not starting.done(), "it serves without a change that worker 1 takes for done"
    starting.cancel()
    await further.close()
    peer.link.close()

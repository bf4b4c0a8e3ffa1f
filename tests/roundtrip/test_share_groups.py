"""A share group moves with its directory: one broker wrote its states, the other continues it."""

import asyncio
from pathlib import Path

import pytest

from tests.compat.brokers import TidelogProcess
from tests.requests_differential.share_conversation import Scene
from tests.roundtrip.moving import peer_on, raise_features, tidelog
from tests.support.share_group import got

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.timeout(300)]


def scene(bootstrap: str) -> Scene:
    host, _, port = bootstrap.rpartition(":")
    return Scene(host, int(port), "moved")


async def use(scene: Scene) -> None:
    """Accept, reject and release some of ten records."""
    await scene.begin()
    await scene.produce(10)
    member = await scene.member()
    answer = await member.fetch("all", max_wait_ms=5000)
    assert got(answer).acquired == [(0, 9, 1)]
    await member.acknowledge("some", (0, 2, (1,)), (4, 4, (3,)), (6, 7, (2,)))
    await member.fetch("ends", session_epoch=-1)
    await asyncio.sleep(1)
    await member.raw.heartbeat(epoch=-1)
    await scene.close()


async def resume(scene: Scene, topic_id: bytes) -> list[tuple[int, int, int]]:
    """What a new member gets."""
    scene.topic_id = topic_id
    await scene.client()
    await scene.describe("where it stands")
    member = await scene.member("member-2")
    answer = await member.fetch("the rest")
    await scene.close()
    return got(answer).acquired


def test_a_share_group_of_kafka_continues(tmp_path: Path) -> None:
    settings = {"share.coordinator.state.topic.num.partitions": "3"}
    with peer_on(tmp_path / "kafka", None, "4.3.1", settings) as peer:
        theirs = scene(peer.bootstrap)
        asyncio.run(use(theirs))
    tidelog("import", tmp_path / "kafka" / "data", tmp_path / "tide")
    with TidelogProcess(tmp_path / "tide") as broker:
        ours = scene(broker.bootstrap)
        found = asyncio.run(resume(ours, theirs.topic_id))
    assert "'start_offset': 3" in ours.lines[0][1]
    assert found == [(3, 3, 2), (5, 9, 2)]


def test_a_share_group_continues_on_kafka(tmp_path: Path) -> None:
    with TidelogProcess(tmp_path / "tide") as broker:
        ours = scene(broker.bootstrap)
        asyncio.run(use(ours))
    tidelog("export-kraft", tmp_path / "tide", tmp_path / "moved")
    with peer_on(tmp_path / "kafka", tmp_path / "moved", "4.3.1") as peer:
        raise_features(peer.bootstrap)
        theirs = scene(peer.bootstrap)
        found = asyncio.run(resume(theirs, ours.topic_id))
    assert "'start_offset': 3" in theirs.lines[0][1]
    assert found == [(3, 3, 2), (5, 9, 2)]

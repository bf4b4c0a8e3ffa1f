"""Directories with share and streams groups, users, a bucket, several workers open and go on."""

import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.compat.brokers import TidelogProcess
from tests.old_directories import later
from tests.old_directories.test_old_directories import SETTINGS
from tests.old_directories.write import ARCHIVES
from tests.roundtrip.moving import tidelog
from tests.support.share_group import ShareMember

NAMES = sorted(
    path.name.removesuffix(".tar.xz")
    for path in ARCHIVES.glob("*.tar.xz")
    if path.name.count("-") == 2
)
ENDS = ("stopped", "killed")


def test_there_are_archives_of_every_kind() -> None:
    kinds = ("features", "workers")
    assert {f"24ebee08-{kind}-{end}" for kind in kinds for end in ENDS} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
async def test_directory_opens_with_everything_in_it(name: str, tmp_path: Path) -> None:
    expected, kind = unpacked(name, tmp_path), name.split("-")[1]
    settings = later.settings(kind, tmp_path) | SETTINGS
    with TidelogProcess(tmp_path / "data", settings=settings) as broker:
        found = await later.contents(broker.bootstrap, kind)
        assert later.differences(expected, found) == {}
        if kind == "features":
            await check_share_group(broker.bootstrap)
            await check_append(broker.bootstrap, (later.SHARED, later.TIERED, later.STREAM))
        else:
            await check_append(broker.bootstrap, (later.SPREAD,) * later.PARTITIONS)
    assert tidelog("fsck", tmp_path / "data")["findings"] == []


async def test_directory_comes_back_from_the_bucket_alone(tmp_path: Path) -> None:
    """A clean stop has shipped everything; a killed broker may not have."""
    expected = unpacked("24ebee08-features-stopped", tmp_path)
    shutil.rmtree(tmp_path / "data")
    settings = later.settings("features", tmp_path) | SETTINGS
    data, url = tmp_path / "data", settings["remote.storage.url"]
    tidelog("restore", url, "--data-dir", data, "--take-over")
    with TidelogProcess(data, settings=settings) as broker:
        async with later.connected(broker.bootstrap) as clients:
            assert await later.values(clients[0], later.TIERED) == expected["tiered"]


async def check_share_group(bootstrap: str) -> None:
    """What was accepted stays so; the rest comes for the second time."""
    async with later.connected(bootstrap) as clients:
        (topic_id,) = (
            one.topic_id for one in await later.topics(clients[0]) if one.name == later.SHARED
        )
        member = ShareMember(clients[0], later.SHARE_GROUP, topic_id, name="member-2")
        assert (await member.heartbeat(later.SHARED, epoch=0)).error_code == 0
        wanted = dict.fromkeys(range(later.ACCEPTED, later.RECORDS), 2)
        assert await later.acquire(member) == wanted


async def check_append(bootstrap: str, topics: tuple[str, ...]) -> None:
    """One record more gets the next offset."""
    async with later.connected(bootstrap) as clients:
        for number, topic in enumerate(topics):
            partition = number if topic == later.SPREAD else 0
            leader = (await later.leaders(clients[0], topic))[partition]
            offset = await later.append(clients[leader], topic, b"later", partition=partition)
            assert offset == (0 if topic == later.STREAM else later.RECORDS)


def unpacked(name: str, home: Path) -> dict[str, Any]:
    """Unpack the data, and the bucket, into `home`; what is expected of them."""
    with tarfile.open(ARCHIVES / f"{name}.tar.xz") as archive:
        archive.extractall(home, filter="tar")
    expected = json.loads((home / "expected.json").read_text(encoding="utf-8"))
    assert isinstance(expected, dict)
    return expected

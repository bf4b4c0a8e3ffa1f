"""Names that want to be paths, formats, escapes or lines: refused, or shown as what they are."""

import asyncio
import logging
import os
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from protocol.api.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.api.init_producer_id import InitProducerIdRequest
from protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.support.broker import RawClient, running_broker
from tests.support.requests import create_topic

INVALID_TOPIC = 17
PARTS = [
    *("../", "/", "\\", "\0", "\r\n", "\x1b[31m", "%s%n", "{0}", "${jndi:ldap://x}", "\u202e"),
    *("\u2028", '"', "'", "`id`", "$(id)", ";", "|", "é", "\ud7ff", "\x7f", "\x85", "\t", "<b>"),
]
NAMES = [
    *(f"{before}{part}{after}" for part in PARTS for before in ("", "a") for after in ("", "b")),
    *(".", "..", "", "a" * 250, "a" * 5000, "../" * 40 + "etc/passwd", "meta.properties/x"),
    *("%2e%2e%2f", "con", "a\nINFO tidelog.audit: User:admin created topic x"),
]


async def use(client: RawClient, name: str) -> int:
    """Give `name` to every kind of thing that has one; the code of its creation as a topic."""
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    made = await client.request(CreateTopicsRequest(topics=[topic], timeout_ms=9_000), 5)
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=0, committed_metadata=name[:4000]
    )
    commit = OffsetCommitRequest(
        group_id=name,
        member_id=name,
        topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])],
    )
    await client.request(commit, 7)
    await client.request(InitProducerIdRequest(transactional_id=name or None), 1)
    return int(made.topics[0].error_code)


def scraped(port: int | None) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        return str(answer.read().decode())


def files_of(place: Path) -> set[str]:
    return {str(path.relative_to(place)) for path in place.rglob("*")}


async def test_no_name_leaves_the_directory_or_breaks_a_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "tidelog")
    (tmp_path / "etc").mkdir()
    data = tmp_path / "outer" / "data"
    data.parent.mkdir()
    settings: dict[str, Any] = {"metrics_listener": "127.0.0.1:0"}
    async with running_broker(data, **settings) as running:
        client = await running.client()
        await create_topic(client, "t")
        before = files_of(tmp_path)
        codes = {name: await use(client, name) for name in NAMES}
        # All but one, which is as harmless as it looks.
        assert {name for name, code in codes.items() if code == 0} == {"con"}
        assert set(codes.values()) == {0, INVALID_TOPIC}
        port = running.ready.metrics_port
        exposition = await asyncio.to_thread(scraped, port)
    outside = {path for path in files_of(tmp_path) - before if not path.startswith("outer/data/")}
    assert outside == set()
    partitions = {path.name for path in data.iterdir() if path.is_dir()}
    assert all(name.rpartition("-")[0] in ("t", "con", "__consumer_offsets", "__transaction_state")
               for name in partitions if not name.startswith("worker")), partitions  # fmt: skip
    assert os.listdir(tmp_path / "etc") == []
    for message in caplog.messages:
        assert message.isprintable(), ascii(message)
    for line in exposition.split("\n"):
        assert not line or line.startswith(("# ", "tidelog_", "process_", "python_")), ascii(line)

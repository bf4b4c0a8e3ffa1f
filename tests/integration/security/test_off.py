"""Security that is off costs nothing: no request of an open broker calls any of its code."""

import sys
from pathlib import Path
from types import FrameType
from typing import Any

from protocol.api.heartbeat import HeartbeatRequest
from protocol.api.metadata import MetadataRequest, MetadataRequestTopic
from tests.integration.security.test_quotas import alter
from tests.support.broker import RunningBroker, batch, running_broker
from tests.support.requests import create_topic, fetch, list_offset, produce

PARTS = ("broker/security/", "broker/rights/", "broker/quotas/")


async def called_for_requests(running: RunningBroker) -> set[str]:
    """The functions of security that requests call on a connection that has sent some before."""
    called: set[str] = set()
    client = await running.client()
    await create_topic(client, "t")

    def note(frame: FrameType, event: str, _: Any) -> None:
        path = frame.f_code.co_filename
        if event == "call" and any(part in path for part in PARTS):
            called.add(f"{Path(path).name}: {frame.f_code.co_qualname}")

    async def requests() -> None:
        await produce(client, "t", batch("value"))
        await fetch(client, "t")
        await list_offset(client, "t", -1)
        await client.request(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12)
        await client.request(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4)

    await requests()
    sys.setprofile(note)
    try:
        for _ in range(3):
            await requests()
    finally:
        sys.setprofile(None)
    await client.close()
    return called


async def test_requests_call_no_security_where_there_is_none(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "data") as running:
        assert await called_for_requests(running) == set()


async def test_the_same_look_finds_rules_where_there_are_some(tmp_path: Path) -> None:
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    settings: dict[str, Any] = {
        "authorizer_class_name": authorizer,
        "super_users": "User:ANONYMOUS",
    }
    async with running_broker(tmp_path / "data", **settings) as running:
        assert "acls.py: Access.decided" in await called_for_requests(running)


async def test_a_quota_leaves_the_requests_of_other_clients_to_the_lanes(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "data") as running:
        client = await running.client()
        await create_topic(client, "t")
        await produce(client, "t", batch("value"))
        counted: list[str] = []

        def note(frame: FrameType, event: str, _: Any) -> None:
            if event == "call" and frame.f_code.co_qualname == "Throttle.serve":
                counted.append(str(frame.f_locals["request"].api_key))

        async def counted_requests() -> int:
            counted.clear()
            sys.setprofile(note)
            try:
                for _ in range(3):
                    await produce(client, "t", batch("value"))
                    assert (await fetch(client, "t")).error_code == 0
            finally:
                sys.setprofile(None)
            return len(counted)

        assert await counted_requests() == 0
        await alter(client, {"user": "bob"}, producer_byte_rate=1.0)
        await alter(client, {"ip": "127.0.0.9"}, connection_creation_rate=1.0)
        assert await counted_requests() == 0
        await alter(client, {"user": "ANONYMOUS"}, producer_byte_rate=1e12)
        assert await counted_requests() == 6
        await alter(client, {"user": "ANONYMOUS"}, producer_byte_rate=None)
        assert await counted_requests() == 0
        await alter(client, {"client-id": None}, consumer_byte_rate=1e12)
        assert await counted_requests() == 6
        await client.close()

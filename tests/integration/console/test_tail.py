"""The live tail in the loop of its broker: what one event holds."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from console.options import ConsoleOptions
from console.web.app import build
from tests.integration.console.conftest import HOST, serving
from tidelog.testing import InProcessBroker

RECORDS = 20


async def values_of_events(response: httpx.Response) -> AsyncIterator[list[Any]]:
    """The values of each event that has some."""
    async for line in response.aiter_lines():
        if line.startswith("data: "):
            values = [row["value"] for row in json.loads(line[6:]).get("rows", ())]
            if values:
                yield values


async def test_records_of_a_busy_topic_come_together(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tail at the end rests after an event, so that it does not ask for each record."""
    rests, gate = asyncio.Event(), asyncio.Event()

    async def rest() -> None:
        rests.set()
        await gate.wait()

    monkeypatch.setattr("console.web.tail.rest", rest)
    await broker.create_topic("busy", ["first"])
    app = build(ConsoleOptions(bootstrap=broker.bootstrap, allowed_hosts=frozenset((HOST,))))
    async with serving(app) as (_, port), httpx.AsyncClient(timeout=60) as client:
        url = f"http://127.0.0.1:{port}/api/topics/busy/tail?cursor=0:0"
        async with client.stream("GET", url, headers={"Host": HOST}) as response:
            events = values_of_events(response)
            assert await anext(events) == ["first"]
            await rests.wait()
            wanted = [str(number) for number in range(RECORDS)]
            for value in wanted:
                await broker.write("busy", value)
            gate.set()
            assert await anext(events) == wanted


async def test_what_lies_before_the_end_comes_without_a_rest(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tail that continues after an interruption rests only when it has come to the end."""
    gate = asyncio.Event()
    monkeypatch.setattr("console.web.tail.rest", gate.wait)
    large = [str(number) * 100_000 for number in range(10)]  # more than one answer holds
    await broker.create_topic("busy", large)
    app = build(ConsoleOptions(bootstrap=broker.bootstrap, allowed_hosts=frozenset((HOST,))))
    async with serving(app) as (_, port), httpx.AsyncClient(timeout=60) as client:
        url = f"http://127.0.0.1:{port}/api/topics/busy/tail?cursor=0:0"
        async with client.stream("GET", url, headers={"Host": HOST}) as response:
            found: list[str] = []
            async for values in values_of_events(response):
                found += [value[0] for value in values]
                if len(found) == len(large):
                    break
        gate.set()
    assert found == [value[0] for value in large]

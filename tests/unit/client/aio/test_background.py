"""A task that dies of a defect is heard of; one that ends or is cancelled is not."""

import asyncio

import pytest

from client.aio.background import start_watched
from client.errors import ClientBroken


async def test_a_defect_is_reported_with_its_cause(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[ClientBroken] = []

    async def work() -> None:
        raise KeyError("planted")

    task = start_watched(work(), "producer.send", heard.append)
    await asyncio.gather(task, return_exceptions=True)
    (broken,) = heard
    assert isinstance(broken.__cause__, KeyError)
    assert "ended its task producer.send: KeyError: 'planted'" in str(broken)
    assert "Traceback" in caplog.text


async def test_an_end_and_a_cancellation_are_none() -> None:
    heard: list[ClientBroken] = []
    done = start_watched(asyncio.sleep(0), "a", heard.append)
    await done
    endless = start_watched(asyncio.sleep(60), "b", heard.append)
    endless.cancel()
    await asyncio.gather(endless, return_exceptions=True)
    assert heard == []

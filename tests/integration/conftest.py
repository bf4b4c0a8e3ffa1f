"""Integration tests run on the event loop the product runs on."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import pytest
import uvloop

from tests.support.broker import RawClient, RunningBroker, running_broker


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """uvloop for every test of this directory."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[RunningBroker]:
    """A broker with default settings."""
    async with running_broker(tmp_path / "data") as running:
        yield running


@pytest.fixture
async def client(broker: RunningBroker) -> RawClient:
    """A connection to it."""
    return await broker.client()

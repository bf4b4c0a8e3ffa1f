"""After the start: code for later requests is loaded, and garbage is collected from then on."""

import asyncio
import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker import node
from broker.net.dispatch import OFTEN
from broker.server import GC_THRESHOLDS, _collect_garbage
from broker.warm_up import warm_up
from tests.support.broker import RunningBroker, running_broker


@pytest.fixture
def no_collections() -> Iterator[None]:
    """As during a start; undone afterwards."""
    before = gc.get_threshold()
    gc.disable()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)
    gc.enable()


@pytest.mark.usefixtures("no_collections")
async def test_usual_handlers_are_loaded_without_a_request_and_then_garbage_is_collected(
    broker: RunningBroker,
) -> None:
    collecting = asyncio.create_task(_collect_garbage(broker.broker))
    await asyncio.sleep(0)
    assert not gc.isenabled()
    async with asyncio.timeout(60):
        await collecting
    assert gc.isenabled()
    assert gc.get_threshold() == GC_THRESHOLDS
    (dispatcher,) = broker.broker._dispatchers.values()
    assert all(dispatcher._routes[key].handler is not None for key in OFTEN)


async def test_stop_before_the_warm_up_loads_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node, "WARM_UP_AFTER_MS", 3_600_000)
    async with running_broker(tmp_path / "data") as running:
        pass
    running.broker._begin_warm_up()  # as the timer would
    await asyncio.sleep(0.1)
    assert not running.broker.warm.is_set()


async def test_the_warm_up_does_without_re2(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installation on Alpine may lack it."""
    monkeypatch.setitem(sys.modules, "re2", None)
    async with asyncio.timeout(60):
        await broker.broker.warm.wait()
    warm_up(broker.broker._dispatchers.values(), lambda: True)

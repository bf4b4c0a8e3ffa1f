"""A broker in the event loop of an async test: it starts in milliseconds and its disk can fail.

It shares the loop with the test, so a test that blocks the loop blocks the broker too: use an
asyncio client, or one that has threads of its own and is awaited. Kills need `running_broker`.
"""

import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.testing import topics
from tidelog.testing.clock import AsyncBrokerClock
from tidelog.testing.faults import RequestFaults
from tidelog.testing.process import TEST_SETTINGS

if TYPE_CHECKING:
    from broker.net.addresses import ReadyInfo
    from broker.node import Broker
    from client.types import ConsumerRecord
    from tidelog.testing.disk import FaultyDisk


class InProcessBroker:
    """A broker that accepts clients.

    Attributes:
        bootstrap: ``host:port`` for clients.
        data_dir: where it keeps records.
        clock: what it stamps and deletes by; each command is awaited.
        disk: fails on request, see `tidelog.testing.disk`.
        faults: makes single requests fail, come late or lose their connection.
    """

    def __init__(self, broker: "Broker", ready: "ReadyInfo", disk: "FaultyDisk") -> None:
        """Describe a started broker."""
        self._broker = broker
        self.bootstrap = f"127.0.0.1:{ready.port}"
        self.data_dir = Path(ready.data_dir)
        self.clock = AsyncBrokerClock(f"127.0.0.1:{ready.metrics_port}")
        self.disk = disk
        self.faults = _faults_of(broker)

    async def create_topic(
        self,
        name: str,
        values: Iterable[topics.Value] = (),
        *,
        partitions: int = 1,
        settings: Mapping[str, str] | None = None,
    ) -> str:
        """Create a topic, write `values` to it, and return its name."""
        await topics.create_topic(self.bootstrap, name, partitions, settings or {})
        await self.write(name, *values)
        return name

    async def write(self, topic: str, *values: topics.Value) -> None:
        """Append records, durable on return; those without a time get the broker's present."""
        if values:
            await topics.write(self.bootstrap, topic, values, (await self.clock.read()).wall_ms)

    async def read(self, topic: str) -> "list[ConsumerRecord]":
        """All records of a topic that a consumer sees now, by partition and offset."""
        return await topics.read(self.bootstrap, topic)


def _faults_of(broker: "Broker") -> RequestFaults:
    from broker.faults.control import FaultControl

    assert broker.faults is not None, "its clock is settable"
    control = FaultControl(broker.faults)
    return RequestFaults(lambda words: control.apply(words) if words else control.reading())


@asynccontextmanager
async def in_process_broker(
    data_dir: str | Path | None = None, *, settings: Mapping[str, str] | None = None
) -> AsyncIterator[InProcessBroker]:
    """A broker in the running event loop, while the block runs.

    Args:
        data_dir: where it keeps records, for a restart on the same ones; None for a directory that
            is deleted afterwards.
        settings: broker settings by name, such as ``{"num.partitions": "4"}``.

    Raises:
        StartError: it cannot start; the message says why.
        ConfigErrors: a setting is wrong.
    """
    from broker.clocks.settable_clock import SettableClock
    from broker.node import Broker
    from config import load
    from tidelog.testing.disk import FaultyDisk

    with tempfile.TemporaryDirectory(prefix="tidelog-") as temporary:
        directory = Path(data_dir) if data_dir is not None else Path(temporary) / "data"
        given = {
            "log.dirs": str(directory),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            **TEST_SETTINGS,
            **(settings or {}),
        }
        disk = FaultyDisk()
        broker = Broker(load(command_line=given), clock=SettableClock(), files=disk)
        ready = await broker.start()
        try:
            yield InProcessBroker(broker, ready, disk)
        finally:
            disk.heal()
            await broker.stop()

"""A broker under attack, and the people who must not notice.

`siege` starts a broker with some data and keeps a bystander talking to it on another connection
while the test attacks. At the end it asks what an attack may never change: every byte of every
log, the bystander's answers and their speed, the memory held for requests, what the auditor finds.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from protocol.api_keys import SUPPORTED, ApiKey
from protocol.declare.primitives import Direction
from protocol.headers import RequestHeader, encode_request_header
from protocol.registry import encode_request
from storage.audit.fsck import audit_directory
from storage.disk.files import RealFiles
from tests.support.broker import RawClient, RunningBroker, batch, running_broker
from tests.support.requests import create_topic, list_offset, produce
from tests.unit.protocol.samples import LAYOUTS, sample

TOPIC = "besieged"
BATCHES = 20
PROBE_INTERVAL_S = 0.02
PROBE_WORST_S = 5.0
"""Generous: the machines that run this share their processors. An attack that blocks the loop for
as long as it lasts is found anyway."""

ATTACKERS = 32


class Siege:
    """What an attack has at hand."""

    def __init__(self, broker: RunningBroker) -> None:
        self.broker = broker
        self.bystander: Bystander | None = None
        self.attacks = 0
        self.answered = 0
        self.closed = 0
        self.silent = 0

    async def attack(self, data: bytes, *, timeout_s: float = 5.0) -> bytes | None:
        """Send bytes on a connection of their own; the first frame that comes back, if any."""
        reader, writer = await asyncio.open_connection(self.broker.host, self.broker.port)
        self.attacks += 1
        try:
            writer.write(data)
            async with asyncio.timeout(timeout_s):
                size = int.from_bytes(await reader.readexactly(4), "big")
                answer = await reader.readexactly(size)
                self.answered += 1
                return answer
        except (asyncio.IncompleteReadError, ConnectionError):
            self.closed += 1
        except TimeoutError:
            self.silent += 1
        finally:
            writer.transport.abort()
        return None

    async def attack_all(
        self, attacks: Iterable[bytes], *, timeout_s: float = 5.0
    ) -> list[tuple[bytes, bytes | None]]:
        """Each of them, some at a time; what was sent and what came back."""
        todo = iter(attacks)
        outcomes: list[tuple[bytes, bytes | None]] = []

        async def attacker() -> None:
            for data in todo:
                answer = await self.attack(data, timeout_s=timeout_s)
                outcomes.append((data, answer))

        await asyncio.gather(*(attacker() for _ in range(ATTACKERS)))
        return outcomes


class Bystander:
    """A client that asks one thing again and again and expects the same answer, soon."""

    def __init__(self, client: RawClient) -> None:
        self.asked = 0
        self.worst_s = 0.0
        self.times_s: list[float] = []
        self._client = client
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Raises what went wrong."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _run(self) -> None:
        while True:
            started = time.perf_counter()
            answer = await list_offset(self._client, TOPIC, -1)
            self.times_s.append(time.perf_counter() - started)
            self.worst_s = max(self.worst_s, self.times_s[-1])
            assert (answer.error_code, answer.offset) == (0, BATCHES), answer
            self.asked += 1
            await asyncio.sleep(PROBE_INTERVAL_S)


@asynccontextmanager
async def siege(directory: Path, **settings: str) -> AsyncIterator[Siege]:
    """A broker to attack; see the module docstring for what is asserted at the end."""
    settings = {"auto_create_topics_enable": "false", "max_partitions": "40", **settings}
    settings["log_retention_ms"] = "-1"  # the records are of 1970, and a siege may last long
    async with running_broker(directory, clock=None, **settings) as running:
        client = await running.client()
        await create_topic(client, TOPIC)
        for number in range(BATCHES):
            answer = await produce(client, TOPIC, batch(f"value {number}", timestamp=number + 1))
            assert answer.error_code == 0
        before = logs_in(directory)
        attack = Siege(running)
        attack.bystander = bystander = Bystander(client)
        yield attack
        await bystander.stop()
        assert bystander.asked > 0
        assert bystander.worst_s < PROBE_WORST_S
        assert logs_in(directory) == before
        assert _failures(running) == {}, "no handler may stumble over what a peer sends"
        await _is_quiet(running)
    assert audit_directory(str(directory), RealFiles()).findings == []


async def _is_quiet(running: RunningBroker) -> None:
    """The attackers have gone, and nothing is held for them."""
    connections = running.broker.connections
    for _ in range(100):
        if len(connections) == 1 and not connections.memory_bytes:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{len(connections)} connections, {connections.memory_bytes} bytes held")


def _failures(running: RunningBroker) -> dict[str, int]:
    """Exceptions that reached the request boundary, by API."""
    failures = {key.name: running.broker.metrics.api(key).failures for key in SUPPORTED}
    return {name: count for name, count in failures.items() if count}


def logs_in(directory: Path) -> dict[str, bytes]:
    """Every log of a topic of clients; the broker's own topics may grow by honest requests."""
    return {
        str(path): path.read_bytes()
        for path in sorted(directory.rglob("*.log"))
        if path.parent.name.startswith(TOPIC)
    }


def request_bytes(api_key: ApiKey, version: int, *, length: int = 1) -> bytes:
    """A request with something in every field, header included, without its size."""
    (layout,) = (
        layout
        for layout in LAYOUTS
        if (layout.key, layout.version, layout.direction) == (api_key, version, Direction.REQUEST)
    )
    header = RequestHeader(api_key=api_key, api_version=version, correlation_id=7, client_id="me")
    return encode_request_header(header) + encode_request(sample(layout, length=length), version)

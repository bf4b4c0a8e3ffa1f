"""A former owner of a bucket that continues: one cycle with real processes, its histories checked.

The owner is stopped (SIGSTOP) while a client writes to it, its standby is promoted and written to,
the owner continues. The topic waits for the bucket (`remote.acks.enable`), so the promise is whole:
each acknowledged record is in the log of the new owner, once, in its order; the former owner
acknowledges none from then on, and shows a beginning of what the new one has.
"""

import asyncio
import json
import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from tests.support.broker import ANSWER_TIMEOUT_S, BrokerProcess, RawClient, batch
from tests.support.cli import tidelog
from tests.support.requests import (
    PRODUCE_VERSION,
    create_topic,
    fetch,
    list_offset,
    produce_request,
    values_of,
)

TOPIC = {
    "segment_bytes": "2000",
    "remote_storage_enable": "true",
    "remote_acks_enable": "true",
    "retention_ms": "-1",
}
_CYCLE_S = 120
_BEFORE, _AFTER, _LATE = 20_000, 30_000, 40_000
"""First numbers of what the new owner gets before and after the other continues, and that one."""


@asynccontextmanager
async def client_of(port: int) -> AsyncIterator[RawClient]:
    client = await RawClient.connect("127.0.0.1", port)
    try:
        yield client
    finally:
        await client.close()


async def write(
    port: int, numbers: range, acknowledged: list[int], *, wait_s: float = ANSWER_TIMEOUT_S
) -> None:
    """Produce one number after the other, with acks=all, until one is refused."""
    async with client_of(port) as client:
        for number in numbers:
            records = batch(str(number), timestamp=number)
            client.send(produce_request("t", records), PRODUCE_VERSION)
            (topic,) = (await client.receive(wait_s)).responses
            if topic.partition_responses[0].error_code:
                return
            acknowledged.append(number)


async def numbers_at(client: RawClient) -> list[int]:
    """All values that a consumer sees."""
    found: list[int] = []
    end = (await list_offset(client, "t", -1)).offset
    while len(found) < end:
        data = await fetch(client, "t", len(found), max_wait_ms=5_000)
        assert data.error_code == 0
        found += [int(value or b"") for value in values_of(data)]
    return found


async def zombie_cycle(folder: Path, url: str, *, seed: int) -> None:
    """One cycle over an empty bucket; in a third of them the owner continues amid the promotion."""
    rng = random.Random(seed)
    settings = {"remote_storage_url": url}
    brokers = [BrokerProcess(folder / "first", **settings)]
    try:
        first = brokers[0]
        port = await asyncio.to_thread(first.wait_ready)
        async with client_of(port) as client:
            await create_topic(client, "t", 1, **TOPIC)
        acknowledged: list[int] = []
        await write(port, range(40), acknowledged)
        standby = {"remote_standby_enable": "true", "metrics_listener": "127.0.0.1:0"}
        second = BrokerProcess(folder / "second", **standby, **settings)
        brokers.append(second)
        other = await asyncio.to_thread(second.wait_ready)
        # One of its requests waits while the owner is stopped, however long a promotion takes.
        writing = asyncio.create_task(write(port, range(40, 10_000), acknowledged, wait_s=_CYCLE_S))
        while len(acknowledged) <= 40 and not writing.done():
            await asyncio.sleep(0.05)
        await asyncio.sleep(rng.random())
        await _promote(first, other, continues_after_s=rng.choice([None, None, rng.random()]))
        count = len(acknowledged)
        assert count > 40
        fresh: list[int] = []
        await write(other, range(_BEFORE, _BEFORE + 20), fresh)
        first.process.send_signal(signal.SIGCONT)
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            await writing
        # What was under way when it was stopped was in the bucket or is refused.
        assert len(acknowledged) <= count + 1
        late: list[int] = []
        await write(port, range(_LATE, _LATE + 10), late)
        assert late == []
        await write(other, range(_AFTER, _AFTER + 20), fresh)
        await _compare(port, other, acknowledged, fresh)
    finally:
        for process in brokers:
            with suppress(ProcessLookupError):
                process.process.send_signal(signal.SIGCONT)
            process.stop(signal.SIGKILL)


async def _promote(first: BrokerProcess, other: int, *, continues_after_s: float | None) -> None:
    """Stop the owner and promote the standby; the owner may continue before that has ended."""
    first.process.send_signal(signal.SIGSTOP)
    promoting = asyncio.create_task(
        asyncio.to_thread(tidelog, "promote", "-b", f"127.0.0.1:{other}", "--json")
    )
    if continues_after_s is not None:
        await asyncio.sleep(continues_after_s)
        first.process.send_signal(signal.SIGCONT)
    done = await promoting
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["epoch"] == 2


async def _compare(port: int, other: int, acknowledged: list[int], fresh: list[int]) -> None:
    async with client_of(other) as reader, client_of(port) as late_reader:
        found = await numbers_at(reader)
        zombie = await numbers_at(late_reader)
        for number in (0, 17, acknowledged[-1], _BEFORE + 1, _AFTER + 19):
            offset = (await list_offset(reader, "t", number)).offset
            assert found[offset] == number
    begun = [number for number in found if number < _BEFORE]
    assert begun == list(range(len(begun)))
    assert set(acknowledged) <= set(begun)
    assert len(begun) <= len(acknowledged) + 1
    wanted = [*range(_BEFORE, _BEFORE + 20), *range(_AFTER, _AFTER + 20)]
    assert found[len(begun) :] == fresh == wanted
    assert zombie == found[: len(zombie)]

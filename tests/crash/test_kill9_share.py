"""kill -9 of a real broker while members of a share group take and acknowledge records.

After each restart the members continue. A record whose acceptance was answered is never delivered
again; none is lost: in the end each was accepted, perhaps without an answer; no two members hold
the same record; no record is delivered more often than the limit. The same with two workers, when
the one that leads the partition is killed, or the one that keeps the states, or both.

`KILL9_CYCLES=50` sets the number of kills, `KILL9_SEED` what happens between them.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from protocol.error_codes import ErrorCode
from tests.integration.workers import support as workers
from tests.integration.workers.support import connect
from tests.support.broker import BrokerProcess, ConnectionClosed, RawClient, batch, broker_process
from tests.support.requests import create_topic, produce
from tests.support.share_group import ShareMember, set_group

CYCLES: Final = int(os.environ.get("KILL9_CYCLES", "4"))
SEED: Final = int(os.environ.get("KILL9_SEED", "20261123"))
MEMBERS: Final = 3
LIMIT: Final = 10
LEADER: Final = 2
TOPIC: Final = "shared"
GROUP: Final = "workers"
ACCEPT, RELEASE = 1, 2
_GONE: Final = (ConnectionClosed, OSError, TimeoutError)


class Book:
    """What was produced, delivered and answered."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.topic_id = b""
        self.produced: set[int] = set()
        self.accepted: set[int] = set()
        self.unanswered: set[int] = set()
        self.held: dict[int, str] = {}
        self.deliveries = 0

    def deliver(self, member: str, acquired: list[tuple[int, int, int]]) -> None:
        """A member got these ranges."""
        for first, last, count in acquired:
            assert 1 <= count <= LIMIT, (first, last, count)
            for offset in range(first, last + 1):
                assert offset not in self.accepted, f"{offset} was accepted, and came again"
                holder = self.held.get(offset)
                assert holder is None, f"{offset} is held by {holder}, and came to {member}"
                self.held[offset] = member
                self.deliveries += 1


async def produce_some(client: RawClient, book: Book, rng: random.Random) -> None:
    """Append batches until the broker is gone."""
    while True:
        count = rng.randint(1, 40)
        answer = await produce(client, TOPIC, batch(*map(str, range(count))))
        assert answer.error_code == 0, answer
        book.produced.update(range(answer.base_offset, answer.base_offset + count))
        await asyncio.sleep(0.01)


async def take(member: ShareMember, book: Book, rng: random.Random, *, until_empty: bool) -> None:
    """Fetch and acknowledge until the broker is gone, or until nothing is left."""
    assert (await member.heartbeat(TOPIC, epoch=0)).error_code == 0
    while True:
        got = await member.fetch(max_wait_ms=200, max_records=rng.choice((1, 5, 50)))
        book.deliver(member.member_id, got.acquired)
        if not got.acquired and until_empty:
            return
        for first, last, count in got.acquired:
            types = [
                RELEASE if count < LIMIT // 2 and not until_empty and rng.random() < 0.1 else ACCEPT
                for _ in range(first, last + 1)
            ]
            kept = {first + at for at, number in enumerate(types) if number == ACCEPT}
            book.unanswered |= kept
            for at, number in enumerate(types):
                if number == RELEASE:
                    del book.held[first + at]
            while error := await member.acked((first, last, types)):
                assert error == ErrorCode.COORDINATOR_NOT_AVAILABLE, error
                await asyncio.sleep(0.05)  # worker 1 restarts; the records are still locked
            book.unanswered -= kept
            book.accepted |= kept
            for offset in kept:
                del book.held[offset]


async def live(
    port: int,
    book: Book,
    rng: random.Random,
    kill: Callable[[], Coroutine[None, None, None]] | None,
) -> None:
    """One life of the leader, up to its kill; without one until everything is accepted."""
    is_last = kill is None
    clients = [await connect(port) for _ in range(MEMBERS + 1)]
    if not book.topic_id:
        # The records are decades old: retention would take them from a long life.
        book.topic_id = await create_topic(clients[0], TOPIC, retention_ms="-1")
        settings = {"share_auto_offset_reset": "earliest", "share_delivery_count_limit": str(LIMIT)}
        await set_group(clients[0], GROUP, **settings)
    members = [
        ShareMember(client, GROUP, book.topic_id, name=f"member-{number}")
        for number, client in enumerate(clients[1:])
    ]
    book.held.clear()
    work = [take(member, book, rng, until_empty=is_last) for member in members]
    if kill is None:
        for each in work:
            await each
    else:
        work.append(produce_some(clients[0], book, rng))
        work.append(kill())
        for outcome in await asyncio.gather(*work, return_exceptions=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, _GONE):
                raise outcome
    for client in clients:
        with suppress(*_GONE):
            await client.close()


@pytest.mark.timeout(60 + 10 * CYCLES)
def test_an_answered_acceptance_is_final(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    book = Book()
    for cycle in range(CYCLES + 1):
        # Few updates for each snapshot, so that kills meet both.
        broker = BrokerProcess(
            tmp_path, share_coordinator_snapshot_update_records_per_snapshot=str(rng.choice((0, 7)))
        )
        try:
            broker.wait_ready()

            async def kill(process: subprocess.Popen[str] = broker.process) -> None:
                await asyncio.sleep(rng.uniform(0.1, 0.7))
                process.kill()

            asyncio.run(live(broker.port, book, rng, None if cycle == CYCLES else kill))
            if cycle == CYCLES:
                assert broker.stop() == 0
        finally:
            if broker.process.poll() is None:
                broker.stop(signal.SIGKILL)
            else:
                broker.process.communicate()
    _judge(book, CYCLES)


@pytest.mark.timeout(120 + 20 * CYCLES)
def test_an_answered_acceptance_is_final_with_workers(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    book = Book()
    kills = 0

    async def kill() -> None:
        """Kill worker 1, the leader, or one after the other."""
        nonlocal kills
        if rng.random() < 0.6:
            await asyncio.sleep(rng.uniform(0.1, 0.7))
            former = workers.kill(data, 1)
            kills += 1
            if rng.random() < 0.8:
                await asyncio.to_thread(workers.wait_for_restart, data, 1, former)
        await asyncio.sleep(rng.uniform(0.1, 0.7))
        former = workers.kill(data, LEADER)
        kills += 1
        await asyncio.to_thread(workers.wait_for_restart, data, LEADER, former)

    async def lead() -> None:
        """Take turns until the next partition falls to the leader."""
        client = await connect(broker.port)
        number = 0
        while not number or (await workers.leaders_of(client, f"turn-{number}"))[0] == LEADER:
            number += 1
            await create_topic(client, f"turn-{number}")
        await client.close()

    data, log = tmp_path / "data", tmp_path / "log"
    with broker_process(data, log=str(log), workers="2", metrics_listener="127.0.0.1:0") as broker:
        asyncio.run(lead())
        for cycle in range(CYCLES + 1):
            asyncio.run(live(broker.ports[1], book, rng, None if cycle == CYCLES else kill))
    _judge(book, kills)


def _judge(book: Book, kills: int) -> None:
    assert book.produced - book.accepted - book.unanswered == set(), "records were lost"
    assert len(book.accepted) > 20 * CYCLES
    assert book.held == {}
    print(
        f"\n{kills} kills, {len(book.produced)} records, {book.deliveries} deliveries, "
        f"{len(book.accepted)} acceptances answered, {len(book.unanswered)} not"
    )

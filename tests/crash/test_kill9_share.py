"""kill -9 of a real broker while members of a share group take and acknowledge records.

After each restart the members continue. A record whose acceptance was answered is never delivered
again; none is lost: in the end each was accepted, perhaps without an answer; no two members hold
the same record; no record is delivered more often than the limit.

`KILL9_CYCLES=50` sets the number of kills.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from tests.support.broker import BrokerProcess, ConnectionClosed, RawClient, batch
from tests.support.requests import create_topic, produce
from tests.support.share_group import ShareMember, set_group

CYCLES: Final = int(os.environ.get("KILL9_CYCLES", "4"))
SEED: Final = 20261123
MEMBERS: Final = 3
LIMIT: Final = 10
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
            assert await member.acked((first, last, types)) == 0
            book.unanswered -= kept
            book.accepted |= kept
            for offset in kept:
                del book.held[offset]


async def live(broker: BrokerProcess, book: Book, rng: random.Random, *, is_last: bool) -> None:
    """One life of the broker, up to its kill, or until everything is accepted."""
    clients = [await RawClient.connect("127.0.0.1", broker.port) for _ in range(MEMBERS + 1)]
    if not book.topic_id:
        book.topic_id = await create_topic(clients[0], TOPIC)
        settings = {"share_auto_offset_reset": "earliest", "share_delivery_count_limit": str(LIMIT)}
        await set_group(clients[0], GROUP, **settings)
    members = [
        ShareMember(client, GROUP, book.topic_id, name=f"member-{number}")
        for number, client in enumerate(clients[1:])
    ]
    book.held.clear()
    work = [take(member, book, rng, until_empty=is_last) for member in members]
    if is_last:
        for each in work:
            await each
    else:
        work.append(produce_some(clients[0], book, rng))
        asyncio.get_running_loop().call_later(rng.uniform(0.1, 0.7), broker.process.kill)
        for outcome in await asyncio.gather(*work, return_exceptions=True):
            if not isinstance(outcome, _GONE):
                assert isinstance(outcome, BaseException)
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
            asyncio.run(live(broker, book, rng, is_last=cycle == CYCLES))
            if cycle == CYCLES:
                assert broker.stop() == 0
        finally:
            if broker.process.poll() is None:
                broker.stop(signal.SIGKILL)
            else:
                broker.process.communicate()
    assert book.produced - book.accepted - book.unanswered == set(), "records were lost"
    assert len(book.accepted) > 20 * CYCLES
    assert book.held == {}
    print(
        f"\n{CYCLES} kills, {len(book.produced)} records, {book.deliveries} deliveries, "
        f"{len(book.accepted)} acceptances answered, {len(book.unanswered)} not"
    )

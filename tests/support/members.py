"""Members of a consumer group by the bundled client, which note what they read and hear."""

import asyncio
from collections.abc import Callable
from typing import Any, Self

from tidelog import Consumer, Producer, TopicPartition

PARTITIONS = 4


def member(bootstrap: str, *topics: str, **options: Any) -> Consumer[Any, Any]:
    """A consumer of the consumer protocol (KIP-848), not started."""
    given = {"group_id": "g", "group_protocol": "consumer", "start": "earliest", **options}
    return Consumer(*topics, bootstrap=bootstrap, **given)


async def produce(bootstrap: str, first: int, last: int, topic: str = "t") -> None:
    """Numbers, to the partitions in turn."""
    async with Producer(bootstrap) as producer:
        count = len(await producer.partitions(topic))
        for number in range(first, last):
            await producer.send(topic, str(number).encode(), partition=number % count)


class Reader:
    """A member that processes what it gets at once, and commits it before it gives it back."""

    def __init__(self, bootstrap: str, *topics: str, **options: Any) -> None:
        self.values: list[int] = []
        self.heard: list[tuple[str, frozenset[int]]] = []
        self.consumer = member(
            bootstrap,
            *(topics or (() if "pattern" in options else ("t",))),
            auto_commit=False,
            on_revoked=self._revoked,
            on_assigned=lambda share: self._hear("assigned", share),
            on_lost=lambda share: self._hear("lost", share),
            **options,
        )
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.consumer.start()
        self._task = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.die()
        await self.consumer.close()

    async def die(self) -> None:
        """Read no more; nothing is said to anybody."""
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _read(self) -> None:
        while True:
            for records in (await self.consumer.getmany(timeout_ms=20)).values():
                self.values += [int(record.value or b"") for record in records]

    def _hear(self, what: str, share: frozenset[TopicPartition]) -> None:
        self.heard.append((what, frozenset(tp.partition for tp in share)))

    async def _revoked(self, share: frozenset[TopicPartition]) -> None:
        await self.consumer.commit()
        self._hear("revoked", share)

    @property
    def owned(self) -> set[int]:
        return {tp.partition for tp in self.consumer.assignment()}


async def until(is_so: Callable[[], bool]) -> None:
    """Wait until it is so."""
    async with asyncio.timeout(30):
        while not is_so():
            await asyncio.sleep(0.02)

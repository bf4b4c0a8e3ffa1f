"""Topics with records in them, for tests of what reads them: made by the asyncio client."""

from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

if TYPE_CHECKING:
    from client.types import ConsumerRecord

_T = TypeVar("_T")


class Seed(NamedTuple):
    """A record to write. Without a time it gets the broker's present, without a partition any."""

    value: str | bytes | None
    key: str | bytes | None = None
    timestamp_ms: int | None = None
    partition: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


Value: TypeAlias = str | bytes | Seed


async def create_topic(
    bootstrap: str, name: str, partitions: int, settings: Mapping[str, str]
) -> None:
    """Create a topic."""
    from client.admin import Admin

    async with Admin(bootstrap) as admin:
        await admin.create_topic(name, partitions=partitions, configs=settings)


async def delete(bootstrap: str, names: Iterable[str]) -> None:
    """Delete topics."""
    from client.admin import Admin

    async with Admin(bootstrap) as admin:
        await admin.delete_topic(*names)


async def write(bootstrap: str, topic: str, values: Iterable[Value], now_ms: int) -> None:
    """Write records, each durable on return; those without a time get `now_ms`."""
    from client.producer import Producer

    async with Producer(bootstrap) as producer:
        for value in values:
            seed = value if isinstance(value, Seed) else Seed(value)
            await producer.send(
                topic,
                _bytes(seed.value),
                key=_bytes(seed.key),
                partition=seed.partition,
                timestamp_ms=now_ms if seed.timestamp_ms is None else seed.timestamp_ms,
                headers=list(seed.headers),
            )
        await producer.flush()


async def read(bootstrap: str, topic: str) -> "list[ConsumerRecord]":
    """The records of a topic that a consumer sees now, by partition and offset."""
    from client.consumer import Consumer

    found: list[ConsumerRecord] = []
    async with Consumer(bootstrap=bootstrap, start="earliest") as consumer:
        partitions = await consumer.partitions(topic)
        ends = await consumer.end_offsets(partitions)
        starts = await consumer.beginning_offsets(partitions)
        left = {one for one in partitions if starts[one] < ends[one]}
        consumer.assign(left)
        while left:
            for records in (await consumer.getmany(timeout_ms=200)).values():
                found += records
            left = {one for one in left if (consumer.position(one) or 0) < ends[one]}
    return sorted(found, key=lambda record: (record.partition, record.offset))


def run(work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
    """The result of a coroutine, also where this thread already runs an event loop."""
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1, "tidelog-testing") as pool:
        return pool.submit(lambda: asyncio.run(work())).result()


def _bytes(text: str | bytes | None) -> bytes | None:
    return text.encode() if isinstance(text, str) else text

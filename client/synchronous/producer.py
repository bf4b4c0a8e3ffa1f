"""The producer for threads; see `client.producer`.

with BlockingProducer("localhost:9092") as producer:
    delivery = producer.send("flights", b"took off", key=b"N14228")
    print(delivery.result())
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, Self, Unpack

from client.aio.batches import Delivery
from client.checks import check_numbers
from client.errors import BrokerUnreachable
from client.producer import Producer
from client.statistics import ProducerStatistics
from client.synchronous.loop_thread import LoopThread
from client.types import (
    GroupMetadata,
    KeyT,
    OffsetAndMetadata,
    RecordMetadata,
    RecordOptions,
    TopicPartition,
    ValueT,
)


@dataclass(slots=True, eq=False, repr=False)
class BlockingDelivery:
    """The fate of one record. Need not be asked: `flush` raises failures that no caller saw."""

    _delivery: Delivery
    _thread: LoopThread

    @property
    def is_done(self) -> bool:
        """Whether `result` returns at once."""
        return self._delivery.is_done

    def result(self, *, timeout_ms: int | None = None) -> RecordMetadata:
        """Wait until the broker has stored it; by default until the delivery timeout.

        Raises:
            ClientError: it was not stored, or its fate is unknown.
            BrokerUnreachable: no outcome within `timeout_ms` yet; it may be asked again.
            InvalidUse: the producer was closed, with an error, before there was an outcome.
        """
        if timeout_ms is not None:
            check_numbers(0, timeout_ms=timeout_ms)

        async def wait() -> RecordMetadata:
            try:
                async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                    return await self._delivery
            except TimeoutError:
                raise BrokerUnreachable(
                    f"the record was not acknowledged within {timeout_ms} ms yet; ask again"
                ) from None

        if self._delivery.is_done:
            return self._delivery.outcome()
        return self._thread.call(wait())


class BlockingProducer(Generic[KeyT, ValueT]):
    """`Producer` with calls that block. Opened by ``with``; any number of threads may send."""

    def __init__(
        self,
        bootstrap: str | Iterable[str] = "127.0.0.1:9092",
        *,
        key_serializer: Callable[[KeyT], bytes] | None = None,
        value_serializer: Callable[[ValueT], bytes] | None = None,
        on_statistics: Callable[[ProducerStatistics], None] | None = None,
        **options: Any,
    ) -> None:
        """Set up without connecting; the arguments are those of `Producer`.

        Raises:
            InvalidUse: values that do not exist, are out of range or do not fit together.
            TypeError: an argument that `Producer` does not have.
        """
        self._thread = LoopThread("BlockingProducer")
        self._producer = Producer(
            bootstrap,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            on_statistics=self._thread.listener("on_statistics", on_statistics),
            **options,
        )

    def __enter__(self) -> Self:
        """Connect; see `start`."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Flush and close; after an error, close without waiting."""
        self.close(flush=error is None)

    def start(self) -> None:
        """Connect; raises as `Producer.start`."""
        self._thread.start(self._producer.start)

    def close(self, *, flush: bool = True) -> None:
        """End the producer; raises as `Producer.close`. May be called again."""
        self._thread.check_no_callback()
        if not self._thread.is_open:
            return
        try:
            self._thread.call(self._producer.close(flush=flush))
        finally:
            self._thread.stop()

    def send(
        self, topic: str, value: ValueT | None, **options: Unpack[RecordOptions[KeyT]]
    ) -> BlockingDelivery:
        """Queue one record; see and raises as `Producer.send`."""
        work = self._producer.send(topic, value, **options)
        return BlockingDelivery(self._thread.call(work), self._thread)

    def send_and_wait(
        self, topic: str, value: ValueT | None, **options: Unpack[RecordOptions[KeyT]]
    ) -> RecordMetadata:
        """As `send`, and wait until the record is stored; slow if done one by one."""
        return self.send(topic, value, **options).result()

    def flush(self) -> None:
        """Send all records now and wait for each; raises as `Producer.flush`."""
        self._thread.call(self._producer.flush())

    def partitions(self, topic: str) -> list[int]:
        """The partitions of a topic, which is created if the broker does so."""
        return self._thread.call(self._producer.partitions(topic))

    def statistics(self) -> ProducerStatistics:
        """What was sent so far, and what waits."""
        return self._thread.run(self._producer.statistics)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All sends in the block become visible together when it ends, or never.

        Raises:
            InvalidUse, ClientError: as `Producer.transaction`.
        """
        context = self._producer.transaction()
        self._thread.call(context.__aenter__())
        try:
            yield
        except BaseException as error:
            self._thread.call(context.__aexit__(type(error), error, error.__traceback__))
            raise
        self._thread.call(context.__aexit__(None, None, None))

    def send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group: str | GroupMetadata,
    ) -> None:
        """Commit a group's positions in the open transaction; as `Producer.send_offsets`."""
        self._thread.call(self._producer.send_offsets(offsets, group))

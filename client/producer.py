"""The producer: records in, deliveries out.

Owns the user's side of producing: choosing partitions, bounding memory, flushing, transactions.
Sending is `client.aio.sender`, queues are `client.aio.batches`, the transaction's requests are
`client.aio.transactions`.

    async with Producer("localhost:9092") as producer:
        delivery = await producer.send("flights", b"took off", key=b"N14228")
        print(await delivery)
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Generic, Self, Unpack

from client.aio.batches import RECORD_OVERHEAD_BYTES, Batch, Delivery
from client.aio.connection import open_cluster
from client.aio.converting import check_converters, serialized
from client.aio.listeners import Listener, Reporter
from client.aio.sender import Sender, SenderOptions
from client.aio.transactions import Transactions
from client.checks import (
    check_called,
    check_choice,
    check_flags,
    check_number,
    check_numbers,
    check_text,
    check_texts,
    content_of,
    headers_of,
    positions_of,
)
from client.core.identity import ProducerIdentity
from client.core.options import NOT_SECURED, ClusterOptions, Security, parse_bootstrap
from client.errors import (
    BrokerUnreachable,
    ClientError,
    InvalidTime,
    InvalidType,
    InvalidUse,
    NotThere,
)
from client.partitioner import StickyPartitioner, partition_for_key
from client.statistics import ProducerStatistics
from client.times import PLAIN_MS, TIMESTAMP_MS_MAX, to_ms
from client.types import (
    GroupMetadata,
    Header,
    KeyT,
    OffsetAndMetadata,
    RecordMetadata,
    RecordOptions,
    TopicInfo,
    TopicPartition,
    ValueT,
)
from protocol.records.layout import NO_TIMESTAMP, Codec
from protocol.records.record import Record

ACKS = {"all": -1, "-1": -1, "1": 1, "0": 0}

RECORD_BYTES_MAX = 2**30
"""No broker takes a record that is larger, and its batch could not be written down."""


class Producer(Generic[KeyT, ValueT]):
    """Sends records in batches, in order per partition, by default once each.

    Keys and values are bytes, or what the serializers take. Opened by ``async with`` (or `start`)
    and closed by it (or `close`), which flushes first. Belongs to one event loop; any number of
    tasks may send. A crash of this process loses records that were not acknowledged; await a
    `Delivery` or `flush` to be sure.
    """

    def __init__(
        self,
        bootstrap: str | Iterable[str] = "127.0.0.1:9092",
        *,
        acks: str | int = "all",
        compression: str = "none",
        linger_ms: int = 5,
        batch_bytes: int = 64 * 1024,
        buffer_bytes: int = 32 * 1024 * 1024,
        idempotent: bool | None = None,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60_000,
        request_timeout_ms: int = 30_000,
        delivery_timeout_ms: int = 120_000,
        check_timestamps: bool = True,
        key_serializer: Callable[[KeyT], bytes] | None = None,
        value_serializer: Callable[[ValueT], bytes] | None = None,
        on_statistics: Listener[ProducerStatistics] | None = None,
        statistics_interval_ms: int | None = None,
        client_id: str = "tidelog-producer",
        security: Security = NOT_SECURED,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """Set up without connecting.

        Args:
            bootstrap: ``host:port`` of one or more brokers.
            acks: ``all`` waits until the record is safe on disk, 1 until it is appended, 0 does not
                wait.
            compression: none, gzip, snappy, lz4 or zstd, for whole batches.
            linger_ms: how long a batch that is not full waits for more; less than
                `delivery_timeout_ms`.
            batch_bytes: when a batch is full, before compression.
            buffer_bytes: how many unsettled bytes there may be in all; `send` waits above it.
            idempotent: let the broker drop repeated batches; None: yes, if acks is ``all``.
            transactional_id: needed for `transaction`; one live producer per id.
            transaction_timeout_ms: after this the broker aborts a silent transaction.
            request_timeout_ms: how long one request may take.
            delivery_timeout_ms: how long a record is retried in all, and the longest that `send`
                waits for a topic's metadata or for room.
            check_timestamps: refuse timestamps that look like seconds, micros or nanos.
            key_serializer: makes bytes of a key; not called for None.
            value_serializer: makes bytes of a value; not called for None.
            on_statistics: gets a `ProducerStatistics` every `statistics_interval_ms`, and at the
                end; a function or a coroutine function.
            statistics_interval_ms: how often.
            client_id: how the broker's logs and metrics name this client.
            security: TLS and the user of the connections; by default neither.
            clock_ms: the clock for records without a timestamp.

        Raises:
            InvalidUse: values that do not exist, are out of range or do not fit together; the
                message names the option, the value and what is allowed.
        """
        check_numbers(1, transaction_timeout_ms=transaction_timeout_ms)
        check_number("buffer_bytes", buffer_bytes, 1, TIMESTAMP_MS_MAX)
        check_flags(check_timestamps=check_timestamps)
        if idempotent is not None:
            check_flags(idempotent=idempotent)
        check_converters(key_serializer=key_serializer, value_serializer=value_serializer)
        check_called(clock_ms=clock_ms)
        check_texts(transactional_id=transactional_id, client_id=client_id)
        acks_number = _acks_number(acks)
        if acks_number != -1 and (idempotent or transactional_id is not None):
            raise InvalidUse("idempotent and transactional producers need acks='all'")
        wants_identity = acks_number == -1 if idempotent is None else idempotent
        self._options = SenderOptions(
            acks=acks_number,
            codec=_codec(compression),
            linger_ms=linger_ms,
            batch_bytes=batch_bytes,
            request_timeout_ms=request_timeout_ms,
            delivery_timeout_ms=delivery_timeout_ms,
        )
        self._cluster = open_cluster(
            ClusterOptions(
                bootstrap=parse_bootstrap(bootstrap),
                client_id=client_id,
                request_timeout_ms=request_timeout_ms,
                create_topics=True,
                security=security,
            )
        )
        self._identity: ProducerIdentity | None = None
        if wants_identity or transactional_id is not None:
            self._identity = ProducerIdentity(
                self._cluster,
                transactional_id=transactional_id,
                transaction_timeout_ms=transaction_timeout_ms,
            )
        self._transactions: Transactions | None = None
        self._sender: Sender | None = None
        self._buffer_bytes, self._buffered_bytes = buffer_bytes, 0
        self._has_room = asyncio.Event()
        self._check_timestamps = check_timestamps
        self._clock_ms = clock_ms
        self._sticky: dict[str, StickyPartitioner] = {}
        self._unseen_failure: ClientError | None = None
        self._key_serializer, self._value_serializer = key_serializer, value_serializer
        self._counts = _Counts()
        self._reporter = Reporter(on_statistics, statistics_interval_ms, self.statistics)

    async def __aenter__(self) -> Self:
        """Connect; see `start`."""
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Flush and close; after an error, close without waiting."""
        await self.close(flush=error is None)

    async def start(self) -> None:
        """Connect and, if idempotent, get an identity.

        Raises:
            BrokerUnreachable: no broker answers.
            UnsupportedByBroker: the broker has no idempotence or transactions.
            InvalidUse: it is started already, or closed.
        """
        self._cluster.check_unused("producer", is_started=self._sender is not None)
        try:
            await self._cluster.refresh(())
            if self._identity is not None:
                await self._identity.acquire()
        except BaseException:
            await self._cluster.close()
            raise
        self._sender = Sender(self._cluster, self._options, self._identity, self._batch_settled)
        if self._identity is not None and self._identity.transactional_id is not None:
            self._transactions = Transactions(self._identity, self._sender)
        self._sender.start()
        self._reporter.start(self._note, self._sender.break_off)

    async def close(self, *, flush: bool = True) -> None:
        """End the producer; with `flush`, after every record was delivered or given up.

        Raises:
            ClientError: as `flush`.
        """
        sender = self._sender
        if sender is None:
            return
        try:
            if self._transactions is not None and self._transactions.is_open:
                await self._transactions.abort()
            elif flush:
                await self.flush()
            await self._reporter.close()
        finally:
            self._sender = None
            await sender.close()
            await self._cluster.close()

    # Sending.

    async def send(
        self,
        topic: str,
        value: ValueT | None,
        *,
        key: KeyT | None = None,
        partition: int | None = None,
        timestamp_ms: int | datetime | None = None,
        headers: Iterable[Header] = (),
    ) -> Delivery:
        """Queue one record; await the returned `Delivery` for its outcome.

        Without a `partition` the key decides; without a key, the partition that fills batches best.
        `timestamp_ms` is milliseconds since the epoch or an aware `datetime`; without it the record
        carries the present; -1 means no time, as in records of the oldest format. Waits only for
        metadata of a new topic and for room in the buffer.

        Raises:
            InvalidType: an argument of the wrong type.
            BadValue: a serializer refuses the key or the value.
            RegistryUnreachable, NoSuchSchema, BadSchema: its registry has no schema for it.
            InvalidUse: a bad partition, a record above `RECORD_BYTES_MAX`, or a timestamp in the
                wrong unit.
            BrokerRefused: the topic does not exist and is not created.
            BrokerUnreachable: no metadata or no room within `delivery_timeout_ms`.
            ClientBroken: a defect has ended the sending of records.
        """
        sender = self._running()
        if type(topic) is not str:
            check_text("topic", topic)
        # Any: bytes after these two steps, and what the serializers take before them.
        content: Any = value
        name: Any = key
        if self._value_serializer is not None and value is not None:
            content = await serialized("value", self._value_serializer, value)
        if self._key_serializer is not None and key is not None:
            name = await serialized("key", self._key_serializer, key)
        if type(content) is not bytes:
            content = content_of("value", content)
        if name is not None and type(name) is not bytes:
            name = content_of("key", name)
        header_list = headers_of(headers) if headers else ()
        timestamp_ms = self._timestamp(timestamp_ms)
        size_bytes = _record_size(name, content, header_list)
        if size_bytes > RECORD_BYTES_MAX:
            raise InvalidUse(
                f"the record has {size_bytes} bytes: {RECORD_BYTES_MAX} at most; send it in pieces"
            )
        # The cluster's cache answers at once but for the first record of a topic.
        info = self._cluster.find_topic(topic, partition) or await self._topic(topic, partition)
        chosen = self._choose(info, name, partition, size_bytes)
        if self._transactions is not None:
            await self._transactions.enrol(TopicPartition(topic, chosen))
        while self._buffered_bytes + size_bytes > self._buffer_bytes and self._buffered_bytes:
            await self._wait_for_room(sender)
        # Asked again: it may have been closed while this waited.
        queue = self._running().queue(TopicPartition(topic, chosen))
        self._buffered_bytes += size_bytes
        was_waiting = len(queue.waiting)
        now = asyncio.get_running_loop().time()
        delivery = queue.append(
            Record(0, timestamp_ms, name, content, header_list),
            size_bytes,
            limit_bytes=self._options.batch_bytes,
            now=now,
        )
        if len(queue.waiting) != was_waiting:
            sender.wake()
        return delivery

    async def send_and_wait(
        self, topic: str, value: ValueT | None, **options: Unpack[RecordOptions[KeyT]]
    ) -> RecordMetadata:
        """As `send`, and wait until the record is stored; slow if done one by one.

        Raises:
            ClientError: as `send`; it was not stored, or it is not known whether it was.
        """
        delivery = await self.send(topic, value, **options)
        return await delivery

    async def flush(self) -> None:
        """Send all records now and wait until each is stored or given up.

        Raises:
            ClientError: the first failure since the last flush that no caller awaited.
            ClientBroken: a defect has ended the sending of records.
        """
        sender = self._running()
        sender.check_works()
        sender.flushing += 1
        try:
            sender.wake()
            for batch in sender.unsettled():
                await batch.settled()
        finally:
            sender.flushing -= 1
        self.raise_failure()

    def raise_failure(self) -> None:
        """Raise what `flush` would, without waiting; lets long inputs stop early.

        Raises:
            ClientError: the first failure since the last one raised that no caller awaited.
        """
        failure, self._unseen_failure = self._unseen_failure, None
        if failure is not None:
            raise failure

    async def partitions(self, topic: str) -> list[int]:
        """The partitions of a topic, which is created if the broker does so."""
        self._running()
        return list((await self._topic(topic)).partitions)

    def statistics(self) -> ProducerStatistics:
        """What was sent so far, and what waits."""
        batches = [] if self._sender is None else self._sender.unsettled()
        return ProducerStatistics(
            time_ms=time.time_ns() // 1_000_000,
            **asdict(self._counts),
            records_waiting=sum(len(batch.records) for batch in batches),
            buffered_bytes=self._buffered_bytes,
        )

    # Transactions.

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """All sends in the block become visible together when it ends, or never.

        An exception in the block aborts; so does a record that cannot be delivered.

        Raises:
            InvalidUse: the producer has no transactional_id, or a transaction is open.
            ClientError: the commit failed; the transaction is aborted.
        """
        transactions = self._running_transactions()
        transactions.begin()
        try:
            yield
        except BaseException:
            await transactions.abort()
            self._unseen_failure = None
            raise
        await transactions.commit()
        self._unseen_failure = None

    async def send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group: str | GroupMetadata,
    ) -> None:
        """Commit a group's positions as part of the open transaction.

        Give `Consumer.group_metadata`: then the broker refuses the positions of a consumer whose
        partitions have gone to another member. With the bare name of the group it cannot.

        Raises:
            InvalidUse: no transaction is open, or a key is not a partition or a value not an
                offset.
            BrokerRefused: the group or the transaction is in the way, or the group has gone on
                without this member.
        """
        if not isinstance(group, GroupMetadata):
            check_text("group", group)
            group = GroupMetadata(group_id=group)
        await self._running_transactions().send_offsets(positions_of(offsets), group)

    # Inside.

    def _running(self) -> Sender:
        if self._sender is None:
            raise InvalidUse("the producer is not started, or closed: use 'async with Producer'")
        return self._sender

    def _running_transactions(self) -> Transactions:
        self._running()
        if self._transactions is None:
            raise InvalidUse("give the producer a transactional_id to use transactions")
        return self._transactions

    def _timestamp(self, given: int | str | datetime | None) -> int:
        """The `timestamp_ms` argument of `send` in milliseconds."""
        if type(given) is int and given in PLAIN_MS:
            return given
        if given is None:
            return self._clock_ms()
        if isinstance(given, str):
            raise InvalidType(
                f"timestamp_ms={given!r} is text: give milliseconds or an aware datetime, such as "
                "datetime.fromisoformat(...)"
            )
        if given == NO_TIMESTAMP and not isinstance(given, bool):
            return NO_TIMESTAMP
        if isinstance(given, int) and not self._check_timestamps:
            # One less than the wire holds: the distance from -1 has to fit as well.
            check_number("timestamp_ms", given, NO_TIMESTAMP, TIMESTAMP_MS_MAX - 1)
            return given
        try:
            return to_ms(given, now_ms=0)
        except InvalidTime as error:
            is_number = isinstance(given, int) and given > 0
            hint = "; check_timestamps=False lets it through" if is_number else ""
            raise InvalidTime(f"timestamp_ms: {error}{hint}") from None

    async def _topic(self, name: str, partition: int | None = None) -> TopicInfo:
        try:
            async with asyncio.timeout(self._options.delivery_timeout_ms / 1000):
                if type(partition) is int:
                    return await self._cluster.topic_with(name, partition)
                return await self._cluster.topic(name)
        except TimeoutError:
            raise BrokerUnreachable(
                f"no broker described the topic {name} within delivery_timeout_ms="
                f"{self._options.delivery_timeout_ms}"
            ) from None

    def _choose(
        self, info: TopicInfo, key: bytes | None, partition: int | None, size_bytes: int
    ) -> int:
        if partition is not None:
            if type(partition) is not int:
                check_number("partition", partition, 0)
            if partition not in info.partitions:
                raise NotThere.partition(info.name, partition, len(info.partitions))
            return partition
        if key is not None:
            return partition_for_key(key, len(info.partitions))
        sticky = self._sticky.get(info.name)
        if sticky is None:
            sticky = StickyPartitioner(stick_bytes=self._options.batch_bytes)
            self._sticky[info.name] = sticky
        return sticky.choose(list(info.partitions), size_bytes)

    async def _wait_for_room(self, sender: Sender) -> None:
        self._has_room.clear()
        sender.flushing += 1
        try:
            sender.wake()
            async with asyncio.timeout(self._options.delivery_timeout_ms / 1000):
                await self._has_room.wait()
        except TimeoutError:
            raise BrokerUnreachable(
                f"the buffer of {self._buffer_bytes} bytes stayed full for "
                f"{self._options.delivery_timeout_ms} ms: the broker takes nothing"
            ) from None
        finally:
            sender.flushing -= 1

    def _note(self, error: ClientError) -> None:
        if self._unseen_failure is None:
            self._unseen_failure = error

    def _batch_settled(self, batch: Batch) -> None:
        size_bytes = 0
        for record in batch.records:
            size_bytes += _record_size(record.key, record.value, record.headers)
        self._buffered_bytes -= size_bytes
        self._has_room.set()
        counts = self._counts
        if batch.error is None:
            counts.records_stored += len(batch.records)
            counts.batches_stored += 1
            counts.bytes_stored += size_bytes
        else:
            counts.records_failed += len(batch.records)
            if self._transactions is not None:
                self._transactions.record_failed(batch.error)
            if not batch.is_observed:
                self._note(batch.error)


@dataclass(slots=True)
class _Counts:
    """What was settled so far, as in `ProducerStatistics`."""

    records_stored: int = 0
    records_failed: int = 0
    bytes_stored: int = 0
    batches_stored: int = 0


def _acks_number(acks: str | int) -> int:
    number = ACKS.get(str(acks).lower())
    if number is None:
        raise InvalidUse(f"acks={acks!r} does not exist: choose 'all', 1 or 0")
    return number


def _codec(name: str) -> Codec:
    check_choice("compression", name, [codec.name.lower() for codec in Codec])
    return Codec[name.upper()]


def _record_size(key: bytes | None, value: bytes | None, headers: Iterable[Header]) -> int:
    size = RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += len(name) + len(content or b"") + 4
    return size

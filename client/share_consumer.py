"""The share consumer: records of a share group (KIP-932), each for one member at a time.

Owns the face for event loops; what a member does is `client.core.sharing`. The face for threads is
`client.blocking.share_consumer`.

    async with ShareConsumer("orders", group_id="workers") as consumer:
        async for record in consumer: ...
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from types import TracebackType
from typing import Self

from client.aio.background import end_tasks, start_watched
from client.aio.connection import open_cluster
from client.checks import check_numbers
from client.core.options import NOT_SECURED, ClusterOptions, Security, parse_bootstrap
from client.core.sharing.options import IMPLICIT, Refused, ShareOptions
from client.core.sharing.reader import ShareReader
from client.errors import ClientError, InvalidUse
from client.types import ConsumerRecord


class ShareConsumer:
    """Reads topics as a member of a share group: each record goes to one member.

    Opened by ``async with`` (or `start`), closed by it (or `close`). Belongs to one event loop and
    one reading task.

    A record is the member's for the lock duration of the group (30 s unless it is set). With
    implicit acknowledgement the next poll accepts the records of the last one. With explicit one
    each record is acknowledged by `acknowledge` before the next poll. Records without
    acknowledgement are delivered again, to this member or another, as often as the group allows.
    """

    def __init__(
        self,
        *topics: str,
        group_id: str,
        bootstrap: str | Iterable[str] = "127.0.0.1:9092",
        acknowledgement: str = IMPLICIT,
        max_records: int = 500,
        strict: bool = False,
        fetch_max_wait_ms: int = 500,
        fetch_min_bytes: int = 1,
        fetch_max_bytes: int = 16 * 1024 * 1024,
        check_crcs: bool = True,
        request_timeout_ms: int = 30_000,
        timeout_ms: int = 60_000,
        on_refused: Refused | None = None,
        client_id: str = "tidelog-share-consumer",
        security: Security = NOT_SECURED,
    ) -> None:
        """Set up without connecting.

        Args:
            topics: the topics to read.
            group_id: the share group; its settings say where it begins and how long locks last.
            bootstrap: ``host:port`` of one or more brokers.
            acknowledgement: ``implicit``, or ``explicit``: every record by `acknowledge`.
            max_records: how many records one poll acquires of each broker.
            strict: never acquire more than `max_records`; else the last batch comes whole.
            fetch_max_wait_ms: how long the broker may wait for `fetch_min_bytes`.
            fetch_min_bytes: the least that the broker answers without waiting.
            fetch_max_bytes: the most in one answer.
            check_crcs: verify every batch's check sum.
            request_timeout_ms: how long one request may take.
            timeout_ms: how long a call retries in all.
            on_refused: gets the partition, the offsets and the error of acknowledgements that had
                no effect, because the lock had expired or the connection was lost.
            client_id: how the broker's logs and metrics name this client.
            security: TLS and the user of the connections; by default neither.

        Raises:
            InvalidUse: values that do not exist, are out of range or do not fit together.
        """
        options = ShareOptions(
            topics=topics,
            group_id=group_id,
            acknowledgement=acknowledgement,
            max_records=max_records,
            is_strict=strict,
            fetch_max_wait_ms=fetch_max_wait_ms,
            fetch_min_bytes=fetch_min_bytes,
            fetch_max_bytes=fetch_max_bytes,
            check_crcs=check_crcs,
            on_refused=on_refused,
        )
        self._cluster = open_cluster(
            ClusterOptions(
                bootstrap=parse_bootstrap(bootstrap),
                client_id=client_id,
                request_timeout_ms=request_timeout_ms,
                timeout_ms=timeout_ms,
                metadata_max_age_ms=60_000,
                security=security,
            )
        )
        self._reader = ShareReader(self._cluster, options)
        self._heartbeats: asyncio.Task[None] | None = None
        self._was_started = False

    async def __aenter__(self) -> Self:
        """Connect and join; see `start`."""
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Close. Without an error implicit acknowledgement accepts the records handed out."""
        await self._close(is_clean=error is None)

    async def start(self) -> None:
        """Connect, and join the group.

        Raises:
            BrokerUnreachable: no broker answers.
            BrokerRefused: a topic does not exist, or the group does not accept this member.
            UnsupportedByBroker: the broker has no share groups.
            InvalidUse: it is started already, or closed.
        """
        self._cluster.check_unused("consumer", is_started=self._was_started)
        self._was_started = True
        try:
            await self._reader.start()
        except BaseException:
            await self._cluster.close()
            raise
        self._heartbeats = start_watched(
            self._beat(), "share_consumer.heartbeats", self._reader.fail
        )

    async def close(self) -> None:
        """Send the acknowledgements, give back the other records, leave, close the connections."""
        await self._close(is_clean=False)

    async def _close(self, *, is_clean: bool) -> None:
        task, self._heartbeats = self._heartbeats, None
        if task is None:
            return
        await end_tasks(task)
        try:
            await self._reader.close(is_clean=is_clean)
        finally:
            await self._cluster.close()

    async def _beat(self) -> None:
        """Send heartbeats; what no further one cures is raised by the next poll."""
        membership = self._reader.membership
        while True:
            try:
                await membership.beat()
            except ClientError as error:
                self._reader.fail(error)
            await asyncio.sleep(max(0.01, membership.due - self._cluster.clock.now()))

    def _running(self) -> ShareReader:
        if self._heartbeats is None:
            raise InvalidUse("this consumer is not started: use `async with`, or call start()")
        return self._reader

    # Reading.

    async def getmany(self, *, timeout_ms: int = 1000) -> list[ConsumerRecord]:
        """Records as soon as there are any; empty if none come in time.

        Sends the acknowledgements of earlier records. Those of the last poll are accepted, if
        that is implicit.

        Raises:
            InvalidUse: with explicit acknowledgement records are left without one.
            BrokerRefused: a topic or the group is denied.
            BadRecords: a batch was damaged; its records were rejected.
        """
        check_numbers(0, timeout_ms=timeout_ms)
        return await self._running().poll(timeout_ms)

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """The records, for ever, as they come."""
        return self

    async def __anext__(self) -> ConsumerRecord:
        """The next record; waits for one. With implicit acknowledgement the last one is accepted.

        Raises:
            ClientError: as `getmany`.
        """
        return await self._running().next()

    # Acknowledging.

    def acknowledge(self, record: ConsumerRecord, kind: str = "accept") -> None:
        """``accept`` a record, ``release`` it for another delivery, or ``reject`` it for good.

        Sent with the next poll, or at once by `commit`.

        Raises:
            InvalidUse: the record is not in hand, or `kind` is none of the three.
        """
        self._running().acknowledge(record, kind)

    async def renew(self, *records: ConsumerRecord) -> None:
        """Hold records for another lock duration, from now on.

        Raises:
            InvalidUse: one is not in hand.
            BrokerRefused: the lock of one has expired, or the group allows no renewal.
        """
        await self._running().renew(records)

    async def commit(self) -> None:
        """Send the acknowledgements now, and wait until they are durable.

        With implicit acknowledgement all records handed out are accepted.

        Raises:
            BrokerRefused: some had no effect: the first one's reason.
            BrokerUnreachable: a broker did not answer.
        """
        await self._running().commit()

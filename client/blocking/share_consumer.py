"""The share consumer for a thread without an event loop; see `client.share_consumer`.

It sends its heartbeats while it polls. One that works for longer than the group's session timeout
between two polls joins again at the next one; the locks of its records are not concerned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Self

from client.blocking import open_cluster, run
from client.checks import check_numbers
from client.core.options import ClusterOptions, parse_bootstrap
from client.core.sharing.options import ShareOptions
from client.core.sharing.reader import ShareReader
from client.errors import InvalidUse
from client.types import ConsumerRecord


class BlockingShareConsumer:
    """`ShareConsumer` with calls that block. Opened by ``with``; belongs to one thread."""

    def __init__(
        self,
        *topics: str,
        group_id: str,
        bootstrap: str | Iterable[str] = "127.0.0.1:9092",
        client_id: str = "tidelog-share-consumer",
        strict: bool = False,
        **options: Any,
    ) -> None:
        """Set up without connecting; the arguments are those of `ShareConsumer`.

        Raises:
            InvalidUse: values that do not exist, are out of range or do not fit together.
            TypeError: an argument that `ShareConsumer` does not have.
        """
        names = ("request_timeout_ms", "timeout_ms", "security")
        reach = {name: options.pop(name) for name in names if name in options}
        shared = ShareOptions(topics=topics, group_id=group_id, is_strict=strict, **options)
        self._cluster = open_cluster(
            ClusterOptions(bootstrap=parse_bootstrap(bootstrap), client_id=client_id, **reach)
        )
        self._reader = ShareReader(self._cluster, shared)
        self._is_open = False

    def __enter__(self) -> Self:
        """Connect, and join the group; raises as `ShareConsumer.start`."""
        try:
            run(self._reader.start())
        except BaseException:
            run(self._cluster.close())
            raise
        self._is_open = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Close. Without an error implicit acknowledgement accepts the records handed out."""
        self._is_open = False
        try:
            run(self._reader.close(is_clean=error is None))
        finally:
            run(self._cluster.close())

    def _running(self) -> ShareReader:
        if not self._is_open:
            raise InvalidUse("this consumer is not open: use `with`")
        return self._reader

    def getmany(self, *, timeout_ms: int = 1000) -> list[ConsumerRecord]:
        """Records as soon as there are any; empty if none come in time."""
        check_numbers(0, timeout_ms=timeout_ms)
        return run(self._running().poll(timeout_ms))

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """The records, for ever, as they come."""
        return self

    def __next__(self) -> ConsumerRecord:
        """The next record; waits for one."""
        return run(self._running().next())

    def acknowledge(self, record: ConsumerRecord, kind: str = "accept") -> None:
        """``accept`` a record, ``release`` it for another delivery, or ``reject`` it for good."""
        self._running().acknowledge(record, kind)

    def renew(self, *records: ConsumerRecord) -> None:
        """Hold records for another lock duration, from now on."""
        run(self._running().renew(records))

    def commit(self) -> None:
        """Send the acknowledgements now, and wait until they are durable."""
        run(self._running().commit())

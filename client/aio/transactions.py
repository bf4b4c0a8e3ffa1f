"""Transactions of a producer: which partitions take part, how it ends.

Owns the state of at most one open transaction; its requests are `client.core.identity`, and the
records travel as always, marked with the identity. A transaction with a failed record can only be
aborted.

Source: Kafka ``TransactionManager``.
"""

from collections.abc import Mapping
from enum import Enum, auto

from client.aio.sender import Sender
from client.core.identity import ProducerIdentity
from client.errors import ClientError, InvalidUse
from client.types import GroupMetadata, OffsetAndMetadata, TopicPartition


class TransactionState(Enum):
    """The producer's state between two commits."""

    READY = auto()
    OPEN = auto()
    FAILED = auto()


class Transactions:
    """The open transaction of one producer, if any."""

    def __init__(self, identity: ProducerIdentity, sender: Sender) -> None:
        """No transaction is open; the identity is that of a transactional id."""
        self._identity = identity
        self._sender = sender
        self._state = TransactionState.READY
        self._enrolled: set[TopicPartition] = set()
        self._has_offsets = False
        self._failure: ClientError | None = None

    @property
    def is_open(self) -> bool:
        """Whether a transaction waits for its end."""
        return self._state is not TransactionState.READY

    def begin(self) -> None:
        """Open a transaction; the first record makes it known to the broker.

        Raises:
            InvalidUse: one is open already.
        """
        if self.is_open:
            raise InvalidUse("a transaction is open already: a producer has one at a time")
        self._state = TransactionState.OPEN
        self._failure = None

    def record_failed(self, error: ClientError) -> None:
        """A record cannot be delivered: the transaction can only be aborted now."""
        if self._state is TransactionState.OPEN:
            self._state = TransactionState.FAILED
            self._failure = error

    async def enrol(self, partition: TopicPartition) -> None:
        """Make a partition part of the open transaction, before its first record is sent.

        Raises:
            InvalidUse: no transaction is open.
            ClientError: an earlier record failed, or the broker refuses.
        """
        self._check_open()
        if partition not in self._enrolled:
            await self._identity.add_partitions((partition,))
            self._enrolled.add(partition)

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        """Commit positions of a group with the transaction.

        Raises:
            InvalidUse: no transaction is open.
            BrokerRefused: the broker refuses.
        """
        self._check_open()
        await self._identity.add_group(group.group_id)
        self._has_offsets = True
        await self._identity.commit_offsets(group, offsets)

    async def commit(self) -> None:
        """Deliver all records and make them visible.

        Raises:
            ClientError: a record could not be delivered, or the broker refuses; the transaction is
                aborted then.
        """
        await self._deliver()
        if self._failure is not None:
            failure = self._failure
            await self.abort()
            raise failure
        await self._end(committed=True)

    async def abort(self) -> None:
        """Drop unsent records, and have the broker abort the sent ones."""
        self._state = TransactionState.FAILED
        self._sender.drop_waiting(InvalidUse("the transaction was aborted before it was sent"))
        await self._deliver()
        await self._end(committed=False)

    async def _deliver(self) -> None:
        self._sender.flushing += 1
        try:
            self._sender.wake()
            for batch in self._sender.unsettled():
                await batch.settled()
        finally:
            self._sender.flushing -= 1

    async def _end(self, *, committed: bool) -> None:
        """Report the outcome to the broker, if it knows the transaction; then be ready again."""
        if self._enrolled or self._has_offsets:
            await self._identity.end(committed=committed)
        self._enrolled.clear()
        self._has_offsets = False
        if self._identity.is_stale:
            await self._identity.acquire()
            self._sender.forget_numbers()
        self._state = TransactionState.READY

    def _check_open(self) -> None:
        if self._state is TransactionState.READY:
            raise InvalidUse("no transaction is open: send within 'async with transaction()'")
        if self._failure is not None:
            raise self._failure

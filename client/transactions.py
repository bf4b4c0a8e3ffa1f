"""Transactions of a producer: which partitions take part, how it ends.

Owns the state of at most one open transaction and the requests around it; the records travel
as always, marked with the identity. A transaction with a failed record can only be aborted.

Source: KIP-98, KIP-447; Kafka ``TransactionManager``.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any

from client.cluster import Cluster, CoordinatorType
from client.errors import BrokerRefused, ClientError, InvalidUse
from client.identity import ProducerIdentity
from client.sender import Sender
from client.types import OffsetAndMetadata, TopicPartition
from protocol.api.add_offsets_to_txn import AddOffsetsToTxnRequest
from protocol.api.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from protocol.api.end_txn import EndTxnRequest
from protocol.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from protocol.error_codes import ErrorCode


class TransactionState(Enum):
    """The producer's state between two commits."""

    READY = auto()
    OPEN = auto()
    FAILED = auto()


class Transactions:
    """The open transaction of one producer, if any."""

    def __init__(self, cluster: Cluster, identity: ProducerIdentity, sender: Sender) -> None:
        """No transaction is open; the identity is that of a transactional id."""
        assert identity.transactional_id is not None
        self._id: str = identity.transactional_id
        self._cluster = cluster
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
        if partition in self._enrolled:
            return
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self._identity.producer_id,
            v3_and_below_producer_epoch=self._identity.producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=partition.topic, partitions=[partition.partition])
            ],
        )

        async def attempt() -> None:
            response, address = await self._call(request, max_version=3)
            for topic in response.results_by_topic_v3_and_below:
                for result in topic.results_by_partition:
                    what = f"adding {partition} to the transaction"
                    _check(what, result.partition_error_code, address)

        await self._cluster.retrying(attempt, self._forget)
        self._enrolled.add(partition)

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], group_id: str
    ) -> None:
        """Commit positions of a group with the transaction.

        Raises:
            InvalidUse: no transaction is open.
            BrokerRefused: the broker refuses.
        """
        self._check_open()
        add = AddOffsetsToTxnRequest(
            transactional_id=self._id,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            group_id=group_id,
        )

        async def attempt_add() -> None:
            response, address = await self._call(add, max_version=4)
            _check(f"adding group {group_id} to the transaction", response.error_code, address)

        await self._cluster.retrying(attempt_add, self._forget)
        self._has_offsets = True
        commit = self._commit_request(offsets, group_id)

        async def attempt_commit() -> None:
            response, address = await self._cluster.call_coordinator(
                CoordinatorType.GROUP, group_id, commit, max_version=4
            )
            for topic in response.topics:
                for result in topic.partitions:
                    what = f"committing {topic.name}-{result.partition_index} in the transaction"
                    _check(what, result.error_code, address)

        await self._cluster.retrying(
            attempt_commit,
            lambda _: self._cluster.forget_coordinator(CoordinatorType.GROUP, group_id),
        )

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
        request = EndTxnRequest(
            transactional_id=self._id,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            committed=committed,
        )

        async def attempt() -> None:
            response, address = await self._call(request, max_version=4)
            what = f"{'committing' if committed else 'aborting'} the transaction {self._id}"
            _check(what, response.error_code, address)

        if self._enrolled or self._has_offsets:
            await self._cluster.retrying(attempt, self._forget)
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

    async def _call(self, request: object, *, max_version: int) -> tuple[Any, str]:
        return await self._cluster.call_coordinator(
            CoordinatorType.TRANSACTION, self._id, request, max_version=max_version
        )

    def _forget(self, error: ClientError) -> None:
        self._cluster.forget_coordinator(CoordinatorType.TRANSACTION, self._id)

    def _commit_request(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], group_id: str
    ) -> TxnOffsetCommitRequest:
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for partition, position in offsets.items():
            value = OffsetAndMetadata(position) if isinstance(position, int) else position
            topics.setdefault(partition.topic, []).append(
                TxnOffsetCommitRequestPartition(
                    partition_index=partition.partition,
                    committed_offset=value.offset,
                    committed_leader_epoch=value.leader_epoch,
                    committed_metadata=value.metadata,
                )
            )
        return TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=group_id,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            topics=[
                TxnOffsetCommitRequestTopic(name=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )


def _check(what: str, error_code: int, address: str) -> None:
    if error_code != ErrorCode.NONE:
        raise BrokerRefused(what, error_code, broker=address)

"""Who a producer is to the broker: its id and epoch, and the transactions in its name.

The broker remembers, per partition, the last sequence numbers of each producer id and refuses
duplicates and gaps, which makes sending again harmless. When a batch is given up while the broker
may have it, the numbers after it are worthless: the identity is `is_stale` then, and a new one is
fetched once nothing that carries the old one is under way.

Requests only: `client.aio.transactions` and Spark's sink decide when a transaction begins and ends.

Source: KIP-98, KIP-360 (a new epoch instead of a new id), KIP-447.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from client.core.cluster import Cluster, CoordinatorType
from client.core.offsets import committed_topics
from client.core.parts import by_topic, check
from client.errors import BrokerRefused
from client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from protocol.api.add_offsets_to_txn import AddOffsetsToTxnRequest
from protocol.api.add_partitions_to_txn import AddPartitionsToTxnRequest
from protocol.api.end_txn import EndTxnRequest
from protocol.api.init_producer_id import InitProducerIdRequest
from protocol.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from protocol.error_codes import ErrorCode
from protocol.records.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from protocol.structs import NamedIndexes

_CHECKS_MEMBERS_SINCE = 3
"""The version of TxnOffsetCommit that names the member."""


class ProducerIdentity:
    """The id and epoch of one producer. Without `acquire` it has no id, and may still send.

    Every call retries within the cluster's timeout. The calls for transactions need a
    transactional id.
    """

    def __init__(
        self, cluster: Cluster, *, transactional_id: str | None, transaction_timeout_ms: int
    ) -> None:
        """No id yet; a `transactional_id` outlives the process and fences its predecessors."""
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.is_stale = False
        self.transactional_id = transactional_id
        self._cluster = cluster
        self._transaction_timeout_ms = transaction_timeout_ms

    @property
    def is_known(self) -> bool:
        """Whether there is an id to number records under."""
        return self.producer_id != NO_PRODUCER_ID

    async def acquire(self) -> None:
        """Get an unused id and epoch; ends a transaction that a predecessor left open.

        Raises:
            UnsupportedByBroker: the broker has no idempotence (before 0.11).
            BrokerRefused: the transactional id is fenced, or its timeout too long.
        """
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._transaction_timeout_ms,
        )
        what = "getting a producer id"
        if self.transactional_id is not None:
            answer = await self._ask(what, request, 5)
        else:
            answer = await self._cluster.retrying(lambda: self._ask_any(what, request))
        self.producer_id = answer.producer_id
        self.producer_epoch = answer.producer_epoch
        self.is_stale = False

    async def add_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Make partitions part of the transaction, before the first record is sent to them.

        Raises:
            BrokerRefused: the identity is fenced, or a partition is denied.
        """
        topics = by_topic(sorted(partitions), lambda tp: tp.partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=[
                NamedIndexes(name=name, partitions=numbers) for name, numbers in topics.items()
            ],
        )

        def judge(what: str, response: Any, address: str) -> None:
            for topic in response.results_by_topic_v3_and_below:
                for item in topic.results_by_partition:
                    if item.partition_error_code != ErrorCode.NONE:
                        where = f"{topic.name}-{item.partition_index}"
                        code = item.partition_error_code
                        raise BrokerRefused(what.format(where), code, broker=address)

        await self._ask("adding {} to the transaction", request, 3, judge)

    async def add_group(self, group_id: str) -> None:
        """Make a group's offsets part of the transaction; raises BrokerRefused."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self._name,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            group_id=group_id,
        )
        await self._ask(f"adding group {group_id} to the transaction", request, 4)

    async def commit_offsets(
        self, group: GroupMetadata, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Commit positions of a group that is part of the transaction.

        Raises:
            BrokerRefused: the broker refuses; ILLEGAL_GENERATION or UNKNOWN_MEMBER_ID if the group
                has gone on without the member.
            UnsupportedByBroker: a member is given, and the broker checks none (before 2.5).
        """
        request = TxnOffsetCommitRequest(
            transactional_id=self._name,
            group_id=group.group_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            generation_id=group.generation,
            member_id=group.member_id,
            group_instance_id=group.instance_id,
            topics=committed_topics(
                offsets, TxnOffsetCommitRequestTopic, TxnOffsetCommitRequestPartition
            ),
        )

        def judge(response: Any, address: str) -> None:
            for topic in response.topics:
                for item in topic.partitions:
                    what = f"committing {topic.name}-{item.partition_index} in the transaction"
                    check(what, item, address)

        await self._cluster.ask_group(
            group.group_id, request, judge, (_CHECKS_MEMBERS_SINCE if group.member_id else 0, 4)
        )

    async def end(self, *, committed: bool) -> None:
        """Commit or abort the transaction; raises BrokerRefused."""
        request = EndTxnRequest(
            transactional_id=self._name,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=committed,
        )
        doing = "committing" if committed else "aborting"
        await self._ask(f"{doing} the transaction {self._name}", request, 4)

    @property
    def _name(self) -> str:
        assert self.transactional_id is not None, "only transactions need a name"
        return self.transactional_id

    async def _ask(
        self, what: str, request: Any, max_version: int, judge: Callable[..., None] = check
    ) -> Any:
        """The coordinator's answer, of which `judge` approves: by default its one error code."""
        kind = CoordinatorType.TRANSACTION

        async def attempt() -> Any:
            response, address = await self._cluster.call_coordinator(
                kind, self._name, request, max_version=max_version
            )
            judge(what, response, address)
            return response

        return await self._cluster.retrying_at_coordinator(kind, self._name, attempt)

    async def _ask_any(self, what: str, request: Any) -> Any:
        connection = await self._cluster.any_connection()
        response = await connection.call(request, max_version=5)
        check(what, response, connection.address)
        return response

"""Who a producer is to the broker: its id and epoch, which make sending again harmless.

The broker remembers, per partition, the last sequence numbers of each producer id and refuses
duplicates and gaps. When a batch is given up while the broker may have it, the numbers after
it are worthless: the identity is `is_stale` then, and a new one is fetched once nothing that
carries the old one is under way.

Source: KIP-98, KIP-360 (a new epoch instead of a new id).
"""

from client.cluster import Cluster, CoordinatorType
from client.errors import BrokerRefused
from protocol.api.init_producer_id import InitProducerIdRequest
from protocol.error_codes import ErrorCode
from protocol.records.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID


class ProducerIdentity:
    """The id and epoch of one producer. Without `acquire` it has no id, and may still send."""

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
        await self._cluster.retrying(self._acquire_once, lambda _: self._forget())
        self.is_stale = False

    def _forget(self) -> None:
        if self.transactional_id is not None:
            self._cluster.forget_coordinator(CoordinatorType.TRANSACTION, self.transactional_id)

    async def _acquire_once(self) -> None:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._transaction_timeout_ms,
        )
        if self.transactional_id is None:
            connection = await self._cluster.any_connection()
            response, address = await connection.call(request, max_version=5), connection.address
        else:
            response, address = await self._cluster.call_coordinator(
                CoordinatorType.TRANSACTION, self.transactional_id, request, max_version=5
            )
        if response.error_code != ErrorCode.NONE:
            raise BrokerRefused("getting a producer id", response.error_code, broker=address)
        self.producer_id = response.producer_id
        self.producer_epoch = response.producer_epoch

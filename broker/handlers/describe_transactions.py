"""DescribeTransactions (key 65, version 0): state and partitions of transactional ids.

Source: Kafka `TransactionCoordinator.handleDescribeTransactions`; KIP-664.
"""

from broker.requests.context import Context, RequestContext
from broker.transactions.state import TxnSnapshot
from protocol.api import describe_transactions as api
from protocol.error_codes import ErrorCode
from protocol.structs import TopicIndexes
from storage.disk.steps import Steps


def handle(
    context: Context, request: RequestContext, message: api.DescribeTransactionsRequest
) -> Steps[api.DescribeTransactionsResponse]:
    """Each requested id, in the order of the request."""
    states = []
    for transactional_id in message.transactional_ids:
        found = context.transactions.find(transactional_id)
        if found is None:
            code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            if not transactional_id:
                code = ErrorCode.INVALID_REQUEST
            states.append(api.TransactionState(error_code=code, transactional_id=transactional_id))
        else:
            states.append(_describe(found))
        yield None
    return api.DescribeTransactionsResponse(transaction_states=states)


def _describe(found: TxnSnapshot) -> api.TransactionState:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(found.partitions):
        topics.setdefault(topic, []).append(partition)
    return api.TransactionState(
        transactional_id=found.transactional_id,
        transaction_state=found.state.title,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.started_ms,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=[
            TopicIndexes(topic=topic, partitions=partitions) for topic, partitions in topics.items()
        ],
    )

"""EndTxn (key 26, versions 0-5): commit or abort.

Answered when every partition that can take it has the marker on disk. The transaction's records are
then visible to read_committed consumers, or never will be.

Source: Kafka `TransactionCoordinator.handleEndTransaction`; KIP-98.
"""

from broker.replies.pending import Pending
from broker.requests.context import Context, RequestContext
from protocol.api import end_txn as api
from protocol.error_codes import ErrorCode

_FENCED_SINCE = 2
_BUMPS_EPOCH_SINCE = 5


def handle(
    context: Context, request: RequestContext, message: api.EndTxnRequest
) -> Pending[api.EndTxnResponse]:
    """End the producer's transaction."""
    pending: Pending[api.EndTxnResponse] = Pending()
    bumps_epoch = request.api_version >= _BUMPS_EPOCH_SINCE

    def answer(error: ErrorCode) -> None:
        if error is ErrorCode.PRODUCER_FENCED and request.api_version < _FENCED_SINCE:
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        response = api.EndTxnResponse(error_code=error)
        ended = context.transactions.find(message.transactional_id)
        if error is ErrorCode.NONE and bumps_epoch and ended is not None:
            response.producer_id, response.producer_epoch = ended.next_producer
        pending.resolve(response)

    context.transactions.end(
        message.transactional_id,
        (message.producer_id, message.producer_epoch),
        is_commit=message.committed,
        answer=answer,
        bumps_epoch=bumps_epoch,
    )
    return pending

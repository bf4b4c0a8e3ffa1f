"""EndTxn (key 26, versions 0-4): commit or abort.

Answered when every partition that can take it has the marker on disk: what the transaction wrote
is then visible to read_committed consumers, or never will be.

Versions: v2 PRODUCER_FENCED in place of INVALID_PRODUCER_EPOCH, v3 flexible, v4
TRANSACTION_ABORTABLE.

Source: Kafka `TransactionCoordinator.handleEndTransaction`; KIP-98.
Read next: `broker.transactions.coordinator`.
"""

from broker.context import Context, RequestContext
from broker.pending import Pending
from protocol.api.end_txn import EndTxnRequest, EndTxnResponse
from protocol.error_codes import ErrorCode

_FENCED_SINCE = 2


def handle(
    context: Context, request: RequestContext, message: EndTxnRequest
) -> Pending[EndTxnResponse]:
    """End the producer's transaction."""
    pending: Pending[EndTxnResponse] = Pending()

    def answer(error: ErrorCode) -> None:
        if error is ErrorCode.PRODUCER_FENCED and request.api_version < _FENCED_SINCE:
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        pending.resolve(EndTxnResponse(error_code=error))

    context.transactions.end(
        message.transactional_id,
        (message.producer_id, message.producer_epoch),
        is_commit=message.committed,
        answer=answer,
    )
    return pending

"""AddOffsetsToTxn (key 25, versions 0-4): a group whose offsets the transaction will commit.

Source: Kafka `KafkaApis.handleAddOffsetsToTxnRequest`; KIP-98.
"""

from broker.replies.pending import Pending
from broker.requests.context import Context, RequestContext
from protocol.api import add_offsets_to_txn as api
from protocol.error_codes import ErrorCode

_FENCED_SINCE = 2


def handle(
    context: Context, request: RequestContext, message: api.AddOffsetsToTxnRequest
) -> Pending[api.AddOffsetsToTxnResponse]:
    """Add the partition that keeps the group's offsets; a group without a name has one too."""
    pending: Pending[api.AddOffsetsToTxnResponse] = Pending()

    def answer(error: ErrorCode) -> None:
        if error is ErrorCode.PRODUCER_FENCED and request.api_version < _FENCED_SINCE:
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        pending.resolve(api.AddOffsetsToTxnResponse(error_code=error))

    producer = (message.producer_id, message.producer_epoch)
    context.transactions.add_group(message.transactional_id, producer, message.group_id, answer)
    return pending

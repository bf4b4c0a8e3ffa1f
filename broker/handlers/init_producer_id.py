"""InitProducerId (key 22, versions 0-5): an identity for a producer that must not write twice.

Without a transactional id every request gets a new producer id, epoch 0: that is all an idempotent
producer needs. With one, the producer id stays the same, the epoch grows, and the producer with the
old epoch is fenced.

Source: Kafka `TransactionCoordinator.handleInitProducerId`; KIP-98, KIP-360.
"""

from broker.replies.pending import Pending
from broker.requests.context import Context, RequestContext
from broker.requests.error_mapping import error_code
from broker.transactions.state import ProducerIdAndEpoch
from protocol.api import init_producer_id as api
from protocol.error_codes import ErrorCode
from protocol.records.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from storage.errors import StorageError

_FENCED_SINCE = 4


def handle(
    context: Context, request: RequestContext, message: api.InitProducerIdRequest
) -> api.InitProducerIdResponse | Pending[api.InitProducerIdResponse]:
    """A new identity, or the next epoch of a transactional one."""
    has_id = message.producer_id != NO_PRODUCER_ID
    if has_id != (message.producer_epoch != NO_PRODUCER_EPOCH):
        return _error(ErrorCode.INVALID_REQUEST)
    if message.transactional_id is None:
        return _idempotent(context)
    if not message.transactional_id:
        return _error(ErrorCode.INVALID_REQUEST)
    pending: Pending[api.InitProducerIdResponse] = Pending()

    def answer(error: ErrorCode, producer: ProducerIdAndEpoch) -> None:
        if error is ErrorCode.PRODUCER_FENCED and request.api_version < _FENCED_SINCE:
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        producer_id, epoch = producer
        pending.resolve(
            api.InitProducerIdResponse(
                error_code=error, producer_id=producer_id, producer_epoch=epoch
            )
        )

    context.transactions.init_producer(
        message.transactional_id,
        timeout_ms=message.transaction_timeout_ms,
        expected=(message.producer_id, message.producer_epoch) if has_id else None,
        answer=answer,
    )
    return pending


def _idempotent(context: Context) -> api.InitProducerIdResponse:
    try:
        producer_id = context.transactions.allocate_producer_id()
    except StorageError as error:
        return _error(error_code(error))
    return api.InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _error(error: ErrorCode) -> api.InitProducerIdResponse:
    return api.InitProducerIdResponse(
        error_code=error, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
    )

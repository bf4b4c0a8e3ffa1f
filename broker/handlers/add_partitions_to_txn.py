"""AddPartitionsToTxn (key 24, versions 0-3): partitions that the transaction will write to.

All or nothing: if one partition does not exist, none is added and the others answer
OPERATION_NOT_ATTEMPTED. Versions 4 and up are between brokers and not offered.

Versions: v2 PRODUCER_FENCED in place of INVALID_PRODUCER_EPOCH, v3 flexible.

Source: Kafka `KafkaApis.handleAddPartitionsToTxnRequest`; KIP-98.
Read next: `broker.transactions.state`.
"""

from collections.abc import Mapping

from broker.requests.context import Context, RequestContext
from broker.requests.pending import Pending
from broker.topics.registry import is_internal
from protocol.api.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from protocol.error_codes import ErrorCode

_FENCED_SINCE = 2


def handle(
    context: Context, request: RequestContext, message: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse | Pending[AddPartitionsToTxnResponse]:
    """Add the partitions; answer once that is on disk."""
    topics = message.v3_and_below_topics
    asked = [(topic.name, partition) for topic in topics for partition in topic.partitions]
    errors = {tp: _partition_error(context, *tp) for tp in asked}
    if any(error is not ErrorCode.NONE for error in errors.values()):
        refused = {
            tp: ErrorCode.OPERATION_NOT_ATTEMPTED if error is ErrorCode.NONE else error
            for tp, error in errors.items()
        }
        return _response(message, refused)
    pending: Pending[AddPartitionsToTxnResponse] = Pending()

    def answer(error: ErrorCode) -> None:
        if error is ErrorCode.PRODUCER_FENCED and request.api_version < _FENCED_SINCE:
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        pending.resolve(_response(message, dict.fromkeys(asked, error)))

    context.transactions.add_partitions(
        message.v3_and_below_transactional_id,
        (message.v3_and_below_producer_id, message.v3_and_below_producer_epoch),
        asked,
        answer,
    )
    return pending


def _partition_error(context: Context, name: str, partition: int) -> ErrorCode:
    if not context.topics.has_partition(name, partition):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.TOPIC_AUTHORIZATION_FAILED if is_internal(name) else ErrorCode.NONE


def _response(
    message: AddPartitionsToTxnRequest, errors: Mapping[tuple[str, int], ErrorCode]
) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=partition,
                        partition_error_code=errors[topic.name, partition],
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in message.v3_and_below_topics
        ]
    )

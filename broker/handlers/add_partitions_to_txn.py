"""AddPartitionsToTxn (key 24, versions 0-3): partitions that the transaction will write to.

All or nothing: if one partition does not exist, none is added and the others answer
OPERATION_NOT_ATTEMPTED. Versions 4 and up are between brokers and not offered.

Versions: v2 PRODUCER_FENCED in place of INVALID_PRODUCER_EPOCH, v3 flexible.

Source: Kafka `KafkaApis.handleAddPartitionsToTxnRequest`; KIP-98.
"""

from broker.replies.pending import Pending
from broker.requests.by_topic import by_topic
from broker.requests.context import Context, RequestContext
from broker.topics.registry import is_internal
from broker.transactions.state import TopicPartition
from protocol.api import add_partitions_to_txn as api
from protocol.error_codes import ErrorCode
from storage.disk.steps import Steps

_FENCED_SINCE = 2


def handle(
    context: Context, request: RequestContext, message: api.AddPartitionsToTxnRequest
) -> Steps[api.AddPartitionsToTxnResponse | Pending[api.AddPartitionsToTxnResponse]]:
    """Add the partitions, all in one step; answer once that is on disk."""
    named: dict[TopicPartition, None] = {}
    results: list[api.AddPartitionsToTxnPartitionResult] = []

    def check(
        topic: api.AddPartitionsToTxnTopic, partition: int
    ) -> api.AddPartitionsToTxnPartitionResult:
        named[topic.name, partition] = None
        results.append(
            api.AddPartitionsToTxnPartitionResult(
                partition_index=partition,
                partition_error_code=_partition_error(context, topic.name, partition),
            )
        )
        return results[-1]

    topics = yield from by_topic(
        message.v3_and_below_topics,
        check,
        lambda topic, answers: api.AddPartitionsToTxnTopicResult(
            name=topic.name, results_by_partition=answers
        ),
    )
    response = api.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)
    if any(result.partition_error_code != ErrorCode.NONE for result in results):
        for result in results:
            if result.partition_error_code == ErrorCode.NONE:
                result.partition_error_code = ErrorCode.OPERATION_NOT_ATTEMPTED
        return response
    pending: Pending[api.AddPartitionsToTxnResponse] = Pending()

    def answer(error: ErrorCode) -> None:
        if error is ErrorCode.PRODUCER_FENCED and request.api_version < _FENCED_SINCE:
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        for result in results:
            result.partition_error_code = error
        pending.resolve(response)

    context.transactions.add_partitions(
        message.v3_and_below_transactional_id,
        (message.v3_and_below_producer_id, message.v3_and_below_producer_epoch),
        list(named),
        answer,
    )
    return pending


def _partition_error(context: Context, name: str, partition: int) -> ErrorCode:
    if not context.topics.has_partition(name, partition):
        if context.topics.find(name) is not None and context.topics.windows.is_reserved(name):
            return ErrorCode.INVALID_TOPIC_EXCEPTION  # a window; clients do not try it again
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.TOPIC_AUTHORIZATION_FAILED if is_internal(name) else ErrorCode.NONE

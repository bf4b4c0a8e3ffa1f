"""AddPartitionsToTxn (key 24): partitions that a transaction will write to.

All or nothing: if one partition does not exist, none is added and the others answer
OPERATION_NOT_ATTEMPTED. From version 4 on a request is a broker's, needs CLUSTER_ACTION, and has
several transactions, each answered by itself; with `verify_only` it asks which partitions are part
of an open transaction, and adds none.

Source: Kafka `KafkaApis.handleAddPartitionsToTxnRequest`; KIP-98, KIP-890.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from broker.replies.pending import Pending
from broker.requests.by_topic import STEP, by_topic
from broker.requests.context import Context, RequestContext
from broker.topics.registry import CONSUMER_OFFSETS, is_internal
from broker.transactions.state import TopicPartition
from protocol.api import add_partitions_to_txn as api
from protocol.error_codes import ErrorCode
from protocol.structs import NamedIndexes
from storage.disk.steps import Slice, Steps

_FENCED_SINCE = 2

Added = api.AddPartitionsToTxnResponse | Pending[api.AddPartitionsToTxnResponse]


class _Named(NamedTuple):
    """The partitions that a request names for one transaction, with room for their outcomes."""

    topics: list[api.AddPartitionsToTxnTopicResult]
    results: dict[TopicPartition, list[api.AddPartitionsToTxnPartitionResult]]

    def settle(self, error: ErrorCode) -> None:
        """Write the outcome, which is that of all."""
        for results in self.results.values():
            for result in results:
                result.partition_error_code = error


def handle(
    context: Context, request: RequestContext, message: api.AddPartitionsToTxnRequest
) -> Steps[Added]:
    """Add the partitions, all in one step; answer once that is on disk."""
    if request.api_version >= api.OF_BROKERS_SINCE:
        return (yield from _of_brokers(context, message))
    named, is_refused = yield from _named(context, message.v3_and_below_topics, _partition_error)
    response = api.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=named.topics)
    if is_refused:
        return response
    pending: Pending[api.AddPartitionsToTxnResponse] = Pending()

    def answer(error: ErrorCode) -> None:
        if error is ErrorCode.PRODUCER_FENCED and request.api_version < _FENCED_SINCE:
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        named.settle(error)
        pending.resolve(response)

    context.transactions.add_partitions(
        message.v3_and_below_transactional_id,
        (message.v3_and_below_producer_id, message.v3_and_below_producer_epoch),
        list(named.results),
        answer,
    )
    return pending


def _of_brokers(context: Context, message: api.AddPartitionsToTxnRequest) -> Steps[Added]:
    """Every transaction by itself; the answer comes when the last one is done."""
    response = api.AddPartitionsToTxnResponse()
    pending: Pending[api.AddPartitionsToTxnResponse] = Pending()
    open_count = 1

    def one_done() -> None:
        nonlocal open_count
        open_count -= 1
        if not open_count:
            pending.resolve(response)

    for transaction in message.transactions:
        named, is_refused = yield from _named(context, transaction.topics, _error_of_broker)
        response.results_by_transaction.append(
            api.AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id, topic_results=named.topics
            )
        )
        yield None
        if is_refused:
            continue
        producer = transaction.producer_id, transaction.producer_epoch
        if transaction.verify_only:
            check = context.transactions.append_error
            verify = partial(check, transaction.transactional_id, producer)
            answered = yield from _each_once(named.results, verify)
            response.results_by_transaction[-1].topic_results = answered
            continue
        open_count += 1
        context.transactions.add_partitions(
            transaction.transactional_id, producer, list(named.results), _settler(named, one_done)
        )
    one_done()
    return pending


def _settler(named: _Named, then: Callable[[], None]) -> Callable[[ErrorCode], None]:
    def answer(error: ErrorCode) -> None:
        named.settle(error)
        then()

    return answer


def _named(
    context: Context,
    topics: Sequence[NamedIndexes],
    error_of: Callable[[Context, str, int], ErrorCode],
) -> Steps[tuple[_Named, bool]]:
    """The partitions, and whether one of them is refused, which refuses them all."""
    results: dict[TopicPartition, list[api.AddPartitionsToTxnPartitionResult]] = {}
    refused = False

    def check(topic: NamedIndexes, partition: int) -> api.AddPartitionsToTxnPartitionResult:
        nonlocal refused
        error = error_of(context, topic.name, partition)
        refused = refused or error is not ErrorCode.NONE
        result = api.AddPartitionsToTxnPartitionResult(
            partition_index=partition, partition_error_code=error
        )
        results.setdefault((topic.name, partition), []).append(result)
        return result

    answered = yield from by_topic(
        topics,
        check,
        lambda topic, answers: api.AddPartitionsToTxnTopicResult(
            name=topic.name, results_by_partition=answers
        ),
    )
    if not refused:
        return _Named(answered, results), False

    def first_error(partition: TopicPartition) -> ErrorCode:
        first = ErrorCode(results[partition][0].partition_error_code)
        return first or ErrorCode.OPERATION_NOT_ATTEMPTED

    return _Named((yield from _each_once(results, first_error)), results), True


def _each_once(
    partitions: Iterable[TopicPartition], error_of: Callable[[TopicPartition], ErrorCode]
) -> Steps[list[api.AddPartitionsToTxnTopicResult]]:
    """The answer that has each partition once, as Kafka's where partitions differ."""
    found: dict[str, api.AddPartitionsToTxnTopicResult] = {}
    spent = Slice(STEP)
    for name, partition in partitions:
        topic = found.setdefault(name, api.AddPartitionsToTxnTopicResult(name=name))
        topic.results_by_partition.append(
            api.AddPartitionsToTxnPartitionResult(
                partition_index=partition, partition_error_code=error_of((name, partition))
            )
        )
        if spent.add(1):
            yield None
    return list(found.values())


def _partition_error(context: Context, name: str, partition: int) -> ErrorCode:
    if not context.topics.has_partition(name, partition):
        if context.topics.find(name) is not None and context.topics.windows.is_reserved(name):
            return ErrorCode.INVALID_TOPIC_EXCEPTION  # a window; clients do not try it again
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.TOPIC_AUTHORIZATION_FAILED if is_internal(name) else ErrorCode.NONE


def _error_of_broker(context: Context, name: str, partition: int) -> ErrorCode:
    """Brokers also name the topic of committed offsets, which transactions may commit."""
    error = _partition_error(context, name, partition)
    is_offsets = error is ErrorCode.TOPIC_AUTHORIZATION_FAILED and name == CONSUMER_OFFSETS
    return ErrorCode.NONE if is_offsets else error

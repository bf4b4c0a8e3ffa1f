"""Guards of the APIs about producers and transactions: the transactional id comes first.

Source: Kafka `KafkaApis`; KIP-679 (idempotent producers need no right of their own).
"""

from typing import Any

from broker.replies.forms import then
from broker.requests.access import Check
from broker.requests.context import Context, Handler, Reply, RequestContext
from broker.rights.guards import (
    CLUSTER_DENIED,
    GROUP_DENIED,
    TOPIC_DENIED,
    TRANSACTIONAL_ID_DENIED,
    joined,
    on_transactional_id,
    parted,
)
from broker.topics.registry import is_internal
from protocol.acl import CLUSTER_NAME, Operation, ResourceType
from protocol.api import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_transactions,
    txn_offset_commit,
    write_txn_markers,
)
from protocol.error_codes import ErrorCode

end_txn_guard = on_transactional_id(
    lambda message, request: end_txn.EndTxnResponse(error_code=TRANSACTIONAL_ID_DENIED)
)


def init_producer_id_guard(
    context: Context,
    request: RequestContext,
    message: init_producer_id.InitProducerIdRequest,
    handler: Handler,
) -> Reply:
    """WRITE on the transactional id; without one IDEMPOTENT_WRITE, or WRITE on any topic."""
    check = Check(context, request)
    code = ErrorCode.NONE
    if message.transactional_id is None:
        may = check.sees(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME)
        if not may and not check.any_topic(Operation.WRITE):
            check.cluster(Operation.IDEMPOTENT_WRITE)  # for the audit log
            code = CLUSTER_DENIED
    elif not check.transactional_id(Operation.WRITE, message.transactional_id) or (
        message.enable2_pc
        and not check.transactional_id(Operation.TWO_PHASE_COMMIT, message.transactional_id)
    ):
        code = TRANSACTIONAL_ID_DENIED
    if code:
        return init_producer_id.InitProducerIdResponse(
            error_code=code, producer_id=-1, producer_epoch=-1
        )
    return handler(context, request, message)


def add_offsets_to_txn_guard(
    context: Context,
    request: RequestContext,
    message: add_offsets_to_txn.AddOffsetsToTxnRequest,
    handler: Handler,
) -> Reply:
    """WRITE on the transactional id, then READ on the group."""
    check = Check(context, request)
    if not check.transactional_id(Operation.WRITE, message.transactional_id):
        return add_offsets_to_txn.AddOffsetsToTxnResponse(error_code=TRANSACTIONAL_ID_DENIED)
    if not check.group(Operation.READ, message.group_id):
        return add_offsets_to_txn.AddOffsetsToTxnResponse(error_code=GROUP_DENIED)
    return handler(context, request, message)


def add_partitions_to_txn_guard(
    context: Context,
    request: RequestContext,
    message: add_partitions_to_txn.AddPartitionsToTxnRequest,
    handler: Handler,
) -> Reply:
    """WRITE on the transactional id, then on each topic; one refusal, and nothing is added."""
    check = Check(context, request)
    topics = message.v3_and_below_topics
    if not check.transactional_id(Operation.WRITE, message.v3_and_below_transactional_id):
        return _added(topics, lambda name, index: TRANSACTIONAL_ID_DENIED)
    denied = {
        topic.name
        for topic in topics
        if is_internal(topic.name) or not check.topic(Operation.WRITE, topic.name)
    }
    if not denied:
        return handler(context, request, message)

    def code(name: str, index: int) -> ErrorCode:
        if name in denied:
            return TOPIC_DENIED
        if not context.topics.has_partition(name, index):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.OPERATION_NOT_ATTEMPTED

    return _added(topics, code)


def _added(topics: Any, code: Any) -> add_partitions_to_txn.AddPartitionsToTxnResponse:
    return add_partitions_to_txn.AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            add_partitions_to_txn.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    add_partitions_to_txn.AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=code(topic.name, index)
                    )
                    for index in topic.partitions
                ],
            )
            for topic in topics
        ]
    )


def txn_offset_commit_guard(
    context: Context,
    request: RequestContext,
    message: txn_offset_commit.TxnOffsetCommitRequest,
    handler: Handler,
) -> Reply:
    """WRITE on the transactional id, then READ on the group, then READ on each topic."""
    check = Check(context, request)
    answer = txn_offset_commit.TxnOffsetCommitResponse()
    if not check.transactional_id(Operation.WRITE, message.transactional_id):
        return _refused_commit(answer, message.topics, TRANSACTIONAL_ID_DENIED)
    if not check.group(Operation.READ, message.group_id):
        return _refused_commit(answer, message.topics, GROUP_DENIED)
    allowed, denied = parted(message.topics, lambda t: check.topic(Operation.READ, t.name))
    if not denied:
        return handler(context, request, message)
    if not allowed:
        return _refused_commit(answer, joined(denied), TOPIC_DENIED)
    message.topics = allowed
    return then(
        handler(context, request, message),
        lambda answer: _refused_commit(answer, joined(denied), TOPIC_DENIED),
    )


def _refused_commit(
    answer: txn_offset_commit.TxnOffsetCommitResponse,
    topics: list[txn_offset_commit.TxnOffsetCommitRequestTopic],
    code: int,
) -> txn_offset_commit.TxnOffsetCommitResponse:
    answer.topics.extend(
        txn_offset_commit.TxnOffsetCommitResponseTopic(
            name=topic.name,
            partitions=[
                txn_offset_commit.TxnOffsetCommitResponsePartition(
                    partition_index=partition.partition_index, error_code=code
                )
                for partition in topic.partitions
            ],
        )
        for topic in topics
    )
    return answer


def write_txn_markers_guard(
    context: Context,
    request: RequestContext,
    message: write_txn_markers.WriteTxnMarkersRequest,
    handler: Handler,
) -> Reply:
    """ALTER or CLUSTER_ACTION on the cluster."""
    check = Check(context, request)
    if check.sees(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME) or check.cluster(
        Operation.ALTER
    ):
        return handler(context, request, message)
    markers = {marker.producer_id: marker for marker in message.markers}
    return write_txn_markers.WriteTxnMarkersResponse(
        markers=[
            write_txn_markers.WritableTxnMarkerResult(
                producer_id=producer_id,
                topics=[
                    write_txn_markers.WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            write_txn_markers.WritableTxnMarkerPartitionResult(
                                partition_index=index, error_code=CLUSTER_DENIED
                            )
                            for index in dict.fromkeys(topic.partition_indexes)
                        ],
                    )
                    for topic in joined(marker.topics, "partition_indexes")
                    if topic.partition_indexes
                ],
            )
            for producer_id, marker in markers.items()
        ]
    )


def describe_transactions_guard(
    context: Context,
    request: RequestContext,
    message: describe_transactions.DescribeTransactionsRequest,
    handler: Handler,
) -> Reply:
    """DESCRIBE on each transactional id; topics inside are shown with DESCRIBE on the topic."""
    check = Check(context, request)
    allowed, denied = parted(
        message.transactional_ids, lambda name: check.transactional_id(Operation.DESCRIBE, name)
    )

    def with_rights(answer: describe_transactions.DescribeTransactionsResponse) -> object:
        for state in answer.transaction_states:
            state.topics = [
                topic
                for topic in state.topics
                if check.sees(Operation.DESCRIBE, ResourceType.TOPIC, topic.topic)
            ]
        answer.transaction_states.extend(
            describe_transactions.TransactionState(
                transactional_id=name, error_code=TRANSACTIONAL_ID_DENIED
            )
            for name in denied
        )
        return answer

    if not allowed and denied:
        return with_rights(describe_transactions.DescribeTransactionsResponse())
    message.transactional_ids = allowed
    return then(handler(context, request, message), with_rights)


def list_transactions_guard(
    context: Context,
    request: RequestContext,
    message: list_transactions.ListTransactionsRequest,
    handler: Handler,
) -> Reply:
    """The transactions with DESCRIBE on their ids."""
    check = Check(context, request)

    def filtered(answer: list_transactions.ListTransactionsResponse) -> object:
        answer.transaction_states = [
            state
            for state in answer.transaction_states
            if check.sees(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, state.transactional_id)
        ]
        return answer

    return then(handler(context, request, message), filtered)

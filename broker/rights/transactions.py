"""Guards of the APIs about producers and transactions: the transactional id comes first.

Source: Kafka `KafkaApis`; KIP-679 (idempotent producers need no right of their own).
"""

from typing import Any

from broker.requests.access import Check
from broker.rights.guards import (
    CLUSTER_DENIED,
    GROUP_DENIED,
    TOPIC_DENIED,
    TRANSACTIONAL_ID_DENIED,
    Steps,
    guard,
    joined,
    parted,
    refuse_topics,
    refused_topic,
    whole,
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
from protocol.structs import TopicErrors


@whole
def end_txn_guard(check: Check, message: end_txn.EndTxnRequest) -> end_txn.EndTxnResponse | None:
    """WRITE on the transactional id."""
    if check.transactional_id(Operation.WRITE, message.transactional_id):
        return None
    return end_txn.EndTxnResponse(error_code=TRANSACTIONAL_ID_DENIED)


@whole
def init_producer_id_guard(
    check: Check, message: init_producer_id.InitProducerIdRequest
) -> init_producer_id.InitProducerIdResponse | None:
    """WRITE on the transactional id; without one IDEMPOTENT_WRITE, or WRITE on any topic."""
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
    return None


@whole
def add_offsets_to_txn_guard(
    check: Check, message: add_offsets_to_txn.AddOffsetsToTxnRequest
) -> add_offsets_to_txn.AddOffsetsToTxnResponse | None:
    """WRITE on the transactional id, then READ on the group."""
    if not check.transactional_id(Operation.WRITE, message.transactional_id):
        return add_offsets_to_txn.AddOffsetsToTxnResponse(error_code=TRANSACTIONAL_ID_DENIED)
    if not check.group(Operation.READ, message.group_id):
        return add_offsets_to_txn.AddOffsetsToTxnResponse(error_code=GROUP_DENIED)
    return None


@whole
def add_partitions_to_txn_guard(
    check: Check, message: add_partitions_to_txn.AddPartitionsToTxnRequest
) -> add_partitions_to_txn.AddPartitionsToTxnResponse | None:
    """WRITE on the transactional id, then on each topic; one refusal, and nothing is added.

    Requests of brokers need CLUSTER_ACTION instead.
    """
    if check.request.api_version >= add_partitions_to_txn.OF_BROKERS_SINCE:
        if check.cluster(Operation.CLUSTER_ACTION):
            return None
        return add_partitions_to_txn.AddPartitionsToTxnResponse(error_code=CLUSTER_DENIED)
    topics = message.v3_and_below_topics
    if not check.transactional_id(Operation.WRITE, message.v3_and_below_transactional_id):
        return _added(topics, lambda name, index: TRANSACTIONAL_ID_DENIED)
    denied = {
        topic.name
        for topic in topics
        if is_internal(topic.name) or not check.topic(Operation.WRITE, topic.name)
    }
    if not denied:
        return None

    def code(name: str, index: int) -> ErrorCode:
        if name in denied:
            return TOPIC_DENIED
        if not check.context.topics.has_partition(name, index):
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


@guard
def txn_offset_commit_guard(
    check: Check, message: txn_offset_commit.TxnOffsetCommitRequest
) -> Steps:
    """WRITE on the transactional id, then READ on the group, then READ on each topic."""
    answer = txn_offset_commit.TxnOffsetCommitResponse()
    code = TOPIC_DENIED
    if not check.transactional_id(Operation.WRITE, message.transactional_id):
        code, denied = TRANSACTIONAL_ID_DENIED, message.topics
    elif not check.group(Operation.READ, message.group_id):
        code, denied = GROUP_DENIED, message.topics
    else:
        message.topics, denied = parted(
            message.topics, lambda t: check.topic(Operation.READ, t.name)
        )
        if not denied:
            return None
        denied = joined(denied)
        if message.topics:
            answer = yield
    return refuse_topics(answer, TopicErrors, denied, code)


@whole
def write_txn_markers_guard(
    check: Check, message: write_txn_markers.WriteTxnMarkersRequest
) -> write_txn_markers.WriteTxnMarkersResponse | None:
    """ALTER or CLUSTER_ACTION on the cluster."""
    if check.sees(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME) or check.cluster(
        Operation.ALTER
    ):
        return None
    markers = {marker.producer_id: marker for marker in message.markers}
    return write_txn_markers.WriteTxnMarkersResponse(
        markers=[
            write_txn_markers.WritableTxnMarkerResult(
                producer_id=producer_id, topics=_refused_marker(marker)
            )
            for producer_id, marker in markers.items()
        ]
    )


def _refused_marker(marker: write_txn_markers.WritableTxnMarker) -> list[Any]:
    topics = joined(marker.topics, "partition_indexes")
    for topic in topics:
        topic.partition_indexes = list(dict.fromkeys(topic.partition_indexes))
    return [
        refused_topic(TopicErrors, topic, error_code=CLUSTER_DENIED)
        for topic in topics
        if topic.partition_indexes
    ]


@guard
def describe_transactions_guard(
    check: Check, message: describe_transactions.DescribeTransactionsRequest
) -> Steps:
    """DESCRIBE on each transactional id; topics inside are shown with DESCRIBE on the topic."""
    message.transactional_ids, denied = parted(
        message.transactional_ids, lambda name: check.transactional_id(Operation.DESCRIBE, name)
    )
    answer = describe_transactions.DescribeTransactionsResponse()
    if message.transactional_ids or not denied:
        answer = yield
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


@guard
def list_transactions_guard(
    check: Check, message: list_transactions.ListTransactionsRequest
) -> Steps:
    """The transactions with DESCRIBE on their ids."""
    answer: list_transactions.ListTransactionsResponse = yield
    answer.transaction_states = [
        state
        for state in answer.transaction_states
        if check.sees(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, state.transactional_id)
    ]
    return answer

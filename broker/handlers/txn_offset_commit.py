"""TxnOffsetCommit (key 28, versions 0-5): offsets that count only if the transaction commits.

Versions: v2 leader epoch, v3 flexible, with member and generation (KIP-447), v4
TRANSACTION_ABORTABLE, v5 transaction version 2: the group joins the transaction by this request.

Source: Kafka `OffsetMetadataManager.commitTransactionalOffset`; KIP-98, KIP-447.
Read next: `broker.groups.commits`.
"""

from broker.context import Context, RequestContext
from broker.groups.commits import OffsetCommit
from broker.groups.offset_records import CommittedOffset
from broker.groups.offsets import TopicPartition
from broker.pending import Pending
from protocol.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from protocol.error_codes import ErrorCode

_JOINS_SINCE = 5


def handle(
    context: Context, request: RequestContext, message: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse | Pending[TxnOffsetCommitResponse]:
    """Keep the offsets as part of the producer's transaction."""
    if request.api_version < _JOINS_SINCE or not message.group_id:
        return _commit(context, message)
    pending: Pending[TxnOffsetCommitResponse] = Pending()

    def admitted(error: ErrorCode) -> None:
        if error is ErrorCode.PRODUCER_FENCED:
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        reply = _refuse(message, error) if error else _commit(context, message)
        if isinstance(reply, Pending):
            reply.subscribe(lambda done: pending.resolve(done.result()))
        else:
            pending.resolve(reply)

    context.transactions.admit(
        message.transactional_id,
        (message.producer_id, message.producer_epoch),
        [context.groups.offsets_partition(message.group_id)],
        admitted,
    )
    return pending


def _refuse(message: TxnOffsetCommitRequest, error: ErrorCode) -> TxnOffsetCommitResponse:
    """The same error for every partition."""
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=error
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )


def _commit(
    context: Context, message: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse | Pending[TxnOffsetCommitResponse]:
    error = _request_error(context, message)
    now_ms = context.clock.wall_ms()
    offsets: list[tuple[TopicPartition, CommittedOffset]] = []
    answered: list[TxnOffsetCommitResponsePartition] = []
    response = TxnOffsetCommitResponse()
    for topic in message.topics:
        results = []
        for partition in topic.partitions:
            code = error
            if error is ErrorCode.NONE:
                code = _partition_error(context, topic.name, partition)
            result = TxnOffsetCommitResponsePartition(
                partition_index=partition.partition_index, error_code=code
            )
            results.append(result)
            if code is ErrorCode.NONE:
                answered.append(result)
                tp = (topic.name, partition.partition_index)
                offsets.append((tp, _committed(partition, now_ms)))
        response.topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=results))
    if not offsets:
        return response
    pending: Pending[TxnOffsetCommitResponse] = Pending()

    def settle(stored: ErrorCode) -> None:
        for result in answered:
            result.error_code = stored
        pending.resolve(response)

    commit = OffsetCommit(
        group_id=message.group_id,
        offsets=offsets,
        producer_id=message.producer_id,
        producer_epoch=message.producer_epoch,
    )
    context.groups.commit(commit, settle)
    return pending


def _request_error(context: Context, message: TxnOffsetCommitRequest) -> ErrorCode:
    """Why nothing can be committed: the producer's transaction, or the group's generation."""
    if not message.group_id:
        return ErrorCode.INVALID_GROUP_ID
    error = context.transactions.append_error(
        (message.producer_id, message.producer_epoch),
        context.groups.offsets_partition(message.group_id),
    )
    if error is not ErrorCode.NONE:
        return error
    return context.groups.commit_error(
        message.group_id,
        message.member_id,
        message.group_instance_id,
        message.generation_id,
        is_transactional=True,
    )


def _partition_error(
    context: Context, name: str, partition: TxnOffsetCommitRequestPartition
) -> ErrorCode:
    topic = context.topics.find(name)
    if topic is None or not 0 <= partition.partition_index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    metadata = (partition.committed_metadata or "").encode()
    if len(metadata) > context.config.offset_metadata_max_bytes:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


def _committed(partition: TxnOffsetCommitRequestPartition, now_ms: int) -> CommittedOffset:
    return CommittedOffset(
        partition.committed_offset,
        partition.committed_leader_epoch,
        partition.committed_metadata or "",
        now_ms,
    )

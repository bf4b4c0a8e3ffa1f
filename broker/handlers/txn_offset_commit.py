"""TxnOffsetCommit (key 28, versions 0-5): offsets that count only if the transaction commits.

Partitions that do not exist are refused alone. Then the producer and the group's generation are
checked, for all the others at once.

Versions: v2 leader epoch, v3 flexible, with member and generation (KIP-447), v4
TRANSACTION_ABORTABLE, v5 transaction version 2: the group joins the transaction by this request.

Source: Kafka `KafkaApis.handleTxnOffsetCommitRequest`,
`OffsetMetadataManager.commitTransactionalOffset`; KIP-98, KIP-447. Read next:
`broker.groups.offsets.store`.
"""

from broker.groups.offsets.records import CommittedOffset
from broker.groups.offsets.store import OffsetCommit, TopicPartition
from broker.requests.context import Context, RequestContext
from broker.requests.pending import Pending
from broker.transactions.state import refusal_of_a_write
from protocol.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from protocol.error_codes import ErrorCode

_ABORTABLE_SINCE = 4
_JOINS_SINCE = 5


def handle(
    context: Context, request: RequestContext, message: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse | Pending[TxnOffsetCommitResponse]:
    """Store the offsets as part of the producer's transaction."""
    checked = _Checked(context, message)
    if not checked.offsets:
        return checked.response
    if not message.group_id:
        return checked.settle(ErrorCode.INVALID_GROUP_ID)
    pending: Pending[TxnOffsetCommitResponse] = Pending()
    producer = (message.producer_id, message.producer_epoch)
    partition = context.groups.offsets_partition(message.group_id)

    def settle(error: ErrorCode) -> None:
        pending.resolve(checked.settle(error))

    def admitted(error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            settle(
                refusal_of_a_write(
                    error,
                    knows_abortable=request.api_version >= _ABORTABLE_SINCE,
                    knows_concurrent=True,
                )
            )
            return
        error = context.groups.commit_error(
            message.group_id,
            message.member_id,
            message.group_instance_id,
            message.generation_id,
            [tp for tp, _ in checked.offsets],
            is_transactional=True,
        )
        if error is not ErrorCode.NONE:
            settle(error)
            return
        commit = OffsetCommit(
            group_id=message.group_id,
            offsets=checked.offsets,
            producer_id=message.producer_id,
            producer_epoch=message.producer_epoch,
        )
        context.groups.commit(commit, settle)

    transactions = context.transactions
    if request.api_version >= _JOINS_SINCE:
        transactions.admit(message.transactional_id, producer, [partition], admitted)
    else:
        admitted(transactions.append_error(message.transactional_id, producer, partition))
    return pending


class _Checked:
    """The request after one pass: the offsets to commit, and the answer as far as known."""

    def __init__(self, context: Context, message: TxnOffsetCommitRequest) -> None:
        self.offsets: list[tuple[TopicPartition, CommittedOffset]] = []
        self.response = TxnOffsetCommitResponse()
        self._open: list[TxnOffsetCommitResponsePartition] = []
        now_ms = context.clock.wall_ms()
        for topic in message.topics:
            results = []
            for partition in topic.partitions:
                code = _partition_error(context, topic.name, partition)
                result = TxnOffsetCommitResponsePartition(
                    partition_index=partition.partition_index, error_code=code
                )
                results.append(result)
                if code is ErrorCode.NONE:
                    tp = (topic.name, partition.partition_index)
                    self.offsets.append((tp, _committed(partition, now_ms)))
                    self._open.append(result)
            if results:
                self.response.topics.append(
                    TxnOffsetCommitResponseTopic(name=topic.name, partitions=results)
                )

    def settle(self, error: ErrorCode) -> TxnOffsetCommitResponse:
        """The finished answer: `error` for every partition that could be committed."""
        for result in self._open:
            result.error_code = error
        return self.response


def _partition_error(
    context: Context, name: str, partition: TxnOffsetCommitRequestPartition
) -> ErrorCode:
    if not context.topics.has_partition(name, partition.partition_index):
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

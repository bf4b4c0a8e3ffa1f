"""TxnOffsetCommit (key 28, versions 0-5): offsets that count only if the transaction commits.

Partitions that do not exist are refused alone. Then the producer and the group's generation are
checked, for all the others at once.

Source: Kafka `KafkaApis.handleTxnOffsetCommitRequest`,
`OffsetMetadataManager.commitTransactionalOffset`; KIP-98, KIP-447.
"""

from broker.groups.offsets.records import CommittedOffset
from broker.groups.offsets.store import OffsetCommit
from broker.replies.pending import Pending
from broker.requests.by_topic import by_topic
from broker.requests.context import Context, RequestContext
from broker.requests.offsets_to_commit import OffsetsToCommit
from broker.transactions.state import refusal_of_a_write
from protocol.api import txn_offset_commit as api
from protocol.error_codes import ErrorCode
from protocol.structs import PartitionError, TopicErrors
from storage.disk.steps import Steps

_ABORTABLE_SINCE = 4
_JOINS_SINCE = 5


def handle(
    context: Context, request: RequestContext, message: api.TxnOffsetCommitRequest
) -> Steps[api.TxnOffsetCommitResponse | Pending[api.TxnOffsetCommitResponse]]:
    """Store the offsets as part of the producer's transaction: all in one record batch."""
    offsets = OffsetsToCommit(context)
    now_ms = context.clock.wall_ms()

    def check(
        topic: api.TxnOffsetCommitRequestTopic, asked: api.TxnOffsetCommitRequestPartition
    ) -> PartitionError:
        answer = PartitionError(partition_index=asked.partition_index)
        found = context.topics.find(topic.name)
        offsets.add(found, asked.partition_index, _committed(asked, now_ms), answer)
        return answer

    response = api.TxnOffsetCommitResponse()
    response.topics = yield from by_topic(
        (topic for topic in message.topics if topic.partitions),
        check,
        lambda topic, answers: TopicErrors(name=topic.name, partitions=answers),
    )
    pending: Pending[api.TxnOffsetCommitResponse] = Pending()
    producer = (message.producer_id, message.producer_epoch)

    def settle(error: ErrorCode) -> None:
        offsets.settle(error)
        pending.resolve(response)

    def admitted(error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            is_known = request.api_version >= _ABORTABLE_SINCE
            settle(refusal_of_a_write(error, knows_abortable=is_known, knows_concurrent=True))
            return
        error = context.groups.commit_error(
            message.group_id,
            message.member_id,
            message.group_instance_id,
            message.generation_id,
            offsets.last_of_each,
            is_transactional=True,
        )
        if error is not ErrorCode.NONE:
            settle(error)
            return
        commit = OffsetCommit(
            group_id=message.group_id,
            offsets=list(offsets.last_of_each.items()),
            producer_id=message.producer_id,
            producer_epoch=message.producer_epoch,
        )
        context.groups.commit(commit, settle)

    offsets.drop_deleted()
    offsets.drop_too_large()
    if not offsets.last_of_each:
        return response
    if not message.group_id:
        settle(ErrorCode.INVALID_GROUP_ID)
        return response
    partition = context.groups.offsets_partition(message.group_id)
    transactions = context.transactions
    if request.api_version >= _JOINS_SINCE:
        transactions.admit(message.transactional_id, producer, [partition], admitted)
    else:
        admitted(transactions.append_error(message.transactional_id, producer, partition))
    return pending


def _committed(asked: api.TxnOffsetCommitRequestPartition, now_ms: int) -> CommittedOffset:
    return CommittedOffset(
        asked.committed_offset,
        asked.committed_leader_epoch,
        asked.committed_metadata or "",
        now_ms,
    )

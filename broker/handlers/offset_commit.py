"""OffsetCommit (key 8, versions 0-10): store the committed offsets of a group.

Answered once the offsets are on disk. A partition that does not exist or whose metadata is too
large is refused alone; a wrong generation or member refuses all that exist. Versions 0 and 1, which
Kafka 4 has dropped, are served: v0 (once kept in ZooKeeper) and v1 are stored in the same place as
the rest.

Source: Kafka `KafkaApis.handleOffsetCommitRequest`, `OffsetMetadataManager.commitOffset`.
"""

from typing import Final

from broker.groups.offsets.records import CommittedOffset
from broker.groups.offsets.store import OffsetCommit
from broker.replies.pending import Pending
from broker.requests.by_topic import by_topic
from broker.requests.context import Context, RequestContext
from broker.requests.offsets_to_commit import OffsetsToCommit
from protocol.api import offset_commit as api
from protocol.error_codes import ErrorCode
from protocol.records.layout import NO_TIMESTAMP
from protocol.structs import PartitionError
from storage.disk.steps import Steps

_MEMBER_EPOCHS_SINCE = 9
_TOPIC_IDS_SINCE = 10
_LAST_TIMESTAMP: Final = 2**63 - 1


def handle(
    context: Context, request: RequestContext, message: api.OffsetCommitRequest
) -> Steps[Pending[api.OffsetCommitResponse] | api.OffsetCommitResponse]:
    """Store the offsets of every partition that may be committed: all in one record batch."""
    uses_ids = request.api_version >= _TOPIC_IDS_SINCE
    offsets = OffsetsToCommit(
        context, ErrorCode.UNKNOWN_TOPIC_ID if uses_ids else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    now_ms = context.clock.wall_ms()
    expire_ms = _expire_ms(message.retention_time_ms, now_ms)

    def check(
        topic: api.OffsetCommitRequestTopic, asked: api.OffsetCommitRequestPartition
    ) -> PartitionError:
        topics, index, commit_ms = context.topics, asked.partition_index, asked.commit_timestamp
        offset = CommittedOffset(
            asked.committed_offset,
            asked.committed_leader_epoch,
            asked.committed_metadata or "",
            now_ms if commit_ms < 0 else commit_ms,
            expire_ms,
        )
        found = topics.find_by_id(topic.topic_id) if uses_ids else topics.find(topic.name)
        answer = PartitionError(partition_index=index)
        offsets.add(found, index, offset, answer)
        return answer

    response = api.OffsetCommitResponse()
    response.topics = yield from by_topic(
        (topic for topic in message.topics if topic.partitions),
        check,
        lambda topic, answers: api.OffsetCommitResponseTopic(
            name=topic.name, topic_id=topic.topic_id, partitions=answers
        ),
    )
    pending: Pending[api.OffsetCommitResponse] = Pending()

    def settle(error: ErrorCode) -> None:
        offsets.settle(error)
        pending.resolve(response)

    offsets.drop_deleted()
    error = context.groups.commit_error(
        message.group_id,
        message.member_id,
        message.group_instance_id,
        message.generation_id_or_member_epoch,
        offsets.last_of_each,
        knows_epochs=request.api_version >= _MEMBER_EPOCHS_SINCE,
    )
    if error is not ErrorCode.NONE:
        settle(error)
        return response
    offsets.drop_too_large()
    if not offsets.last_of_each:
        return response
    commit = OffsetCommit(group_id=message.group_id, offsets=list(offsets.last_of_each.items()))
    context.groups.commit(commit, settle)
    return pending


def _expire_ms(retention_ms: int, now_ms: int) -> int:
    """The time at which the offsets expire; NO_TIMESTAMP when the broker's retention applies.

    A retention beyond the largest timestamp ends at that timestamp.
    """
    if retention_ms < 0:
        return NO_TIMESTAMP
    return min(now_ms + retention_ms, _LAST_TIMESTAMP)

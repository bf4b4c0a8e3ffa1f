"""OffsetCommit (key 8, versions 0-10): store the committed offsets of a group.

Answered once the offsets are on disk. A partition that does not exist or whose metadata is too
large is refused alone; a wrong generation or member refuses all that exist. Versions 0 and 1, which
Kafka 4 has dropped, are served: v0 (once kept in ZooKeeper) and v1 are stored in the same place as
the rest.

Versions: v1 generation, member and commit timestamp; v2 to v4 a retention in place of the
timestamp; v3 throttle time; v6 leader epoch; v7 static membership; v8 flexible; v9 new group
protocol; v10 topic ids.

Source: Kafka `KafkaApis.handleOffsetCommitRequest`, `OffsetMetadataManager.commitOffset`.
Read next: `broker.groups.offsets.store`.
"""

from collections.abc import Callable
from typing import Final

from broker.groups.offsets.records import CommittedOffset
from broker.groups.offsets.store import OffsetCommit, TopicPartition
from broker.requests.context import Context, RequestContext
from broker.requests.pending import Pending
from protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from protocol.error_codes import ErrorCode
from protocol.records.layout import NO_TIMESTAMP

_MEMBER_EPOCHS_SINCE = 9
_TOPIC_IDS_SINCE = 10
_LAST_TIMESTAMP: Final = 2**63 - 1


def handle(
    context: Context, request: RequestContext, message: OffsetCommitRequest
) -> Pending[OffsetCommitResponse] | OffsetCommitResponse:
    """Store the offsets of every partition that may be committed."""
    checked = _Checked(context, request, message)
    error = context.groups.commit_error(
        message.group_id,
        message.member_id,
        message.group_instance_id,
        message.generation_id_or_member_epoch,
        [tp for tp, _ in checked.offsets],
        knows_epochs=request.api_version >= _MEMBER_EPOCHS_SINCE,
    )
    if error is not ErrorCode.NONE:
        return checked.settle(error)
    offsets = checked.drop_too_large(context.config.offset_metadata_max_bytes)
    if not offsets:
        return checked.response
    pending: Pending[OffsetCommitResponse] = Pending()
    context.groups.commit(
        OffsetCommit(group_id=message.group_id, offsets=offsets),
        lambda error: pending.resolve(checked.settle(error)),
    )
    return pending


class _Checked:
    """The request after one pass: the offsets to commit, and the answer as far as known."""

    def __init__(
        self, context: Context, request: RequestContext, message: OffsetCommitRequest
    ) -> None:
        self.offsets: list[tuple[TopicPartition, CommittedOffset]] = []
        self.response = OffsetCommitResponse()
        self._open: list[OffsetCommitResponsePartition] = []
        now_ms = context.clock.wall_ms()
        expire_ms = _expire_ms(message.retention_time_ms, now_ms)

        def committed(partition: OffsetCommitRequestPartition) -> CommittedOffset:
            return CommittedOffset(
                partition.committed_offset,
                partition.committed_leader_epoch,
                partition.committed_metadata or "",
                now_ms if partition.commit_timestamp < 0 else partition.commit_timestamp,
                expire_ms,
            )

        for topic in message.topics:
            if topic.partitions:
                self._add(context, request, topic, committed)

    def _add(
        self,
        context: Context,
        request: RequestContext,
        topic: OffsetCommitRequestTopic,
        committed: Callable[[OffsetCommitRequestPartition], CommittedOffset],
    ) -> None:
        answer = OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
        self.response.topics.append(answer)
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if request.api_version >= _TOPIC_IDS_SINCE:
            found = context.topics.find_by_id(topic.topic_id)
            if found is None:
                missing = ErrorCode.UNKNOWN_TOPIC_ID
        else:
            found = context.topics.find(topic.name)
        count = 0 if found is None else len(found.partitions)
        for partition in topic.partitions:
            result = OffsetCommitResponsePartition(partition_index=partition.partition_index)
            answer.partitions.append(result)
            if found is not None and 0 <= partition.partition_index < count:
                tp = (found.name, partition.partition_index)
                self.offsets.append((tp, committed(partition)))
                self._open.append(result)
            else:
                result.error_code = missing

    def drop_too_large(self, bytes_max: int) -> list[tuple[TopicPartition, CommittedOffset]]:
        """The offsets whose metadata is not too large; the others are refused."""
        kept = []
        for result, (tp, committed) in zip(list(self._open), self.offsets, strict=True):
            if len(committed.metadata.encode()) > bytes_max:
                result.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                self._open.remove(result)
            else:
                kept.append((tp, committed))
        return kept

    def settle(self, error: ErrorCode) -> OffsetCommitResponse:
        """The finished answer: `error` for every partition that is not refused already."""
        for result in self._open:
            result.error_code = error
        return self.response


def _expire_ms(retention_ms: int, now_ms: int) -> int:
    """The time at which the offsets expire; NO_TIMESTAMP when the broker's retention applies.

    A retention beyond the largest timestamp ends at that timestamp.
    """
    if retention_ms < 0:
        return NO_TIMESTAMP
    return min(now_ms + retention_ms, _LAST_TIMESTAMP)

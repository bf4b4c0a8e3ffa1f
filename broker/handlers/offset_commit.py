"""OffsetCommit (key 8, versions 0-10): keep how far a group has come.

Answered once the offsets are on disk. A partition that does not exist or whose metadata is too
large is refused alone; a wrong generation or member refuses all. Versions 0 and 1, which Kafka 4
has dropped, are served: v0 (once kept in ZooKeeper) and v1 land in the same place as the rest.

Versions: v1 generation, member and commit timestamp; v2 to v4 a retention in place of the
timestamp; v3 throttle time; v6 leader epoch; v7 static membership; v8 flexible; v9 new group
protocol; v10 topic ids.

Source: Kafka `KafkaApis.handleOffsetCommitRequest`, `OffsetMetadataManager.commitOffset`.
Read next: `broker.groups.commits`.
"""

from collections.abc import Callable

from broker.context import Context, RequestContext
from broker.groups.commits import OffsetCommit
from broker.groups.offset_records import CommittedOffset
from broker.groups.offsets import TopicPartition
from broker.pending import Pending
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


def handle(
    context: Context, request: RequestContext, message: OffsetCommitRequest
) -> Pending[OffsetCommitResponse] | OffsetCommitResponse:
    """Keep the offsets of every partition that may be committed."""
    group_error = context.groups.commit_error(
        message.group_id,
        message.member_id,
        message.group_instance_id,
        message.generation_id_or_member_epoch,
        knows_epochs=request.api_version >= _MEMBER_EPOCHS_SINCE,
    )
    checked = _Checked(context, request, message, group_error)
    if not checked.offsets:
        return checked.response
    pending: Pending[OffsetCommitResponse] = Pending()
    context.groups.commit(
        OffsetCommit(group_id=message.group_id, offsets=checked.offsets),
        lambda error: pending.resolve(checked.settle(error)),
    )
    return pending


class _Checked:
    """The request gone through once: what can be committed, and the answer as far as known."""

    def __init__(
        self,
        context: Context,
        request: RequestContext,
        message: OffsetCommitRequest,
        group_error: ErrorCode,
    ) -> None:
        self.offsets: list[tuple[TopicPartition, CommittedOffset]] = []
        self.response = OffsetCommitResponse()
        self._open: list[OffsetCommitResponsePartition] = []
        self._metadata_bytes_max = context.config.offset_metadata_max_bytes
        self._group_error = group_error
        now_ms = context.clock.wall_ms()
        retention_ms = message.retention_time_ms
        expire_ms = NO_TIMESTAMP if retention_ms < 0 else now_ms + retention_ms

        def committed(partition: OffsetCommitRequestPartition) -> CommittedOffset:
            return CommittedOffset(
                partition.committed_offset,
                partition.committed_leader_epoch,
                partition.committed_metadata or "",
                now_ms if partition.commit_timestamp < 0 else partition.commit_timestamp,
                expire_ms,
            )

        for topic in message.topics:
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
            missing = ErrorCode.UNKNOWN_TOPIC_ID
        else:
            found = context.topics.find(topic.name)
        count = 0 if found is None else len(found.partitions)
        for partition in topic.partitions:
            error = self._group_error
            if error is ErrorCode.NONE and not 0 <= partition.partition_index < count:
                error = missing
            if error is ErrorCode.NONE and self._is_too_large(partition):
                error = ErrorCode.OFFSET_METADATA_TOO_LARGE
            result = OffsetCommitResponsePartition(
                partition_index=partition.partition_index, error_code=error
            )
            answer.partitions.append(result)
            if error is ErrorCode.NONE and found is not None:
                tp = (found.name, partition.partition_index)
                self.offsets.append((tp, committed(partition)))
                self._open.append(result)

    def _is_too_large(self, partition: OffsetCommitRequestPartition) -> bool:
        return len((partition.committed_metadata or "").encode()) > self._metadata_bytes_max

    def settle(self, error: ErrorCode) -> OffsetCommitResponse:
        """The finished answer: `error` for every partition that went to the log."""
        for result in self._open:
            result.error_code = error
        return self.response

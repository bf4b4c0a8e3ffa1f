"""OffsetDelete (key 47, version 0): delete some of a group's offsets.

Offsets of topics that the group consumes right now are refused (GROUP_SUBSCRIBED_TO_TOPIC). A group
without a name can have offsets, but single ones of it cannot be deleted.

Source: Kafka `OffsetMetadataManager.deleteOffsets`; KIP-496.
"""

from broker.groups.offsets.store import TopicPartition
from broker.replies.pending import Pending
from broker.requests.by_topic import by_topic
from broker.requests.context import Context, RequestContext
from protocol.api import offset_delete as api
from protocol.error_codes import ErrorCode
from protocol.structs import PartitionError, PartitionIndex, TopicErrors
from storage.disk.steps import Steps


def handle(
    context: Context, request: RequestContext, message: api.OffsetDeleteRequest
) -> Steps[api.OffsetDeleteResponse | Pending[api.OffsetDeleteResponse]]:
    """Delete the offsets that may be deleted, all in one step; answer once that is on disk."""
    if not message.group_id:
        return api.OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    existing: list[tuple[TopicPartition, PartitionError]] = []

    def check(topic: api.OffsetDeleteRequestTopic, asked: PartitionIndex) -> PartitionError:
        answer = PartitionError(partition_index=asked.partition_index)
        found = context.topics.find(topic.name)
        if found is not None and 0 <= asked.partition_index < len(found.partitions):
            existing.append(((topic.name, asked.partition_index), answer))
        else:
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return answer

    topics = yield from by_topic(
        (topic for topic in message.topics if topic.partitions),
        check,
        lambda topic, answers: TopicErrors(name=topic.name, partitions=answers),
    )
    pending: Pending[api.OffsetDeleteResponse] = Pending()

    def settle(error: ErrorCode, refused: frozenset[TopicPartition]) -> None:
        if error is not ErrorCode.NONE:
            pending.resolve(api.OffsetDeleteResponse(error_code=error))
            return
        for tp, answer in existing:
            if tp in refused:
                answer.error_code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        names = ", ".join(sorted({tp[0] for tp, _ in existing if tp not in refused}))
        if names:
            what = f"deleted committed offsets of group {message.group_id!r} in topics {names}"
            context.security.audit.changed(request, what)
        pending.resolve(api.OffsetDeleteResponse(topics=topics))

    wanted = list(dict.fromkeys(tp for tp, _ in existing))
    context.groups.cleanup.delete_offsets(message.group_id, wanted, settle)
    return pending

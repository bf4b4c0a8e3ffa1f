"""OffsetDelete (key 47, version 0): delete some of a group's offsets.

Offsets of topics that the group consumes right now are refused (GROUP_SUBSCRIBED_TO_TOPIC). A group
without a name can have offsets, but single ones of it cannot be deleted.

Source: Kafka `OffsetMetadataManager.deleteOffsets`; KIP-496.
"""

from broker.groups.offsets.store import TopicPartition
from broker.requests.context import Context, RequestContext
from broker.requests.pending import Pending
from protocol.api.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from protocol.error_codes import ErrorCode


def handle(
    context: Context, request: RequestContext, message: OffsetDeleteRequest
) -> OffsetDeleteResponse | Pending[OffsetDeleteResponse]:
    """Delete the offsets that may be deleted; answer once that is on disk."""
    if not message.group_id:
        return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    pending: Pending[OffsetDeleteResponse] = Pending()
    asked = [
        (topic.name, partition.partition_index)
        for topic in message.topics
        for partition in topic.partitions
    ]
    existing = {tp for tp in asked if context.topics.has_partition(*tp)}

    def settle(error: ErrorCode, refused: frozenset[TopicPartition]) -> None:
        if error is not ErrorCode.NONE:
            pending.resolve(OffsetDeleteResponse(error_code=error))
            return
        pending.resolve(_response(message, existing, refused))

    wanted = [tp for tp in asked if tp in existing]
    context.groups.cleanup.delete_offsets(message.group_id, wanted, settle)
    return pending


def _response(
    message: OffsetDeleteRequest,
    existing: set[TopicPartition],
    refused: frozenset[TopicPartition],
) -> OffsetDeleteResponse:
    def code(tp: TopicPartition) -> ErrorCode:
        if tp not in existing:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if tp in refused else ErrorCode.NONE

    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=code((topic.name, partition.partition_index)),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in message.topics
            if topic.partitions
        ]
    )

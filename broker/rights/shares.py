"""Guards of the APIs of share groups that other groups do not have.

The group comes before its topics, as for other groups; handlers check the topics of what they read
and change themselves.

Source: Kafka `KafkaApis`.
"""

from typing import Any

from broker.requests.access import Check
from broker.rights.guards import (
    GROUP_DENIED,
    GROUP_MESSAGE,
    TOPIC_DENIED,
    Guard,
    Steps,
    guard,
    on_group,
    parted,
)
from protocol.acl import Operation
from protocol.api import describe_share_group_offsets as describe_offsets
from protocol.api.alter_share_group_offsets import AlterShareGroupOffsetsResponse
from protocol.api.delete_share_group_offsets import DeleteShareGroupOffsetsResponse
from protocol.api.share_acknowledge import ShareAcknowledgeResponse
from protocol.api.share_fetch import ShareFetchResponse


def _on_group(operation: Operation, response: Any) -> Guard:
    return on_group(operation, lambda message, request: response(error_code=GROUP_DENIED))


share_fetch_guard = _on_group(Operation.READ, ShareFetchResponse)
share_acknowledge_guard = _on_group(Operation.READ, ShareAcknowledgeResponse)
alter_share_group_offsets_guard = _on_group(Operation.READ, AlterShareGroupOffsetsResponse)
delete_share_group_offsets_guard = _on_group(Operation.DELETE, DeleteShareGroupOffsetsResponse)


@guard
def describe_share_group_offsets_guard(
    check: Check, message: describe_offsets.DescribeShareGroupOffsetsRequest
) -> Steps:
    """DESCRIBE on each group, then on each topic; hidden ones are left out of "all topics"."""
    message.groups, denied = parted(
        message.groups, lambda group: check.group(Operation.DESCRIBE, group.group_id)
    )
    asks_all = {group.group_id for group in message.groups if group.topics is None}
    answer = yield
    for group in answer.groups:
        group.topics, hidden = parted(
            group.topics, lambda topic: check.topic(Operation.DESCRIBE, topic.topic_name)
        )
        if group.group_id not in asks_all:
            group.topics += [_hidden(topic) for topic in hidden]
    answer.groups.extend(
        describe_offsets.DescribeShareGroupOffsetsResponseGroup(
            group_id=group.group_id, error_code=GROUP_DENIED, error_message=GROUP_MESSAGE
        )
        for group in denied
    )
    return answer


def _hidden(
    topic: describe_offsets.DescribeShareGroupOffsetsResponseTopic,
) -> describe_offsets.DescribeShareGroupOffsetsResponseTopic:
    return describe_offsets.DescribeShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        partitions=[
            describe_offsets.DescribeShareGroupOffsetsResponsePartition(
                partition_index=each.partition_index, start_offset=-1, error_code=TOPIC_DENIED
            )
            for each in topic.partitions
        ],
    )

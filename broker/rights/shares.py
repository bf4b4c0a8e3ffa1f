"""Guards of the APIs of share groups that other groups do not have.

The group comes before its topics, as for other groups; handlers check the topics of what they read
and change themselves.

Source: Kafka `KafkaApis`.
"""

from typing import Any

from broker.requests.access import Check
from broker.requests.context import Context, Handler, Reply, RequestContext
from broker.rights.guards import (
    CLUSTER_DENIED,
    CLUSTER_MESSAGE,
    GROUP_DENIED,
    GROUP_MESSAGE,
    TOPIC_DENIED,
    TOPIC_MESSAGE,
    Guard,
    Steps,
    guard,
    on_cluster,
    on_group,
    parted,
    refused_topic,
    refusing,
)
from protocol.acl import Operation
from protocol.api import describe_share_group_offsets as describe_offsets
from protocol.api.alter_share_group_offsets import AlterShareGroupOffsetsResponse
from protocol.api.delete_share_group_offsets import DeleteShareGroupOffsetsResponse
from protocol.api.share_acknowledge import ShareAcknowledgeResponse
from protocol.api.share_fetch import ShareFetchResponse
from protocol.api_keys import ApiKey
from protocol.declare.primitives import field_specs
from protocol.registry import response_class


def _on_group(operation: Operation, response: Any, text: str | None = None) -> Guard:
    refuse = refusing(response, error_code=GROUP_DENIED, error_message=text)
    guarded = on_group(operation, refuse)

    def unless_null(
        context: Context, request: RequestContext, message: Any, handler: Handler
    ) -> Reply:
        """A request without a group is invalid, whatever the rights are."""
        if message.group_id is None:
            return handler(context, request, message)
        return guarded(context, request, message, handler)

    return unless_null


share_fetch_guard = _on_group(Operation.READ, ShareFetchResponse)
share_acknowledge_guard = _on_group(Operation.READ, ShareAcknowledgeResponse)
alter_share_group_offsets_guard = _on_group(
    Operation.READ, AlterShareGroupOffsetsResponse, GROUP_MESSAGE
)
delete_share_group_offsets_guard = _on_group(
    Operation.DELETE, DeleteShareGroupOffsetsResponse, GROUP_MESSAGE
)


def _on_states(key: ApiKey) -> Guard:
    """CLUSTER_ACTION on the cluster: brokers send these. See `broker.requests.shares.states`."""

    def refuse(message: Any, request: RequestContext) -> Any:
        response: Any = response_class(key)
        ((_, results),) = field_specs(response)
        denied = {"error_code": CLUSTER_DENIED, "error_message": CLUSTER_MESSAGE}
        return response(
            results=[refused_topic(results.element, topic, **denied) for topic in message.topics]
        )

    return on_cluster(Operation.CLUSTER_ACTION, refuse)


initialize_share_group_state_guard = _on_states(ApiKey.INITIALIZE_SHARE_GROUP_STATE)
read_share_group_state_guard = _on_states(ApiKey.READ_SHARE_GROUP_STATE)
write_share_group_state_guard = _on_states(ApiKey.WRITE_SHARE_GROUP_STATE)
delete_share_group_state_guard = _on_states(ApiKey.DELETE_SHARE_GROUP_STATE)
read_share_group_state_summary_guard = _on_states(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY)


@guard
def describe_share_group_offsets_guard(
    check: Check, message: describe_offsets.DescribeShareGroupOffsetsRequest
) -> Steps:
    """DESCRIBE on each group, then on each topic; hidden ones are left out of "all topics"."""
    message.groups, denied = parted(
        message.groups, lambda group: check.group(Operation.DESCRIBE, group.group_id)
    )
    hidden: list[list[Any]] = []
    for group in message.groups:
        asked, refused = parted(
            group.topics or (), lambda topic: check.topic(Operation.DESCRIBE, topic.topic_name)
        )
        hidden.append(refused)
        group.topics = None if group.topics is None else asked
    asks_all = [group.topics is None for group in message.groups]
    answer = yield
    for described, refused, is_all in zip(answer.groups, hidden, asks_all, strict=True):
        if is_all:
            described.topics, _ = parted(
                described.topics, lambda topic: check.topic(Operation.DESCRIBE, topic.topic_name)
            )
        described.topics += map(_hidden, refused)
    answer.groups.extend(
        describe_offsets.DescribeShareGroupOffsetsResponseGroup(
            group_id=group.group_id, error_code=GROUP_DENIED, error_message=GROUP_MESSAGE
        )
        for group in denied
    )
    return answer


def _hidden(
    topic: describe_offsets.DescribeShareGroupOffsetsRequestTopic,
) -> describe_offsets.DescribeShareGroupOffsetsResponseTopic:
    return describe_offsets.DescribeShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        partitions=[
            describe_offsets.DescribeShareGroupOffsetsResponsePartition(
                partition_index=index,
                start_offset=-1,
                error_code=TOPIC_DENIED,
                error_message=TOPIC_MESSAGE,
            )
            for index in topic.partitions
        ],
    )

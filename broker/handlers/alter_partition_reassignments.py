"""AlterPartitionReassignments (key 45, versions 0-1): replicas can live on this broker alone.

Moving a partition to this broker succeeds and changes nothing. There is never a move under way to
cancel (null replicas).

Source: KIP-455, KIP-860; Kafka `ReplicationControlManager.alterPartitionReassignments`.
"""

from functools import partial

from broker.requests.context import Context, RequestContext
from protocol.api import alter_partition_reassignments as api
from protocol.error_codes import ErrorCode
from storage.disk.steps import Steps, each


def handle(
    context: Context, request: RequestContext, message: api.AlterPartitionReassignmentsRequest
) -> Steps[api.AlterPartitionReassignmentsResponse]:
    """The outcome for every partition; with a timeout of 0 or less nothing is done."""
    error = ErrorCode.NONE if message.timeout_ms > 0 else ErrorCode.REQUEST_TIMED_OUT
    response = api.AlterPartitionReassignmentsResponse(
        error_code=error,
        error_message=None,
        allow_replication_factor_change=message.allow_replication_factor_change,
    )
    for topic in message.topics:
        reassign = partial(_reassign, context, topic.name) if error is ErrorCode.NONE else _time_out
        partitions = yield from each(topic.partitions, reassign)
        response.responses.append(
            api.ReassignableTopicResponse(name=topic.name, partitions=partitions)
        )
        yield None
    return response


def _time_out(asked: api.ReassignablePartition) -> api.ReassignablePartitionResponse:
    return api.ReassignablePartitionResponse(
        partition_index=asked.partition_index,
        error_code=ErrorCode.REQUEST_TIMED_OUT,
        error_message=None,
    )


def _reassign(
    context: Context, name: str, asked: api.ReassignablePartition
) -> api.ReassignablePartitionResponse:
    response = api.ReassignablePartitionResponse(
        partition_index=asked.partition_index, error_message=None
    )
    topic = context.topics.find(name)
    if topic is None or not 0 <= asked.partition_index < len(topic.partitions):
        response.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        response.error_message = "There is no such partition."
    elif asked.replicas is None:
        response.error_code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        response.error_message = "This partition is not being moved."
    elif asked.replicas != [leader_id := context.topics.leader_id(topic, asked.partition_index)]:
        response.error_code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
        response.error_message = (
            f"The partition stays on broker {leader_id}; replicas must be [{leader_id}]."
        )
    return response

"""ElectLeaders (key 43, versions 0-2): the only replica leads already.

A partition that was named is answered ELECTION_NOT_NEEDED; when all were meant (null) those are
left out, so that nothing at all is the answer of a healthy cluster.

Source: KIP-183, KIP-460; Kafka `ReplicationControlManager.electLeaders`.
"""

from functools import partial

from broker.context import Context, RequestContext
from protocol.api.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from protocol.error_codes import ErrorCode
from storage.steps import Steps, each


def handle(
    context: Context, request: RequestContext, message: ElectLeadersRequest
) -> Steps[ElectLeadersResponse]:
    """The outcome for every partition that was named."""
    response = ElectLeadersResponse()
    for asked in message.topic_partitions or ():
        results = yield from each(asked.partitions, partial(_elect, context, asked.topic))
        response.replica_election_results.append(
            ReplicaElectionResult(topic=asked.topic, partition_result=results)
        )
        yield None
    return response


def _elect(context: Context, name: str, partition: int) -> PartitionResult:
    topic = context.topics.find(name)
    if topic is None or not 0 <= partition < len(topic.partitions):
        return PartitionResult(
            partition_id=partition,
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            error_message=f"This broker hosts no topic-partition '{name}-{partition}'.",
        )
    return PartitionResult(
        partition_id=partition,
        error_code=ErrorCode.ELECTION_NOT_NEEDED,
        error_message="The leader is elected already.",
    )

"""ElectLeaders (key 43, versions 0-2): the only replica is already the leader.

A named partition is answered ELECTION_NOT_NEEDED. A request for all (null) leaves those out, so the
answer of a healthy cluster is topics without partitions.

Source: KIP-183, KIP-460; Kafka `ReplicationControlManager.electLeaders`.
"""

from broker.requests.by_topic import by_topic
from broker.requests.context import Context, RequestContext
from protocol.api import elect_leaders as api
from protocol.error_codes import ErrorCode
from protocol.structs import TopicIndexes
from storage.disk.steps import Steps, each

_ELECTION_TYPES = (0, 1)
_TYPES_SINCE = 1


def handle(
    context: Context, request: RequestContext, message: api.ElectLeadersRequest
) -> Steps[api.ElectLeadersResponse]:
    """The outcome for every named partition."""
    error = ErrorCode.NONE
    if request.api_version >= _TYPES_SINCE and message.election_type not in _ELECTION_TYPES:
        error = ErrorCode.INVALID_REQUEST
    elif message.timeout_ms <= 0:
        error = ErrorCode.REQUEST_TIMED_OUT
    if error is not ErrorCode.NONE:
        return (yield from _refuse_all(message, error))
    response = api.ElectLeadersResponse()
    if message.topic_partitions is None:
        response.replica_election_results = yield from each(
            list(context.topics), lambda topic: api.ReplicaElectionResult(topic=topic.name)
        )
        return response
    response.replica_election_results = yield from by_topic(
        message.topic_partitions,
        lambda asked, index: _elect(context, asked.topic, index),
        _collect,
    )
    return response


def _refuse_all(
    message: api.ElectLeadersRequest, error: ErrorCode
) -> Steps[api.ElectLeadersResponse]:
    """Refuse the election for a reason that concerns the whole request."""
    results = yield from by_topic(
        message.topic_partitions or (),
        lambda _, index: api.PartitionResult(
            partition_id=index, error_code=error, error_message=None
        ),
        _collect,
    )
    return api.ElectLeadersResponse(error_code=error, replica_election_results=results)


def _collect(asked: TopicIndexes, results: list[api.PartitionResult]) -> api.ReplicaElectionResult:
    return api.ReplicaElectionResult(topic=asked.topic, partition_result=results)


def _elect(context: Context, name: str, partition: int) -> api.PartitionResult:
    topic = context.topics.find(name)
    if topic is None or not 0 <= partition < len(topic.partitions):
        return api.PartitionResult(
            partition_id=partition,
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            error_message=f"This broker hosts no topic-partition '{name}-{partition}'.",
        )
    return api.PartitionResult(
        partition_id=partition,
        error_code=ErrorCode.ELECTION_NOT_NEEDED,
        error_message="The leader is elected already.",
    )

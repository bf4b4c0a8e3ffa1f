"""ShareAcknowledge (key 79, versions 1-2): accept, release, reject or renew acquired records.

Answered when the acknowledgements are on disk: what was accepted is never delivered again. A
request with the final epoch then gives back what its session still holds.

Source: KIP-932, KIP-1222; Kafka `KafkaApis.handleShareAcknowledgeRequest`.
"""

from collections.abc import Mapping

from broker.groups.consumer.values import Partition
from broker.groups.share.sessions import FINAL_EPOCH, INITIAL_EPOCH
from broker.replies.pending import Pending
from broker.requests.context import Context, RequestContext
from broker.requests.leaders import MOVED, NamedLeaders
from broker.requests.shares.sessions import (
    Acknowledgements,
    Outcome,
    find_session,
    member_problem,
)
from protocol.api import share_acknowledge as api
from protocol.error_codes import ErrorCode


def handle(
    context: Context, request: RequestContext, message: api.ShareAcknowledgeRequest
) -> Pending[api.ShareAcknowledgeResponse] | api.ShareAcknowledgeResponse:
    """Apply the acknowledgements; the answer comes when they are durable."""
    problem = member_problem(message.group_id, message.member_id)
    if problem is not None:
        return _refusal(ErrorCode.INVALID_REQUEST, problem)
    group_id, member_id = message.group_id or "", message.member_id or ""
    if message.share_session_epoch == INITIAL_EPOCH:
        return _refusal(ErrorCode.INVALID_SHARE_SESSION_EPOCH, None)
    session, error = find_session(
        context, request, group_id, member_id, message.share_session_epoch
    )
    if session is None:
        return _refusal(error, None)
    asked = Acknowledgements(context, request, group_id, member_id, may_renew=message.is_renew_ack)
    for topic in message.topics:
        for partition in topic.partitions:
            key = (bytes(topic.topic_id), partition.partition_index)
            asked.add(key, partition.acknowledgement_batches)
    pending: Pending[api.ShareAcknowledgeResponse] = Pending()
    shares = context.groups.shares

    def settle(outcomes: Mapping[Partition, Outcome]) -> None:
        response = _response(context, outcomes)
        response.acquisition_lock_timeout_ms = shares.partitions.limits_of(
            group_id
        ).lock_duration_ms
        if message.share_session_epoch == FINAL_EPOCH:
            shares.sessions.end(session)
        pending.resolve(response)

    asked.begin(settle)
    return pending


def _refusal(error: ErrorCode, message: str | None) -> api.ShareAcknowledgeResponse:
    return api.ShareAcknowledgeResponse(error_code=error, error_message=message)


def _response(
    context: Context, outcomes: Mapping[Partition, Outcome]
) -> api.ShareAcknowledgeResponse:
    topics: dict[bytes, api.ShareAcknowledgeTopicResponse] = {}
    leaders = NamedLeaders(context)
    for (topic_id, index), outcome in outcomes.items():
        topic = topics.setdefault(topic_id, api.ShareAcknowledgeTopicResponse(topic_id=topic_id))
        data = api.PartitionData(
            partition_index=index, error_code=outcome.error, error_message=outcome.message
        )
        if outcome.error in MOVED:
            data.current_leader = leaders.leader(context.topics.find_by_id(topic_id), index)
        topic.partitions.append(data)
    return api.ShareAcknowledgeResponse(
        responses=list(topics.values()), node_endpoints=leaders.endpoints()
    )

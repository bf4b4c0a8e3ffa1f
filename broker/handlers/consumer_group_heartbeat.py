"""ConsumerGroupHeartbeat (key 68, versions 0-1): the one request of the consumer protocol.

A member joins with epoch 0, continues with its epoch, and leaves with -1. A static member may leave
for a while with -2. A member sends what has changed for it, and receives its assignment when that
has changed.

Source: KIP-848; Kafka `GroupMetadataManager.throwIfConsumerGroupHeartbeatRequestIsInvalid`.
"""

from collections.abc import Iterable

from broker.groups.consumer.values import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    HeartbeatAnswer,
    HeartbeatRequest,
    Partitions,
    indexes_by_key,
)
from broker.replies.pending import Pending
from broker.requests.access import Check
from broker.requests.context import Context, RequestContext
from protocol.api import consumer_group_heartbeat as api
from protocol.error_codes import ErrorCode
from protocol.structs import Assignment, TopicPartitions

_OWN_IDS_SINCE = 1


def handle(
    context: Context, request: RequestContext, message: api.ConsumerGroupHeartbeatRequest
) -> Pending[api.ConsumerGroupHeartbeatResponse] | api.ConsumerGroupHeartbeatResponse:
    """Take the heartbeat; the answer comes when its changes are durable."""
    problem = _problem(request.api_version, message)
    if problem is not None:
        return api.ConsumerGroupHeartbeatResponse(
            error_code=ErrorCode.INVALID_REQUEST, error_message=problem
        )
    member_id = message.member_id
    if not member_id:
        member_id = context.groups.new_member_id(request.client_id or "", message.instance_id)
    pending: Pending[api.ConsumerGroupHeartbeatResponse] = Pending()
    context.groups.consumer_heartbeat(
        message.group_id,
        _request(context, request, message, member_id),
        lambda answer: pending.resolve(_response(answer)),
    )
    return pending


def _problem(version: int, message: api.ConsumerGroupHeartbeatRequest) -> str | None:
    """Why the request is invalid, as a sentence; None when it is valid."""
    epoch = message.member_epoch
    checks: tuple[tuple[bool, str], ...] = (
        (not message.group_id.strip(), "group_id is empty."),
        (message.instance_id == "", "instance_id is empty."),
        (message.rack_id == "", "rack_id is empty."),
        (epoch < LEAVE_STATIC_EPOCH, f"member_epoch {epoch} means nothing."),
        (
            not message.member_id and (epoch != JOIN_EPOCH or version >= _OWN_IDS_SINCE),
            "member_id is empty.",
        ),
        (
            epoch == LEAVE_STATIC_EPOCH and message.instance_id is None,
            "A member without instance_id cannot leave for a while.",
        ),
    )
    if epoch == JOIN_EPOCH:
        checks += (
            (message.rebalance_timeout_ms == -1, "A member joins with a rebalance timeout."),
            (
                message.topic_partitions is None or message.topic_partitions != [],
                "A member that joins owns nothing: topic_partitions must be empty.",
            ),
            (
                message.subscribed_topic_names is None and message.subscribed_topic_regex is None,
                "A member joins with a subscription.",
            ),
        )
    return next((sentence for is_wrong, sentence in checks if is_wrong), None)


def _request(
    context: Context,
    request: RequestContext,
    message: api.ConsumerGroupHeartbeatRequest,
    member_id: str,
) -> HeartbeatRequest:
    names = message.subscribed_topic_names
    timeout_ms = message.rebalance_timeout_ms
    return HeartbeatRequest(
        member_id=member_id,
        member_epoch=message.member_epoch,
        instance_id=message.instance_id,
        rack_id=message.rack_id,
        rebalance_timeout_ms=None if timeout_ms < 0 else timeout_ms,
        subscribed_names=None if names is None else frozenset(names),
        subscribed_regex=message.subscribed_topic_regex,
        server_assignor=message.server_assignor,
        owned=_owned(message.topic_partitions),
        client_id=request.client_id or "",
        client_host=request.peer_host,
        sees=Check(context, request).sight(),
    )


def _owned(topics: Iterable[TopicPartitions] | None) -> Partitions | None:
    if topics is None:
        return None
    return frozenset(
        (bytes(topic.topic_id), index) for topic in topics for index in topic.partitions
    )


def _response(answer: HeartbeatAnswer) -> api.ConsumerGroupHeartbeatResponse:
    response = api.ConsumerGroupHeartbeatResponse(
        error_code=answer.error,
        error_message=answer.error_message,
        member_id=answer.member_id if answer.error is ErrorCode.NONE else None,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=None,
    )
    if answer.assigned is not None:
        response.assignment = Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=indexes)
                for topic_id, indexes in indexes_by_key(answer.assigned).items()
            ]
        )
    return response

"""ShareGroupHeartbeat (key 76, version 1): join, stay in and leave a share group.

A member joins with epoch 0 and an id of its own, continues with its epoch, and leaves with -1. It
receives its assignment when it joins, when it names its topics, and when the assignment changed.

Source: KIP-932; Kafka `GroupCoordinatorService.throwIfShareGroupHeartbeatRequestIsInvalid`.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

from broker.groups.consumer.values import JOIN_EPOCH, LEAVE_EPOCH, HeartbeatAnswer, indexes_by_key
from broker.groups.share.group_values import ShareHeartbeat
from broker.replies.pending import Pending
from broker.requests.context import Context, RequestContext
from broker.requests.shares.sessions import member_problem
from protocol.api import share_group_heartbeat as api
from protocol.error_codes import ErrorCode
from protocol.structs import Assignment, TopicPartitions

_Response = api.ShareGroupHeartbeatResponse


def handle(
    context: Context, request: RequestContext, message: api.ShareGroupHeartbeatRequest
) -> Pending[_Response] | _Response | Coroutine[Any, Any, Any]:
    """Take the heartbeat; the answer comes when its changes are durable."""
    problem = _problem(message)
    if problem is not None:
        return _Response(error_code=ErrorCode.INVALID_REQUEST, error_message=problem)
    if not context.groups.shares.states.is_open and message.member_epoch == JOIN_EPOCH:
        return _join_first(context, request, message)
    return _beat(context, request, message)


async def _join_first(
    context: Context, request: RequestContext, message: api.ShareGroupHeartbeatRequest
) -> Any:
    """The first share group of this broker: its topic is created."""
    error = await context.groups.shares.open_states()
    if error is not ErrorCode.NONE:
        return _Response(error_code=error)
    answered: asyncio.Future[_Response] = asyncio.get_running_loop().create_future()
    _beat(context, request, message).subscribe(lambda done: answered.set_result(done.result()))
    return await answered


def _beat(
    context: Context, request: RequestContext, message: api.ShareGroupHeartbeatRequest
) -> Pending[_Response]:
    names = message.subscribed_topic_names
    heartbeat = ShareHeartbeat(
        member_id=message.member_id,
        member_epoch=message.member_epoch,
        rack_id=message.rack_id,
        names=None if names is None else frozenset(names),
        client_id=request.client_id or "",
        client_host=request.peer_host,
    )
    pending: Pending[_Response] = Pending()
    context.groups.share_heartbeat(
        message.group_id, heartbeat, lambda answer: pending.resolve(_response(answer))
    )
    return pending


def _problem(message: api.ShareGroupHeartbeatRequest) -> str | None:
    """Why the request is invalid, as a sentence; None when it is valid."""
    epoch = message.member_epoch
    if not message.group_id.strip():
        return "group_id is empty."
    problem = member_problem(message.group_id, message.member_id.strip())
    if problem is not None:
        return problem
    if message.rack_id == "":
        return "rack_id is empty."
    if epoch < LEAVE_EPOCH:
        return f"member_epoch {epoch} means nothing."
    if epoch == JOIN_EPOCH and not message.subscribed_topic_names:
        return "A member joins with the names of topics."
    return None


def _response(answer: HeartbeatAnswer) -> _Response:
    response = _Response(
        error_code=answer.error,
        error_message=answer.error_message,
        member_id=answer.member_id if answer.error is ErrorCode.NONE else None,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
    )
    if answer.assigned is not None:
        response.assignment = Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=indexes)
                for topic_id, indexes in indexes_by_key(answer.assigned).items()
            ]
        )
    return response

"""DeleteShareGroupOffsets (key 92, version 0): let an empty share group forget topics.

Its next member begins in them as in new topics. Answered when that is on disk.

Source: KIP-932; Kafka `GroupCoordinatorService.deleteShareGroupOffsets`.
"""

from functools import partial

from broker.replies.pending import Pending
from broker.requests.access import Check
from broker.requests.context import Context, RequestContext
from broker.topics.registry import NO_TOPIC_ID
from protocol.acl import Operation
from protocol.api import delete_share_group_offsets as api
from protocol.error_codes import ErrorCode

_Response = api.DeleteShareGroupOffsetsResponse
_Topic = api.DeleteShareGroupOffsetsResponseTopic


def handle(
    context: Context, request: RequestContext, message: api.DeleteShareGroupOffsetsRequest
) -> Pending[_Response] | _Response:
    """Forget each topic on its own; the answer comes when all are done."""
    group_id = message.group_id
    if not group_id:
        text = "The name of the group is empty."
        return _Response(error_code=ErrorCode.INVALID_GROUP_ID, error_message=text)
    group = context.groups.share_groups.get(group_id)
    if group is None:
        text = f"Group {group_id} is not a share group."
        return _Response(error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=text)
    if not group.is_empty:
        text = f"Group {group_id} has members; stop them first."
        return _Response(error_code=ErrorCode.NON_EMPTY_GROUP, error_message=text)
    check = Check(context, request)
    response = _Response()
    pending: Pending[_Response] = Pending()
    missing = 1

    def settle(outcome: _Topic | None, error: ErrorCode) -> None:
        nonlocal missing
        if outcome is not None:
            _conclude(outcome, error)
        missing -= 1
        if missing == 0:
            _note(context, request, message, response)
            pending.resolve(response)

    for asked in message.topics:
        name = asked.topic_name
        topic = context.topics.find(name)
        outcome = _Topic(topic_name=name, topic_id=NO_TOPIC_ID if topic is None else topic.topic_id)
        response.responses.append(outcome)
        missing += 1
        if not check.topic(Operation.READ, name):
            settle(outcome, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        elif topic is None:
            settle(outcome, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            done = partial(settle, outcome)
            context.groups.shares.delete_offsets(group_id, topic.topic_id, done)
    settle(None, ErrorCode.NONE)
    return pending


def _conclude(outcome: _Topic, error: ErrorCode) -> None:
    outcome.error_code = error
    if error is not ErrorCode.NONE:
        outcome.topic_id = NO_TOPIC_ID  # it would show that the topic exists


def _note(
    context: Context,
    request: RequestContext,
    message: api.DeleteShareGroupOffsetsRequest,
    response: _Response,
) -> None:
    names = sorted(topic.topic_name for topic in response.responses if not topic.error_code)
    if names:
        what = f"deleted offsets of share group {message.group_id!r} in topics {', '.join(names)}"
        context.security.audit.changed(request, what)

"""SyncGroup (key 14, versions 0-5): hand out and receive assignments.

The leader brings the assignments of all members, the others wait for theirs. A member receives its
assignment once it is durable. An assignment that does not exist is zero bytes, never null.

Source: Kafka `GroupCoordinatorService.syncGroup`.
"""

from broker.groups.classic.values import SyncAnswer, SyncRequest
from broker.replies.pending import Pending
from broker.requests.context import Context, RequestContext
from protocol.api import sync_group as api
from protocol.error_codes import ErrorCode

_PROTOCOL_SINCE = 5


def handle(
    context: Context, request: RequestContext, message: api.SyncGroupRequest
) -> api.SyncGroupResponse | Pending[api.SyncGroupResponse]:
    """Request the member's assignment in its generation."""
    names = (message.protocol_type, message.protocol_name)
    if request.api_version >= _PROTOCOL_SINCE and None in names and message.group_id:
        return api.SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    sync = SyncRequest(
        member_id=message.member_id,
        generation_id=message.generation_id,
        group_instance_id=message.group_instance_id,
        protocol_type=message.protocol_type,
        protocol_name=message.protocol_name,
        assignments={each.member_id: bytes(each.assignment) for each in message.assignments},
    )
    pending: Pending[api.SyncGroupResponse] = Pending()
    context.groups.sync(message.group_id, sync, lambda answer: pending.resolve(_response(answer)))
    return pending


def _response(answer: SyncAnswer) -> api.SyncGroupResponse:
    return api.SyncGroupResponse(
        error_code=answer.error,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name,
        assignment=answer.assignment,
    )

"""LeaveGroup (key 13, versions 0-5): members leave at once instead of timing out.

Before v3 one member leaves and the error is the request's. From v3 on there is a list, each member
has its own error, and a static member may be named by its instance id alone.

Source: Kafka `GroupCoordinatorService.leaveGroup`.
"""

from broker.requests.context import Context, RequestContext
from protocol.api import leave_group as api
from protocol.error_codes import ErrorCode
from storage.disk.steps import Steps, each

_MANY_MEMBERS_SINCE = 3


def handle(
    context: Context, request: RequestContext, message: api.LeaveGroupRequest
) -> Steps[api.LeaveGroupResponse]:
    """Remove the named members."""
    groups = context.groups
    if request.api_version < _MANY_MEMBERS_SINCE:
        error = groups.leave(message.group_id, message.member_id, None)
        return api.LeaveGroupResponse(error_code=error)
    if not message.group_id:
        return api.LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)

    def leave(member: api.MemberIdentity) -> api.MemberResponse:
        instance_id = member.group_instance_id
        return api.MemberResponse(
            member_id=member.member_id,
            group_instance_id=instance_id,
            error_code=groups.leave(message.group_id, member.member_id, instance_id),
        )

    return api.LeaveGroupResponse(members=(yield from each(message.members, leave)))

"""JoinGroup (key 11, versions 0-9): become a member of the group's next generation.

The answer may take as long as the slowest member's rebalance timeout.

A rebalance timeout below 0 is the session timeout, as before v1.

Source: Kafka `GroupCoordinatorService.joinGroup`, `JoinGroupRequest`.
"""

from broker.groups.classic.values import JoinAnswer, JoinRequest
from broker.replies.pending import Pending
from broker.requests.context import Context, RequestContext
from protocol.api import join_group as api

_MEMBER_ID_REQUIRED_SINCE = 4
_NULL_PROTOCOL_NAME_SINCE = 7
_SKIP_ASSIGNMENT_SINCE = 9


def handle(
    context: Context, request: RequestContext, message: api.JoinGroupRequest
) -> Pending[api.JoinGroupResponse]:
    """Join; the answer comes with the next generation, or at once if there is none to wait for."""
    version = request.api_version
    client_id = request.client_id or ""
    rebalance_timeout_ms = message.rebalance_timeout_ms
    join = JoinRequest(
        member_id=message.member_id,
        new_member_id=context.groups.new_member_id(client_id, message.group_instance_id),
        protocol_type=message.protocol_type,
        protocols=tuple((each.name, bytes(each.metadata)) for each in message.protocols),
        session_timeout_ms=message.session_timeout_ms,
        rebalance_timeout_ms=(
            rebalance_timeout_ms if rebalance_timeout_ms >= 0 else message.session_timeout_ms
        ),
        group_instance_id=message.group_instance_id,
        client_id=client_id,
        client_host=request.peer_host,
        requires_known_member_id=version >= _MEMBER_ID_REQUIRED_SINCE,
        supports_skipping_assignment=version >= _SKIP_ASSIGNMENT_SINCE,
    )
    pending: Pending[api.JoinGroupResponse] = Pending()
    context.groups.join(
        message.group_id, join, lambda answer: pending.resolve(_response(answer, version))
    )
    return pending


def _response(answer: JoinAnswer, version: int) -> api.JoinGroupResponse:
    protocol_name = answer.protocol_name
    if protocol_name is None and version < _NULL_PROTOCOL_NAME_SINCE:
        protocol_name = ""
    return api.JoinGroupResponse(
        error_code=answer.error,
        generation_id=answer.generation_id,
        protocol_type=answer.protocol_type,
        protocol_name=protocol_name,
        leader=answer.leader_id,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=[
            api.JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata,
            )
            for member in answer.members
        ],
    )

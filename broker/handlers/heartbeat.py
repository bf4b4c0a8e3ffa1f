"""Heartbeat (key 12, versions 0-4): a member is alive; the answer says whether to join again.

Source: Kafka `GroupCoordinatorService.heartbeat`.
"""

from broker.requests.context import Context, RequestContext
from protocol.api import heartbeat as api


def handle(
    context: Context, request: RequestContext, message: api.HeartbeatRequest
) -> api.HeartbeatResponse:
    """Extend the member's session."""
    error = context.groups.heartbeat(
        message.group_id, message.member_id, message.group_instance_id, message.generation_id
    )
    return api.HeartbeatResponse(error_code=error)

"""FindCoordinator (key 10, versions 0-6): who coordinates a group or a transactional id.

One broker coordinates everything. Versions: v1 key type and message, v3 flexible, v4 many keys,
v6 share groups, which this broker does not have.

Source: Kafka `KafkaApis.handleFindCoordinatorRequest`.
"""

from broker.context import Context, RequestContext
from protocol.api.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from protocol.error_codes import ErrorCode
from storage.steps import Steps, each

_MANY_KEYS_SINCE = 4
_KEY_TYPES = (0, 1)
_NO_NODE = -1


def handle(
    context: Context, request: RequestContext, message: FindCoordinatorRequest
) -> Steps[FindCoordinatorResponse]:
    """This broker, for every key of a kind that it coordinates."""
    endpoint = context.endpoint
    is_known = message.key_type in _KEY_TYPES
    if not is_known:
        text = f"Coordinator key type {message.key_type} is not known to this broker."
        if request.api_version < _MANY_KEYS_SINCE:
            return FindCoordinatorResponse(
                error_code=ErrorCode.INVALID_REQUEST,
                error_message=text,
                node_id=_NO_NODE,
                port=_NO_NODE,
            )
        refused = yield from each(
            message.coordinator_keys,
            lambda key: Coordinator(
                key=key,
                node_id=_NO_NODE,
                port=_NO_NODE,
                error_code=ErrorCode.INVALID_REQUEST,
                error_message=text,
            ),
        )
        return FindCoordinatorResponse(coordinators=refused)
    coordinators = yield from each(
        message.coordinator_keys,
        lambda key: Coordinator(
            key=key,
            node_id=endpoint.node_id,
            host=endpoint.host,
            port=endpoint.port,
            error_message="",
        ),
    )
    return FindCoordinatorResponse(
        error_message="",
        node_id=endpoint.node_id,
        host=endpoint.host,
        port=endpoint.port,
        coordinators=coordinators,
    )

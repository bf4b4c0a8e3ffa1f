"""FindCoordinator (key 10, versions 0-6): the coordinator of a group or a transactional id.

One broker coordinates everything. Without an error, the message of a single key is "NONE", of one
of many keys empty. Versions: v1 key type and message, v3 flexible, v4 many keys, v6 share groups,
which this broker does not have.

Differs from Kafka: a coordinator of share groups is an INVALID_REQUEST in version 6 as well. There
it is COORDINATOR_NOT_AVAILABLE until their topic exists, and clients retry.

Source: Kafka `KafkaApis.handleFindCoordinatorRequest`.
"""

from functools import partial

from broker.requests.context import Context, RequestContext
from protocol.api import find_coordinator as api
from protocol.error_codes import ErrorCode
from storage.disk.steps import Steps, each

_MANY_KEYS_SINCE = 4
_TRANSACTION = 1
_KEY_TYPES = (0, _TRANSACTION)
_NO_NODE = -1


def handle(
    context: Context, request: RequestContext, message: api.FindCoordinatorRequest
) -> Steps[api.FindCoordinatorResponse]:
    """This broker, for every key of a kind that it coordinates."""
    find = partial(_find, context, message.key_type)
    if request.api_version >= _MANY_KEYS_SINCE:
        return api.FindCoordinatorResponse(
            coordinators=(yield from each(message.coordinator_keys, find))
        )
    found = find(message.key)
    return api.FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message or ErrorCode.NONE.name,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _find(context: Context, key_type: int, key: str) -> api.Coordinator:
    if key_type not in _KEY_TYPES:
        text = f"Coordinator key type {key_type} is not known to this broker."
        return _none(key, ErrorCode.INVALID_REQUEST, text)
    coordinator = context.transactions if key_type == _TRANSACTION else context.groups
    if not coordinator.is_available(key):
        text = "The partition that keeps it is quarantined; the broker's log says why."
        return _none(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
    endpoint = context.endpoint
    return api.Coordinator(
        key=key,
        node_id=endpoint.node_id,
        host=endpoint.host,
        port=endpoint.port,
        error_message="",
    )


def _none(key: str, error: ErrorCode, text: str) -> api.Coordinator:
    return api.Coordinator(
        key=key, node_id=_NO_NODE, port=_NO_NODE, error_code=error, error_message=text
    )

"""FindCoordinator (key 10, versions 0-6): the coordinator of a group or a transactional id.

One broker coordinates everything. Without an error, the message of a single key is "NONE", of one
of many keys empty. The key of a share partition is "group:topic id:partition".

Source: Kafka `KafkaApis.handleFindCoordinatorRequest`.
"""

import re
from functools import partial

from broker.requests.context import Context, RequestContext
from protocol.api import find_coordinator as api
from protocol.error_codes import ErrorCode
from storage.disk.steps import Steps, each

_MANY_KEYS_SINCE = 4
_TRANSACTION = 1
_SHARE = 2
_SHARE_SINCE = 6
_KEY_TYPES = (0, _TRANSACTION, _SHARE)
_SHARE_KEY = re.compile(r".+:[A-Za-z0-9_-]{22}:\d+", re.DOTALL)
_NO_NODE = -1


def handle(
    context: Context, request: RequestContext, message: api.FindCoordinatorRequest
) -> Steps[api.FindCoordinatorResponse]:
    """This broker, for every key of a kind that it coordinates."""
    find = partial(_find, context, request.api_version, message.key_type)
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


def _find(context: Context, version: int, key_type: int, key: str) -> api.Coordinator:
    is_share = key_type == _SHARE
    if key_type not in _KEY_TYPES or (is_share and version < _SHARE_SINCE):
        text = f"Coordinator key type {key_type} is not known to this broker."
        return _none(key, ErrorCode.INVALID_REQUEST, text)
    if is_share and _SHARE_KEY.fullmatch(key) is None:
        text = f"The key of a share partition is group:topic id:partition, not {key[:100]!r}."
        return _none(key, ErrorCode.INVALID_REQUEST, text)
    coordinator = context.transactions if key_type == _TRANSACTION else context.groups
    is_available = (
        context.groups.shares.is_available(key) if is_share else coordinator.is_available(key)
    )
    if not is_available:
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

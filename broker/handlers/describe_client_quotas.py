"""DescribeClientQuotas (key 48, versions 0-1): no quotas, because none can be set.

Source: KIP-546; Kafka `ClientQuotaControlManager`.
"""

from broker.requests.context import Context, RequestContext
from protocol.api.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from protocol.error_codes import ErrorCode

_IP = "ip"
_ENTITY_TYPES = ("user", "client-id", _IP)
_MATCH_EXACT, _MATCH_DEFAULT, _MATCH_ANY = 0, 1, 2


def handle(
    context: Context, request: RequestContext, message: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """The quotas that match a filter: none. Clients expect a list, and null for a refusal."""
    seen: set[str] = set()
    for component in message.components:
        complaint = _complaint(component)
        if complaint is None and component.entity_type in seen:
            complaint = f"Entity type {component.entity_type!r} stands in the filter twice."
        if complaint is None and component.entity_type not in _ENTITY_TYPES:
            return DescribeClientQuotasResponse(
                error_code=ErrorCode.UNSUPPORTED_VERSION,
                error_message=f"Entity type {component.entity_type!r} is unknown; "
                f"use one of {', '.join(_ENTITY_TYPES)}.",
                entries=None,
            )
        seen.add(component.entity_type)
        if complaint is None and len(seen) > 1 and _IP in seen:
            complaint = "An ip has no user and no client-id; ask for it alone."
        if complaint is not None:
            return DescribeClientQuotasResponse(
                error_code=ErrorCode.INVALID_REQUEST, error_message=complaint, entries=None
            )
    return DescribeClientQuotasResponse(error_message="", entries=[])


def _complaint(component: ComponentData) -> str | None:
    """The error in one part of the filter by itself, or None."""
    if not component.entity_type:
        return "An entity type is empty."
    if component.match_type == _MATCH_EXACT:
        return "An exact match (type 0) needs a name." if component.match is None else None
    if component.match_type not in (_MATCH_DEFAULT, _MATCH_ANY):
        return f"Match type {component.match_type} is unknown; use 0, 1 or 2."
    if component.match is not None:
        return f"Match type {component.match_type} takes no name."
    return None

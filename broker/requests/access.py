"""What the client of a request may do.

Without an authorizer (`context.security.access` is None) everyone may do everything, at the cost of
one comparison. With one, every question is a dictionary lookup after the first time.

Source: Kafka `AuthHelper`. Read next: `broker.security.acls`.
"""

import logging
from collections.abc import Iterable

from broker.requests.context import Context, RequestContext
from broker.security.acls import CLUSTER_NAME, Operation, ResourceType
from protocol.api_keys import ApiKey

logger = logging.getLogger("tidelog.audit")


def allowed(
    context: Context,
    request: RequestContext,
    operation: Operation,
    resource_type: ResourceType,
    name: str,
) -> bool:
    """Whether the client may do `operation`; a refusal goes to the audit log."""
    access = context.security.access
    if access is None:
        return True
    session = request.session
    if access.allows(session.principal, session.peer_host, operation, resource_type, name):
        return True
    logger.info(
        "%s at %s may not %s %s %r (%s)",
        session.principal,
        session.peer_host,
        operation.name,
        resource_type.name.lower(),
        name,
        ApiKey(request.api_key).name,
    )
    return False


def allowed_on_cluster(context: Context, request: RequestContext, operation: Operation) -> bool:
    """Whether the client may do `operation` on the cluster."""
    return allowed(context, request, operation, ResourceType.CLUSTER, CLUSTER_NAME)


def visible(
    context: Context,
    request: RequestContext,
    operation: Operation,
    resource_type: ResourceType,
    names: Iterable[str],
) -> set[str]:
    """Those of `names` on which the client may do `operation`; refusals are not logged."""
    access = context.security.access
    if access is None:
        return set(names)
    session = request.session
    return {
        name
        for name in names
        if access.allows(session.principal, session.peer_host, operation, resource_type, name)
    }

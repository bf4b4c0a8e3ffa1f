"""What the client of a request may do.

Without an authorizer (`context.security.access` is None) everyone may do everything. With one,
every question is a dictionary lookup after the first time.

Source: Kafka `AuthHelper`.
"""

from collections.abc import Callable
from typing import Final

from broker.requests.context import Context, RequestContext
from broker.security.acls import Decided
from protocol.acl import CLUSTER_NAME, Operation, ResourceType
from protocol.api_keys import ApiKey

_NOTHING_DECIDED: Final[Decided] = {}
_TOPIC: Final = ResourceType.TOPIC


class Check:
    """The rights of one request's client."""

    __slots__ = ("_access", "_decided", "_host", "_principal", "context", "request")

    def __init__(self, context: Context, request: RequestContext) -> None:
        self.context = context
        self.request = request
        self._access = context.security.access
        self._principal = request.session.principal
        self._host = request.session.peer_host
        access = self._access
        self._decided = (
            _NOTHING_DECIDED if access is None else access.decided(self._principal, self._host)
        )

    def sees(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Whether the client has a right; a refusal is not logged, as it only hides something."""
        decided = self._decided.get((operation, resource_type, name))
        if decided is not None:
            return decided
        access = self._access
        return access is None or access.allows(
            self._principal, self._host, operation, resource_type, name
        )

    def may(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Whether the client has a right; a refusal is audited, and the rest at DEBUG."""
        access = self._access
        if access is None:
            return True
        audit, request = self.context.security.audit, self.request
        is_allowed = self.sees(operation, resource_type, name)
        access.allowed += is_allowed
        if is_allowed and not audit.notes_allowed():
            return True
        audit.decided(
            request.session,
            ApiKey(request.api_key).name,
            operation,
            resource_type,
            name,
            is_allowed=is_allowed,
            why=lambda: access.reason_for(
                self._principal, self._host, operation, resource_type, name, is_allowed=is_allowed
            ),
        )
        return is_allowed

    def topic(self, operation: Operation, name: str) -> bool:
        """Whether the client may do `operation` on a topic."""
        # The one on the hot path: a right that is known costs no further call.
        access = self._access
        if access is None:
            return True
        if self._decided.get((operation, _TOPIC, name)):
            access.allowed += 1
            return True
        return self.may(operation, _TOPIC, name)

    def group(self, operation: Operation, name: str) -> bool:
        """Whether the client may do `operation` on a group."""
        return self.may(operation, ResourceType.GROUP, name)

    def transactional_id(self, operation: Operation, name: str | None) -> bool:
        """Whether the client may do `operation` on a transactional id; no id has no rights."""
        return name is not None and self.may(operation, ResourceType.TRANSACTIONAL_ID, name)

    def cluster(self, operation: Operation) -> bool:
        """Whether the client may do `operation` on the cluster."""
        return self.may(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def any_topic(self, operation: Operation) -> bool:
        """Whether there is any topic on which the client may do `operation`."""
        access = self._access
        return access is None or access.allows_any(
            self._principal, self._host, operation, ResourceType.TOPIC
        )

    def sight(self) -> Callable[[str], bool] | None:
        """Whether the client may describe a topic, as a function to keep; None if it sees all."""
        access = self._access
        if access is None:
            return None
        principal, host = self._principal, self._host
        return lambda name: access.allows(
            principal, host, Operation.DESCRIBE, ResourceType.TOPIC, name
        )

    def bits(self, resource_type: ResourceType, name: str) -> int:
        """The operations that the client may do on a resource, as a bit field (KIP-430)."""
        assert self._access is not None
        return self._access.bits(self._principal, self._host, resource_type, name)

"""The audit log: logins, refusals and changes by administrators.

Lines go to the logger `tidelog.audit`, which has a level of its own. Equal refusals are folded: the
first is logged at once, further ones are counted, and the count is on the next line after
`FOLD_MS`. So a client that asks for 100,000 forbidden topics writes one line.

Nothing secret is ever handed to this module: no passwords, tokens or keys, and no names that a
stranger claims.
"""

import logging
from collections.abc import Callable
from typing import Final

from broker.security.session import Session
from protocol.acl import Operation, ResourceType
from protocol.api_keys import ApiKey

logger = logging.getLogger("tidelog.audit")

FOLD_MS: Final = 10_000
_KINDS_MAX: Final = 1_000
_NAME_MAX: Final = 256


class Audit:
    """The audit log of one broker. Loop thread only."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        """Fold equal refusals by the clock `monotonic_ms`."""
        self._monotonic_ms = monotonic_ms
        self._refused: dict[tuple[object, ...], tuple[int, int]] = {}
        self.refusals = 0

    def refused(
        self,
        session: Session,
        api_key: int,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> None:
        """A client may not do something."""
        self.refusals += 1
        kind = (session.principal, session.peer_host, api_key, operation, resource_type)
        now_ms = self._monotonic_ms()
        since_ms, folded = self._refused.get(kind, (now_ms - FOLD_MS, 0))
        if now_ms - since_ms < FOLD_MS:
            self._refused[kind] = (since_ms, folded + 1)
            return
        if len(self._refused) >= _KINDS_MAX:
            self._refused.clear()
        self._refused[kind] = (now_ms, 0)
        logger.info(
            "%s at %s may not %s the %s %r (%s)%s",
            session.principal,
            session.peer_host,
            operation.name,
            resource_type.name.lower().replace("_", " "),
            name[:_NAME_MAX],
            ApiKey(api_key).name,
            f"; {folded} more like it before" if folded else "",
        )

    def showed_certificate(self, session: Session) -> None:
        """A client has logged in with a certificate."""
        logger.info(
            "%s authenticated as %s with a certificate on listener %s",
            session.peer_host,
            session.principal,
            session.listener,
        )

    def refused_certificate(self, peer_host: str, listener: str, reason: Exception) -> None:
        """A certificate that an authority has signed gives no name to its client."""
        logger.warning("%s failed to authenticate on listener %s: %s", peer_host, listener, reason)

    def changed(self, session: Session, what: str) -> None:
        """An administrator has changed something."""
        logger.info("%s at %s %s", session.principal, session.peer_host, what)

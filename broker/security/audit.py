"""The audit log: logins, refusals and changes by administrators.

Lines go to the logger `tidelog.audit`, which has a level of its own. Equal refusals and failed
logins are folded: the first is logged at once, further ones are counted, and the count is on the
next line after `FOLD_MS`. So a client that asks for 100,000 forbidden topics, or tries 100,000
passwords, writes one line in that time.

Nothing secret is ever handed to this module: no passwords, tokens or keys, and no names that a
stranger claims.
"""

import logging
from collections.abc import Callable
from typing import Final

from broker.security.session import Session
from protocol.acl import Operation, ResourceType

logger = logging.getLogger("tidelog.audit")

FOLD_MS: Final = 10_000
_KINDS_MAX: Final = 1_000
_NAME_MAX: Final = 256


class Audit:
    """The audit log of one broker. Loop thread only."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        """Fold equal refusals by the clock `monotonic_ms`."""
        self._monotonic_ms = monotonic_ms
        self._folded: dict[tuple[object, ...], tuple[int, int]] = {}
        self.refusals = 0

    def refused(
        self,
        session: Session,
        api: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> None:
        """A client may not do something; `api` is the name of what it asked."""
        self.refusals += 1
        kind = (session.principal, session.peer_host, api, operation, resource_type)
        suffix = self._suffix(kind)
        if suffix is not None:
            logger.info(
                "%s at %s may not %s the %s %r (%s)%s",
                session.principal,
                session.peer_host,
                operation.name,
                resource_type.name.lower().replace("_", " "),
                name[:_NAME_MAX],
                api,
                suffix,
            )

    def login_failed(
        self, peer_host: str, mechanism: str, listener: str, reason: str, known_user: str = ""
    ) -> None:
        """A client has not proved its identity; it claimed to be `known_user`, if there is one."""
        suffix = self._suffix((peer_host, mechanism, listener, reason, known_user))
        if suffix is not None:
            logger.warning(
                "%s failed to authenticate with %s on listener %s: %s%s%s",
                peer_host,
                mechanism,
                listener,
                reason,
                f" (user {known_user})" if known_user else "",
                suffix,
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

    def _suffix(self, kind: tuple[object, ...]) -> str | None:
        """The end of the line about an event, or None while lines like it are folded."""
        now_ms = self._monotonic_ms()
        since_ms, count = self._folded.get(kind, (now_ms - FOLD_MS, 0))
        if now_ms - since_ms < FOLD_MS:
            self._folded[kind] = (since_ms, count + 1)
            return None
        if len(self._folded) >= _KINDS_MAX:
            self._folded.clear()
        self._folded[kind] = (now_ms, 0)
        return f"; {count} more like it before" if count else ""

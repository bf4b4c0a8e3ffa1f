"""The audit log: logins, refusals and changes by administrators.

Lines go to the logger `tidelog.audit`, which has a level of its own. Equal refusals and failed
logins are folded: the first is logged at once, further ones are counted, and the count is on the
next line after `FOLD_MS`. So a client that asks for 100,000 forbidden topics, or tries 100,000
passwords, writes one line in that time.

Nothing secret is ever handed to this module: no passwords, tokens or keys, and no names that a
stranger claims. Names of certificates and topics may have any character: those that would end the
line, or move or hide text of it, are written as Python escapes.
"""

import logging
from collections.abc import Callable
from typing import Final

from broker.security.session import Session
from protocol.acl import Operation, ResourceType

AUDIT_LOGGER: Final = "tidelog.audit"
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
        self._write_folded(
            logging.INFO,
            kind,
            lambda: (
                f"{session.principal} at {session.peer_host} may not {operation.name} the "
                f"{resource_type.name.lower().replace('_', ' ')} {name[:_NAME_MAX]!r} ({api})"
            ),
        )

    def login_failed(
        self, peer_host: str, mechanism: str, listener: str, reason: str, known_user: str = ""
    ) -> None:
        """A client has not proved its identity; it claimed to be `known_user`, if there is one."""
        claimed = f" (user {known_user})" if known_user else ""
        self._write_folded(
            logging.WARNING,
            (peer_host, mechanism, listener, reason, known_user),
            lambda: (
                f"{peer_host} failed to authenticate with {mechanism} on listener {listener}: "
                f"{reason}{claimed}"
            ),
        )

    def authenticated(self, session: Session, how: str, *, again: bool = False) -> None:
        """A client has logged in, `how` names the mechanism."""
        verb = "authenticated again" if again else "authenticated"
        _write(
            logging.INFO,
            f"{session.peer_host} {verb} as {session.principal} with {how} on listener "
            f"{session.listener}",
        )

    def refused_certificate(self, peer_host: str, listener: str, reason: Exception) -> None:
        """A certificate that an authority has signed gives no name to its client."""
        self._write_folded(
            logging.WARNING,
            (peer_host, listener, str(reason)),
            lambda: f"{peer_host} failed to authenticate on listener {listener}: {reason}",
        )

    def changed(self, session: Session, what: str) -> None:
        """An administrator has changed something."""
        _write(logging.INFO, f"{session.principal} at {session.peer_host} {what}")

    def _write_folded(self, level: int, kind: tuple[object, ...], text: Callable[[], str]) -> None:
        """Write the line about an event, or count it while lines of its kind are folded."""
        now_ms = self._monotonic_ms()
        since_ms, count = self._folded.get(kind, (now_ms - FOLD_MS, 0))
        if now_ms - since_ms < FOLD_MS:
            self._folded[kind] = (since_ms, count + 1)
            return
        if len(self._folded) >= _KINDS_MAX:
            self._folded.clear()
        self._folded[kind] = (now_ms, 0)
        _write(level, text() + (f"; {count} more like it before" if count else ""))


def _write(level: int, line: str) -> None:
    if not line.isprintable():
        line = "".join(char if char.isprintable() else repr(char)[1:-1] for char in line)
    logger.log(level, "%s", line)

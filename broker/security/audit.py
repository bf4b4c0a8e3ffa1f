"""The audit log: logins, refusals and changes by administrators.

Lines go to the logger `tidelog.audit`, which has a level of its own, and with their facts one by
one to `broker.security.audit_file`, if there is such a file. Equal refusals and failed logins are
folded: the first is logged at once, further ones are counted, and the count is on the next line
after `FOLD_MS`. So a client that asks for 100,000 forbidden topics, or tries 100,000 passwords,
writes one line in that time.

Nothing secret is ever handed to this module: no passwords, tokens or keys, and no names that a
stranger claims. Names of certificates and topics may have any character: those that would end the
line, or move or hide text of it, are written as Python escapes.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from broker.quotas.throttle import Request as TimedRequest
from broker.security.audit_file import AuditFile
from broker.security.session import Session
from protocol.acl import Operation, ResourceType
from protocol.api_keys import ApiKey

AUDIT_LOGGER: Final = "tidelog.audit"
logger = logging.getLogger("tidelog.audit")

FOLD_MS: Final = 10_000
_KINDS_MAX: Final = 1_000
_NAME_MAX: Final = 256


class Request(TimedRequest, Protocol):
    """What is asked of `broker.requests.context.RequestContext`."""

    @property
    def session(self) -> Session:
        """Who the client is."""


class Audit:
    """The audit log of one broker. Loop thread only."""

    def __init__(self, monotonic_ms: Callable[[], int], file: AuditFile | None = None) -> None:
        """Fold equal refusals by the clock `monotonic_ms`; write to `file` as well."""
        self._monotonic_ms = monotonic_ms
        self._file = file
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
        self._write_folded(
            logging.INFO,
            (session.principal, session.peer_host, api, operation, resource_type),
            lambda: (
                f"{session.principal} at {session.peer_host} may not {operation.name} the "
                f"{resource_type.name.lower().replace('_', ' ')} {name[:_NAME_MAX]!r} ({api})"
            ),
            lambda: {
                **_who("refused", session),
                "api": api,
                "operation": operation.name,
                "resource_type": resource_type.name,
                "resource": name[:_NAME_MAX],
            },
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
            lambda: {
                **_where("login failed", peer_host, listener),
                "mechanism": mechanism,
                "reason": reason,
                **({"user": known_user} if known_user else {}),
            },
        )

    def authenticated(self, session: Session, how: str, *, again: bool = False) -> None:
        """A client has logged in, `how` names the mechanism."""
        verb = "authenticated again" if again else "authenticated"
        self._write(
            logging.INFO,
            f"{session.peer_host} {verb} as {session.principal} with {how} on listener "
            f"{session.listener}",
            {**_who("login", session), "mechanism": how.removeprefix("a "), "again": again},
        )

    def refused_certificate(self, peer_host: str, listener: str, reason: Exception) -> None:
        """A certificate that an authority has signed gives no name to its client."""
        self._write_folded(
            logging.WARNING,
            (peer_host, listener, str(reason)),
            lambda: f"{peer_host} failed to authenticate on listener {listener}: {reason}",
            lambda: {
                **_where("login failed", peer_host, listener),
                "mechanism": "certificate",
                "reason": str(reason),
            },
        )

    def changed(self, request: Request, what: str) -> None:
        """An administrator has changed something."""
        session = request.session
        fields = {
            **_who("changed", session),
            "client_id": (request.client_id or "")[:_NAME_MAX],
            "api": ApiKey(request.api_key).name,
            "what": what,
        }
        line = f"{session.principal} at {session.peer_host} {what}"
        self._write(logging.INFO, line, fields, is_kept=True)

    def reloaded(self, what: str) -> None:
        """The operator has had the settings and their files read again."""
        fields = {"event": "reloaded", "what": what}
        self._write(logging.INFO, f"SIGHUP: {what}", fields, is_kept=True)

    @property
    def lost(self) -> int:
        """Lines that are missing in the file."""
        return 0 if self._file is None else self._file.lost

    def reopen(self) -> None:
        """Append to the file that has the path now."""
        if self._file is not None:
            self._file.reopen()

    def close(self) -> None:
        """Write the rest to the file, and close it."""
        if self._file is not None:
            self._file.close()

    def _write_folded(
        self,
        level: int,
        kind: tuple[object, ...],
        text: Callable[[], str],
        fields: Callable[[], dict[str, Any]],
    ) -> None:
        """Write the line about an event, or count it while lines of its kind are folded."""
        now_ms = self._monotonic_ms()
        since_ms, count = self._folded.get(kind, (now_ms - FOLD_MS, 0))
        if now_ms - since_ms < FOLD_MS:
            self._folded[kind] = (since_ms, count + 1)
            return
        if len(self._folded) >= _KINDS_MAX:
            self._folded.clear()
        self._folded[kind] = (now_ms, 0)
        more = f"; {count} more like it before" if count else ""
        self._write(level, text() + more, {**fields(), "more_before": count})

    def _write(
        self, level: int, line: str, fields: Mapping[str, Any], *, is_kept: bool = False
    ) -> None:
        if not line.isprintable():
            line = "".join(char if char.isprintable() else repr(char)[1:-1] for char in line)
        logger.log(level, "%s", line)
        if self._file is not None:
            self._file.write(fields, is_kept=is_kept)


def _where(event: str, peer_host: str, listener: str) -> dict[str, Any]:
    return {"event": event, "host": peer_host, "listener": listener}


def _who(event: str, session: Session) -> dict[str, Any]:
    where = _where(event, session.peer_host, session.listener)
    return {**where, "principal": str(session.principal)}

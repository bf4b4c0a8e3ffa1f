"""The audit log: logins, refusals and changes by administrators.

Lines go to the logger `tidelog.audit`, which has a level of its own, and with their facts one by
one to `broker.security.audit_file`, if there is such a file. What strangers can repeat at will is
folded: the first of equal events is logged at once, further ones are counted, and the last of them
is logged with the count when the time of the event is over. So a client that asks for 100,000
forbidden topics, or tries 100,000 passwords, writes two lines.

| event                          | equal are those of                           | for            |
|--------------------------------|----------------------------------------------|----------------|
| a refusal                      | principal, address, API, operation, type     | `FOLD_MS`      |
| a right that is there, DEBUG   | the same, and the name of the resource       | `FOLD_MS`      |
| a failed login                 | address, listener, mechanism, reason, user   | `FOLD_MS`      |
| a failed handshake of TLS      | the broker                                   | `STRANGERS_MS` |
| a refused connection           | the broker                                   | `STRANGERS_MS` |
| refused records                | principal, address, topic, error             | `FOLD_MS`      |
| a client over its quota        | the entity and the key of the quota          | `QUOTA_MS`     |

Of each event at most `KINDS_MAX` kinds are distinguished at once; more are equal to each other. So
an attacker with many addresses or names cannot fill the disk either.

Nothing secret is ever handed to this module: no passwords, tokens or keys, and no names that a
stranger claims. Names of certificates and topics may have any character: those that would end the
line, or move or hide text of it, are written as Python escapes.
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from broker.quotas.throttle import Excess
from broker.quotas.throttle import Request as TimedRequest
from broker.security.audit_file import AuditFile
from broker.security.session import NO_SOFTWARE, Session
from protocol.acl import Operation, ResourceType
from protocol.api_keys import ApiKey
from values.dataclasses import dataclass

if TYPE_CHECKING:
    from broker.clocks.clock import Clock
    from broker.security.tls.certificate import Certificate

AUDIT_LOGGER: Final = "tidelog.audit"
logger = logging.getLogger("tidelog.audit")

FOLD_MS: Final = 10_000
STRANGERS_MS: Final = 1_000
QUOTA_MS: Final = 60_000
KINDS_MAX: Final = 100
_NAME_MAX: Final = 256
_REASON_MAX: Final = 512
_DECISIONS: Final = {"refused": (logging.INFO, "may not"), "allowed": (logging.DEBUG, "may")}
"""The level and the verb of the events about rights."""

_CERTIFICATES: Final = {
    "replaced": "uses the certificate of {subject} with the SHA-256 {fingerprint} until "
    "{not_after}",
    "read again": "has read its stores again, it uses the same certificate of {subject} with the "
    "SHA-256 {fingerprint}",
    "kept": "keeps the certificate with the SHA-256 {fingerprint}: {reason}",
}
"""What became of a listener's certificate, in words."""


class Request(TimedRequest, Protocol):
    """What is asked of `broker.requests.context.RequestContext`."""

    @property
    def session(self) -> Session:
        """Who the client is."""


@dataclass(slots=True)
class _Fold:
    """Equal events: the last one, and how many there were after the one that was logged."""

    level: int
    text: Callable[[], str]
    fields: Callable[[], dict[str, Any]]
    asks_rules: bool = False
    """Whether the fields have a rule, which is looked for when they are written."""
    count: int = 0


class Audit:
    """The audit log of one broker. Loop thread only."""

    def __init__(self, clock: "Clock", file: AuditFile | None = None) -> None:
        """Fold equal events by `clock`; write to `file` as well."""
        self._clock = clock
        self._file = file
        self._folds: dict[tuple[str, object], _Fold] = {}
        self._kinds: Counter[str] = Counter()
        self.refusals = 0

    def notes_allowed(self) -> bool:
        """Whether what clients may do is noted as well: the level of the logger is DEBUG."""
        return logger.isEnabledFor(logging.DEBUG)

    def decided(
        self,
        session: Session,
        api: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
        *,
        is_allowed: bool,
        why: Callable[[], str] | None = None,
    ) -> None:
        """A client may or may not do something.

        Args:
            session: who the client is.
            api: the name of what it asked.
            operation: what it wants to do with the resource.
            resource_type: the type of the resource.
            name: the name of the resource.
            is_allowed: whether it may.
            why: the rule.
        """
        event = "allowed" if is_allowed else "refused"
        self.refusals += not is_allowed
        kind: tuple[object, ...]
        kind = session.principal, session.peer_host, api, operation, resource_type
        if is_allowed:
            kind = (*kind, name)
        level, verb = _DECISIONS[event]
        self._fold(
            level,
            event,
            kind,
            FOLD_MS,
            lambda: (
                f"{session.principal} at {session.peer_host} {verb} {operation.name} the "
                f"{resource_type.name.lower().replace('_', ' ')} {name[:_NAME_MAX]!r} ({api})"
            ),
            lambda: {
                **_who(event, session),
                "api": api,
                "operation": operation.name,
                "resource_type": resource_type.name,
                "resource": name[:_NAME_MAX],
                **({"rule": why()} if why is not None else {}),
            },
            asks_rules=why is not None,
        )

    def login_failed(
        self,
        peer_host: str,
        mechanism: str,
        listener: str,
        reason: str,
        known_user: str = "",
        client_id: str = "",
    ) -> None:
        """A client has not proved its identity; it claimed to be `known_user`, if there is one."""
        claimed = f" (user {known_user})" if known_user else ""
        self._fold(
            logging.WARNING,
            "login failed",
            (peer_host, mechanism, listener, reason, known_user),
            FOLD_MS,
            lambda: (
                f"{peer_host} failed to authenticate with {mechanism} on listener {listener}: "
                f"{reason}{claimed}"
            ),
            lambda: {
                **_where("login failed", peer_host, listener),
                "mechanism": mechanism,
                "reason": reason,
                **({"user": known_user} if known_user else {}),
                **({"client_id": client_id[:_NAME_MAX]} if client_id else {}),
            },
        )

    def authenticated(self, session: Session, how: str, *, again: bool = False) -> None:
        """A client has logged in, `how` names the mechanism."""
        verb = "authenticated again" if again else "authenticated"
        client = f" (client id {session.client_id[:_NAME_MAX]!r})" if session.client_id else ""
        self._write(
            logging.INFO,
            f"{session.peer_host} {verb} as {session.principal} with {how} on listener "
            f"{session.listener}{client}",
            {**_who("login", session), "mechanism": how.removeprefix("a "), "again": again},
        )

    def refused_certificate(self, peer_host: str, listener: str, reason: Exception) -> None:
        """A certificate that an authority has signed gives no name to its client."""
        self._fold(
            logging.WARNING,
            "login failed",
            (peer_host, listener, str(reason)),
            FOLD_MS,
            lambda: f"{peer_host} failed to authenticate on listener {listener}: {reason}",
            lambda: {
                **_where("login failed", peer_host, listener),
                "mechanism": "certificate",
                "reason": str(reason),
            },
        )

    def handshake_failed(self, peer_host: str, listener: str, reason: object) -> None:
        """A client has not got as far as a TLS connection."""
        reason = str(reason)[:_NAME_MAX] or "end of stream"
        self._fold(
            logging.INFO,
            "handshake failed",
            None,
            STRANGERS_MS,
            lambda: f"TLS handshake with {peer_host} on listener {listener} failed: {reason}",
            lambda: {**_where("handshake failed", peer_host, listener), "reason": reason},
        )

    def connection_refused(self, peer_host: str, listener: str, limit: str) -> None:
        """A client was not served because of a limit of connections."""
        self._fold(
            logging.INFO,
            "connection refused",
            None,
            STRANGERS_MS,
            lambda: f"refused a connection of {peer_host} on listener {listener}: {limit}",
            lambda: {**_where("connection refused", peer_host, listener), "limit": limit},
        )

    def throttled(self, excess: Excess, delay_ms: int) -> None:
        """A client is over a quota and has to wait."""
        entity = {kind: name[:_NAME_MAX] for kind, name in excess.entity}
        words = ", ".join(f"{kind} {name!r}" for kind, name in entity.items())
        self._fold(
            logging.INFO,
            "throttled",
            (excess.key, excess.entity),
            QUOTA_MS,
            lambda: (
                f"{words} is over {excess.key} = {excess.bound:g} with {excess.rate:.6g} and waits "
                f"{delay_ms} ms"
            ),
            lambda: {
                "event": "throttled",
                "entity": entity,
                "key": excess.key,
                "bound": excess.bound,
                "rate": round(excess.rate, 3),
                "delay_ms": delay_ms,
            },
        )

    def append_refused(
        self, request: Request, topic: str, partition: int, error: str, reason: str
    ) -> None:
        """Records of a client were not appended."""
        session, client_id = request.session, (request.client_id or "")[:_NAME_MAX]
        reason = reason[:_REASON_MAX]
        self._fold(
            logging.INFO,
            "append refused",
            (session.principal, session.peer_host, topic, error),
            FOLD_MS,
            lambda: (
                f"{session.principal} at {session.peer_host} ({client_id!r}): records for "
                f"partition {partition} of {topic[:_NAME_MAX]!r} refused with {error}: {reason}"
            ),
            lambda: {
                **_who("append refused", session),
                "client_id": client_id,
                "topic": topic[:_NAME_MAX],
                "partition": partition,
                "error": error,
                "reason": reason,
            },
        )

    def certificate(self, outcome: str, listener: str, shown: "Certificate", why: str = "") -> None:
        """A listener's key and certificate are `replaced`, `read again` as they were, or `kept`.

        The last since what was read cannot be used; `why` says the reason.
        """
        moment = datetime.fromtimestamp(shown.not_after_ms / 1000, UTC)
        fields = {
            "event": f"certificate {outcome}",
            "listener": listener,
            "subject": shown.subject,
            "fingerprint": shown.fingerprint,
            "not_after": moment.isoformat(timespec="seconds").replace("+00:00", "Z"),
            **({"reason": why} if why else {}),
        }
        level = logging.WARNING if why else logging.INFO
        line = f"listener {listener} {_CERTIFICATES[outcome].format(**fields)}"
        self._write(level, line, fields, is_kept=True)

    def changed(self, request: Request, what: str) -> None:
        """An administrator has changed something."""
        client_id = (request.client_id or "")[:_NAME_MAX]
        more = {"client_id": client_id, "api": ApiKey(request.api_key).name}
        self._changed(request.session, more, what)

    def changed_by_http(self, session: Session, what: str) -> None:
        """An administrator has changed something over the metrics port."""
        self._changed(session, {"api": "HTTP"}, what)

    def _changed(self, session: Session, more: Mapping[str, str], what: str) -> None:
        fields = {**_who("changed", session), **more, "what": what}
        line = f"{session.principal} at {session.peer_host} {what}"
        self._write(logging.INFO, line, fields, is_kept=True)

    def reloaded(self, what: str) -> None:
        """The operator has had the settings and their files read again."""
        fields = {"event": "reloaded", "what": what}
        self._write(logging.INFO, f"the configuration is reloaded: {what}", fields, is_kept=True)

    @property
    def lost(self) -> int:
        """Lines that are missing in the file."""
        return 0 if self._file is None else self._file.lost

    def reopen(self) -> None:
        """Append to the file that has the path now."""
        if self._file is not None:
            self._file.reopen()

    def settle_rules(self) -> None:
        """Find the rules of what is folded now: they are about to change."""
        for fold in self._folds.values():
            if fold.count and fold.asks_rules:
                fields = fold.fields()
                fold.fields, fold.asks_rules = fields.copy, False

    def write_folded(self) -> None:
        """Write what is folded now, without waiting for its time."""
        for fold in self._folds.values():
            if fold.count:
                self._write_last(fold)

    def close(self) -> None:
        """Write what is folded, and the rest to the file, and close it."""
        self.write_folded()
        self._folds.clear()
        if self._file is not None:
            self._file.close()

    def _fold(
        self,
        level: int,
        event: str,
        kind: object,
        fold_ms: int,
        text: Callable[[], str],
        fields: Callable[[], dict[str, Any]],
        *,
        asks_rules: bool = False,
    ) -> None:
        """Write the line about an event, or count it while events of its kind are folded."""
        key = event, kind
        fold = self._folds.get(key)
        if fold is None and self._kinds[event] >= KINDS_MAX:
            key = event, _OTHERS
            fold = self._folds.get(key)
        if fold is not None:
            fold.level, fold.text, fold.fields = level, text, fields
            fold.asks_rules = asks_rules
            fold.count += 1
            return
        self._folds[key] = _Fold(level, text, fields)
        self._kinds[event] += 1
        self._clock.call_later(fold_ms, partial(self._unfold, key, fold_ms))
        self._write(level, text(), {**fields(), "more_before": 0})

    def _unfold(self, key: tuple[str, object], fold_ms: int) -> None:
        """Write the last one of the events that were folded, and fold further ones."""
        fold = self._folds.get(key)
        if fold is None:
            return
        if fold.count:
            self._write_last(fold)
            self._clock.call_later(fold_ms, partial(self._unfold, key, fold_ms))
        else:
            del self._folds[key]
            self._kinds[key[0]] -= 1

    def _write_last(self, fold: _Fold) -> None:
        more, fold.count = fold.count - 1, 0
        line = f"{fold.text()}; {more} more like it before" if more else fold.text()
        self._write(fold.level, line, {**fold.fields(), "more_before": more})

    def _write(
        self, level: int, line: str, fields: Mapping[str, Any], *, is_kept: bool = False
    ) -> None:
        if not line.isprintable():
            line = "".join(char if char.isprintable() else repr(char)[1:-1] for char in line)
        logger.log(level, "%s", line)
        if self._file is not None:
            self._file.write(fields, is_kept=is_kept)


_OTHERS: Final = object()
"""The kind of all events above `KINDS_MAX`."""


def _where(event: str, peer_host: str, listener: str) -> dict[str, Any]:
    return {"event": event, "host": peer_host, "listener": listener}


def _who(event: str, session: Session) -> dict[str, Any]:
    where = _where(event, session.peer_host, session.listener)
    if session.connection_id:
        where["connection"] = session.connection_id
    if session.tls:
        where["tls"] = session.tls
    if session.client_id:
        where["client_id"] = session.client_id[:_NAME_MAX]
    if session.software != NO_SOFTWARE:
        where["software"] = " ".join(session.software)[:_NAME_MAX]
    return {**where, "principal": str(session.principal)}

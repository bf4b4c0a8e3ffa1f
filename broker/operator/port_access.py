"""Who asks on the metrics port, and what that client may see.

| `metrics.auth`          | the client is                    | it may see            |
|-------------------------|----------------------------------|-----------------------|
| none, port on loopback  | anonymous                        | everything            |
| none, port on a network | anonymous                        | figures without names |
| basic                   | a user with SCRAM credentials    | what the rules allow  |
| bearer                  | `User:metrics`                   | what the rules allow  |
| any, with a certificate | the principal of the certificate | what the rules allow  |

Under the rules /metrics needs DESCRIBE on the cluster, which also lets a client list topics, groups
and directories in Kafka's protocol, and a question about a topic needs DESCRIBE on it: the answer
is the same whether there is such a topic. Without an authorizer every user may see everything. On
a trusted network (`insecure.allow`) without an authorizer anonymous clients see everything too.

A name and password are checked as by the mechanism PLAIN, one at a time in another thread. The
answer to a failure waits as in SASL.

Source: RFC 7617, RFC 6750; docs/security.md. Read next: `broker.operator.http`.
"""

import asyncio
import base64
import binascii
import hmac
from typing import TYPE_CHECKING, Final, NamedTuple

from broker.errors import StartError
from broker.principal import ANONYMOUS, Principal, user
from broker.security.mechanism import AuthenticationFailed
from broker.security.secret_files import reveal
from broker.security.session import Session
from broker.security.tls.distinguished_name import MalformedName
from broker.security.tls.principal_mapping import NoRuleMatches
from config.listeners import METRICS
from config.security.keys import METRICS_TOKEN
from config.values import InvalidValue, Secret
from protocol.acl import CLUSTER_NAME, Operation, ResourceType
from values.dataclasses import dataclass

if TYPE_CHECKING:
    from broker.metrics import Metrics
    from broker.security.service import ListenerGuard, Security
    from broker.threads import Pool
    from config import BrokerConfig, Listener

TOKEN_USER: Final = "metrics"
"""The user for whom the token of `metrics.auth=bearer` stands."""

CLOSED: Final = (
    "this port shows no names to clients that it does not know; set metrics.auth to basic or "
    "bearer, or metrics.listener to 127.0.0.1:9464"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A request to the port, and what it says about its sender.

    Attributes:
        target: the path, with its query.
        method: GET, HEAD or POST.
        is_command: whether it has the header X-Tidelog-Command, or X-Tidelog-Clock of older
            clients; no page of a browser sends them.
        host: the Host header; None where HTTP/1.0 has none.
        authorization: the Authorization header.
        peer_host: the address of the client.
        certificate: the client's certificate (DER), or None.
    """

    target: str
    method: str = "GET"
    is_command: bool = False
    host: str | None = None
    authorization: bytes = b""
    peer_host: str = ""
    certificate: bytes | None = None

    def __repr__(self) -> str:
        """Never the header with the secret."""
        return f"Question({self.target!r} of {self.peer_host})"


class Viewer(NamedTuple):
    """A client of the port, with its rights; none is asked for if it `sees_all`."""

    security: "Security"
    session: Session
    sees_all: bool = False

    @property
    def is_unknown(self) -> bool:
        """Whether this is an anonymous client on a port that shows such clients no names."""
        return self.session.principal is ANONYMOUS and not self.sees_all

    def refusal_of_cluster(self) -> str | None:
        """Why the figures of the whole broker stay hidden, or None."""
        return self._refusal(ResourceType.CLUSTER, CLUSTER_NAME, "--cluster")

    def refusal_of_command(self) -> str | None:
        """Why the client may change nothing of the broker, or None."""
        operation = Operation.ALTER
        return self._refusal(ResourceType.CLUSTER, CLUSTER_NAME, "--cluster", operation)

    def refusal_of_topic(self, topic: str) -> str | None:
        """Why what is asked about `topic` stays hidden, or None; it need not exist."""
        access = self.security.access
        source = topic if access is None else access.source_of(topic)  # a window has no own rules
        return self._refusal(ResourceType.TOPIC, topic, f"--topic {source}")

    def note_change(self, what: str) -> None:
        """Note that the client has changed something of the broker."""
        self.security.audit.changed_by_http(self.session, what)

    def _refusal(
        self,
        resource_type: ResourceType,
        name: str,
        option: str,
        operation: Operation = Operation.DESCRIBE,
    ) -> str | None:
        if self.sees_all:
            return None
        if self.is_unknown:
            return CLOSED
        session, access, audit = self.session, self.security.access, self.security.audit
        if access is None:
            return None
        host = session.peer_host
        is_allowed = access.allows(session.principal, host, operation, resource_type, name)
        access.allowed += is_allowed
        if not is_allowed or audit.notes_allowed():
            audit.decided(
                session,
                "HTTP",
                operation,
                resource_type,
                name,
                is_allowed=is_allowed,
                why=lambda: access.reason_for(
                    session.principal, host, operation, resource_type, name, is_allowed=is_allowed
                ),
            )
        if is_allowed:
            return None
        what = resource_type.name.lower()
        return (
            f"{session.principal} may not {operation.name} the {what} {name!r}; "
            "an admin can grant it: "
            f"tidelog acl add --user {session.principal.name} "
            f"--op {operation.name.lower()} {option}"
        )


class PortAccess:
    """Finds out who sends a request to the metrics port. Loop thread only."""

    def __init__(
        self,
        config: "BrokerConfig",
        listener: "Listener",
        security: "Security",
        guard: "ListenerGuard | None",
        metrics: "Metrics",
        side: "Pool",
    ) -> None:
        """Ask as `config` says; `guard` names the users of certificates on a TLS port.

        Raises:
            StartError: the token cannot be read.
        """
        self.is_loopback = listener.is_loopback
        self._auth = config.metrics_auth
        self._security = security
        self._guard = guard
        self._metrics = metrics
        self._side = side
        self._one_at_a_time = asyncio.Lock()
        self.shows_names = self._auth == "none" and (
            listener.is_loopback or (security.access is None and config.insecure_allow)
        )
        """Whether anonymous clients see everything."""
        self._token = config.secrets.get(METRICS_TOKEN, Secret(""))
        if self._auth == "bearer":
            try:
                self._read_token()
            except AuthenticationFailed as error:
                raise StartError(
                    f"{METRICS_TOKEN} cannot be used: {error.__cause__ or 'it is empty'}",
                    "write the token into the file that it names, readable by this user alone",
                ) from error

    @property
    def challenge(self) -> str:
        """The WWW-Authenticate header for a client that has to prove who it is."""
        return 'Bearer realm="tidelog"' if self._auth == "bearer" else 'Basic realm="tidelog"'

    async def viewer(self, question: Question) -> Viewer | None:
        """Who asks; None when the client has to prove that first."""
        host = question.peer_host
        try:
            session = Session(listener=METRICS, peer_host=host)
            if self._guard is not None:
                session = self._guard.session(host, question.certificate)
            if session.principal is ANONYMOUS and self._auth != "none":
                if not question.authorization:
                    return None
                principal = await self._prove(question.authorization)
                session = Session(listener=METRICS, peer_host=host, principal=principal)
        except (AuthenticationFailed, MalformedName, NoRuleMatches) as error:
            self._count("failed")
            if isinstance(error, AuthenticationFailed):  # else the guard has noted it
                self._security.audit.login_failed(host, self._auth, METRICS, error.reason)
            await asyncio.sleep(self._security.failures.count(host) / 1000)
            return None
        if session.principal is ANONYMOUS:
            return Viewer(self._security, session, sees_all=self.shows_names)
        self._count("ok")
        return Viewer(self._security, session)

    async def _prove(self, authorization: bytes) -> Principal:
        """The principal of an Authorization header.

        Raises:
            AuthenticationFailed: it proves nothing.
        """
        scheme, _, rest = authorization.partition(b" ")
        if scheme.lower() != self._auth.encode():
            raise AuthenticationFailed("mechanism")
        async with self._one_at_a_time:
            check = self._check_token if self._auth == "bearer" else self._check_password
            return await self._side.run(lambda: check(rest.strip()))

    def _check_token(self, sent: bytes) -> Principal:
        if not hmac.compare_digest(sent, self._read_token()):
            raise AuthenticationFailed("credentials")
        return user(TOKEN_USER)

    def _check_password(self, sent: bytes) -> Principal:
        try:
            name, colon, password = base64.b64decode(sent, validate=True).partition(b":")
        except binascii.Error:
            raise AuthenticationFailed("malformed") from None
        if not colon:
            raise AuthenticationFailed("malformed")
        step = self._security.exchange_maker("PLAIN")().step(b"\0%b\0%b" % (name, password))
        assert step.principal is not None
        return step.principal

    def _read_token(self) -> bytes:
        try:
            token = reveal(self._token).strip().encode()
        except (OSError, InvalidValue) as error:
            raise AuthenticationFailed("no-token") from error
        if not token:
            raise AuthenticationFailed("no-token")
        return token

    def _count(self, result: str) -> None:
        self._metrics.authentications[METRICS, self._auth.upper(), result] += 1

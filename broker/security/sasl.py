"""The states of a connection on a SASL listener: what may be asked, and what that leads to.

    START --ApiVersions--> VERSIONS --SaslHandshake v1--> FRAMED --SaslAuthenticate--> DONE
    START or VERSIONS ----------------SaslHandshake v0--> RAW -------bare tokens-----> DONE
    DONE, when sessions have a lifetime: --SaslHandshake v1--> FRAMED

This machine sees keys, mechanism names and tokens, never frames, and no clock: the time is an
argument, in milliseconds of a monotonic clock for sessions and of the wall clock for credentials.

| state           | request                        | consequence                      |
|-----------------|--------------------------------|----------------------------------|
| START           | ApiVersions, SaslHandshake     | served                           |
| VERSIONS        | SaslHandshake                  | served                           |
| START, VERSIONS | anything else                  | closed without an answer         |
| FRAMED          | SaslAuthenticate               | the next token                   |
| FRAMED          | anything else                  | ILLEGAL_SASL_STATE, then closed  |
| RAW             | any bytes                      | the next token                   |
| DONE            | after the session's lifetime   | closed, but SaslHandshake served |

Only ApiVersions requests that are answered without an error count: clients whose first version is
unknown here ask again. While a client authenticates again its former principal stays in force.

Source: KIP-43, KIP-152, KIP-368; Kafka `SaslServerAuthenticator`.
"""

import enum
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from broker.principal import ANONYMOUS, Principal
from broker.security.mechanism import TOKENS_MAX, AuthenticationFailed, SaslExchange, Step
from protocol.api_keys import ApiKey
from protocol.error_codes import ErrorCode
from values.dataclasses import dataclass

REAUTHENTICATION_INTERVAL_MS: Final = 1000
"""A second re-authentication within this time is refused."""


class SaslState(enum.Enum):
    """What the connection waits for."""

    START = enum.auto()
    VERSIONS = enum.auto()
    FRAMED = enum.auto()
    RAW = enum.auto()
    DONE = enum.auto()


class Admission(enum.Enum):
    """What becomes of a request before it is looked at."""

    SERVE = enum.auto()
    CLOSE = enum.auto()
    ILLEGAL_STATE = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Authenticated:
    """The end of an exchange, or one more token.

    Attributes:
        token: the bytes for the client.
        is_done: whether the client is authenticated now.
        session_lifetime_ms: the time until it has to authenticate again; 0 for never.
        elapsed_ms: the time since the handshake.
    """

    token: bytes
    is_done: bool
    session_lifetime_ms: int = 0
    elapsed_ms: int = 0


class SaslSession:
    """The authentication of one connection."""

    def __init__(
        self,
        mechanisms: Mapping[str, Callable[[], SaslExchange]],
        *,
        max_reauth_ms: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Offer `mechanisms`; sessions end after the time for their mechanism, 0 for never."""
        self.state = SaslState.START
        self.principal: Principal = ANONYMOUS
        self.mechanism = ""
        self.is_by_token = False
        """Whether the client has proved itself with a delegation token."""
        self.exchange: SaslExchange | None = None
        self._mechanisms = mechanisms
        self._max_reauth_ms = max_reauth_ms
        self._tokens = 0
        self._began_ms = 0
        self._expires_ms: int | None = None
        self._reauthenticated_ms: int | None = None

    @property
    def is_authenticated(self) -> bool:
        """Whether a principal is proved; stays so while the client authenticates again."""
        return self.principal is not ANONYMOUS

    @property
    def has_lifetime(self) -> bool:
        """Whether the client has to authenticate again."""
        return self._expires_ms is not None

    @property
    def mechanisms(self) -> list[str]:
        """The names of the mechanisms on offer."""
        return list(self._mechanisms)

    def admit(self, api_key: int, now_ms: int) -> Admission:
        """Whether a request may be served in this state."""
        state = self.state
        if state is SaslState.DONE:
            expired = self._expires_ms is not None and now_ms > self._expires_ms
            if expired and api_key != ApiKey.SASL_HANDSHAKE:
                return Admission.CLOSE
            return Admission.SERVE
        if state is SaslState.FRAMED:
            is_token = api_key == ApiKey.SASL_AUTHENTICATE
            return Admission.SERVE if is_token else Admission.ILLEGAL_STATE
        asks_versions = api_key == ApiKey.API_VERSIONS and state is SaslState.START
        if asks_versions or api_key == ApiKey.SASL_HANDSHAKE:
            return Admission.SERVE
        return Admission.CLOSE

    def versions_answered(self) -> None:
        """An ApiVersions request was answered without an error: it was the only one."""
        if self.state is SaslState.START:
            self.state = SaslState.VERSIONS

    def handshake(self, mechanism: str, version: int, now_ms: int) -> int:
        """Begin an exchange; the error code of the answer.

        ILLEGAL_SASL_STATE leaves the connection as it is. After UNSUPPORTED_SASL_MECHANISM it
        closes.

        Raises:
            AuthenticationFailed: a re-authentication that may not be; close without an answer.
        """
        if self.is_authenticated:
            too_soon = (
                self._reauthenticated_ms is not None
                and now_ms - self._reauthenticated_ms < REAUTHENTICATION_INTERVAL_MS
            )
            if not self.has_lifetime or too_soon:
                return ErrorCode.ILLEGAL_SASL_STATE
            if mechanism != self.mechanism or version == 0:
                raise AuthenticationFailed("mechanism-changed")
        make = self._mechanisms.get(mechanism)
        if make is None:
            return ErrorCode.UNSUPPORTED_SASL_MECHANISM
        self.mechanism = mechanism
        self.exchange = make()
        self._tokens = 0
        self._began_ms = now_ms
        self.state = SaslState.RAW if version == 0 else SaslState.FRAMED
        return ErrorCode.NONE

    def begin_token(self) -> SaslExchange:
        """Count one more token; the exchange whose `step` takes it.

        Raises:
            AuthenticationFailed: too many of them.
        """
        assert self.exchange is not None
        self._tokens += 1
        if self._tokens > TOKENS_MAX:
            raise AuthenticationFailed("too-many-tokens")
        return self.exchange

    def stepped(self, step: Step, *, now_ms: int, wall_ms: int) -> Authenticated:
        """Take over the result of the exchange's step.

        Raises:
            AuthenticationFailed: another principal than before, or an expired credential.
        """
        if step.principal is None:
            return Authenticated(token=step.token, is_done=False)
        if self.is_authenticated and step.principal != self.principal:
            raise AuthenticationFailed(
                "principal-changed",
                "Cannot change principals during re-authentication from "
                f"{self.principal.type}.{self.principal.name}: "
                f"{step.principal.type}.{step.principal.name}",
            )
        lifetime_ms = self._lifetime_ms(step, wall_ms)
        if self.is_authenticated:
            self._reauthenticated_ms = now_ms
        self.principal = step.principal
        self.is_by_token = step.is_by_token
        self.state = SaslState.DONE
        self.exchange = None
        self._expires_ms = now_ms + lifetime_ms if lifetime_ms else None
        return Authenticated(
            token=step.token,
            is_done=True,
            session_lifetime_ms=lifetime_ms,
            elapsed_ms=now_ms - self._began_ms,
        )

    def _lifetime_ms(self, step: Step, wall_ms: int) -> int:
        max_reauth_ms = self._max_reauth_ms.get(self.mechanism, 0)
        bounds = [max_reauth_ms] if max_reauth_ms else []
        if step.expires_ms is not None:
            rest_ms = step.expires_ms - wall_ms
            if rest_ms <= 0:
                raise AuthenticationFailed("expired")
            bounds.append(rest_ms)
        return min(bounds, default=0)

    def failure_text(self, error: AuthenticationFailed) -> str:
        """The message for the client whose authentication failed."""
        if error.message is not None:
            return error.message
        during = "re-authentication" if self.is_authenticated else "authentication"
        return (
            f"Authentication failed during {during} due to invalid credentials "
            f"with SASL mechanism {self.mechanism}"
        )

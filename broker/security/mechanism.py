"""SASL mechanisms: the interface of one exchange, and what it may answer.

An exchange is a state machine without I/O. It gets each token of the client and returns a `Step`.
It raises `AuthenticationFailed` when the client has not proved who it is. The message goes to the
client, so it never depends on whether a user exists.

Source: RFC 4422; Kafka `SaslServerAuthenticator`.
"""

from typing import Final, Protocol

from broker.principal import Principal
from values.dataclasses import dataclass

TOKENS_MAX: Final = 8
"""Tokens of one exchange; SCRAM needs two, GSSAPI a few more."""


class AuthenticationFailed(Exception):
    """The client has not proved its identity.

    Attributes:
        reason: one word for the audit log and metrics; never sent to the client.
        message: a text for the client, or None for the text that is the same for all causes.
        is_noted: whether an earlier `Step.refusal` has reported it already.
    """

    def __init__(self, reason: str, message: str | None = None, *, is_noted: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.message = message
        self.is_noted = is_noted


class MechanismUnusable(Exception):
    """A mechanism that a listener should offer cannot be; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The answer to one token.

    Attributes:
        token: the bytes for the client, maybe empty.
        principal: the proved identity; None while the exchange continues.
        expires_ms: the wall-clock time at which the credential itself ends; None for never.
        is_by_token: whether the credential is a delegation token.
        refusal: why the client is refused, in one word, while it still has to acknowledge that;
            empty for none.
    """

    token: bytes = b""
    principal: Principal | None = None
    expires_ms: int | None = None
    is_by_token: bool = False
    refusal: str = ""


class SaslExchange(Protocol):
    """One authentication of one client."""

    is_slow: bool
    """Whether `step` computes for milliseconds and has to run in another thread."""

    claimed_name: str
    """The user name that the client claims; empty before it has claimed one."""

    def step(self, token: bytes) -> Step:
        """Take the next token of the client.

        Raises:
            AuthenticationFailed: wrong, malformed or too large.
        """

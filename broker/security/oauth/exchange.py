r"""The server's side of OAUTHBEARER: one message with a token, and for a bad one a second round.

    client                                                server
    n,,^Aauth=Bearer TOKEN^A^A                        ->
                                                      <-  (empty: authenticated)
                                                      <-  {"status":"invalid_token"}
    ^A                                                ->
                                                      <-  SASL_AUTHENTICATION_FAILED

`^A` is the byte 0x01. Extensions (further KEY=VALUE pairs) are accepted and mean nothing, as in
Kafka. The session ends with the token: the client has to authenticate again with a newer one.

Source: RFC 7628, KIP-255, KIP-342; Kafka `OAuthBearerSaslServer`.
"""

import re
from collections.abc import Callable
from typing import Final

from broker.principal import user
from broker.security.mechanism import AuthenticationFailed, Step
from broker.security.oauth.tokens import TokenRefused, TokenVerifier

MESSAGE_BYTES_MAX: Final = 32 * 1024
REFUSAL: Final = '{"status":"invalid_token"}'

_CLIENT_FIRST = re.compile(
    r"n,(?:a=(?P<authzid>(?:[\x02-+\--<>-\x7f]|=2C|=3D)+))?,\x01"
    r"(?P<pairs>(?:[A-Za-z]+=[!-~ \t\r\n]*\x01)*)\x01",
    re.ASCII,
)
_BEARER = re.compile(r"bearer +(?P<token>[A-Za-z0-9._~+/=-]+)", re.IGNORECASE | re.ASCII)


class OAuthBearerExchange:
    """One OAUTHBEARER authentication on the server's side."""

    is_slow = False

    def __init__(self, verifier: TokenVerifier, wall_ms: Callable[[], int]) -> None:
        self.claimed_name = ""
        self._verifier = verifier
        self._wall_ms = wall_ms
        self._refused: TokenRefused | None = None

    def step(self, token: bytes) -> Step:
        """Take the message with the token, or the acknowledgement of its refusal.

        Raises:
            AuthenticationFailed: malformed, for another broker, or acknowledged.
        """
        if self._refused is not None:
            raise AuthenticationFailed(self._refused.reason, REFUSAL, is_noted=True)
        authzid, bearer = _parse(token)
        try:
            verified = self._verifier.verify(bearer, self._wall_ms())
        except TokenRefused as error:
            self._refused = error
            return Step(token=REFUSAL.encode(), refusal=error.reason)
        if authzid and authzid != verified.name:
            raise AuthenticationFailed(
                "authzid",
                f"Authentication failed: Client requested an authorization id ({authzid}) that is "
                f"different from the token's principal name ({verified.name})",
            )
        self.claimed_name = verified.name
        return Step(principal=user(verified.name), expires_ms=verified.expires_ms)


def _parse(message: bytes) -> tuple[str, str]:
    """The authorization id, maybe empty, and the token."""
    if len(message) > MESSAGE_BYTES_MAX:
        raise AuthenticationFailed("too-large")
    try:
        match = _CLIENT_FIRST.fullmatch(message.decode("ascii"))
    except UnicodeDecodeError:
        match = None
    if match is None:
        raise AuthenticationFailed("malformed")
    values = [
        value
        for key, _, value in (pair.partition("=") for pair in match["pairs"].split("\x01"))
        if key == "auth"
    ]
    bearer = _BEARER.fullmatch(values[0]) if len(values) == 1 else None
    if bearer is None:
        raise AuthenticationFailed("malformed")
    authzid = (match["authzid"] or "").replace("=2C", ",").replace("=3D", "=")
    return authzid, bearer["token"]

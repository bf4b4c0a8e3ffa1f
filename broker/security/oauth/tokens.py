"""Tokens of an identity provider: signed JSON with claims about a user, checked against settings.

A token is accepted when a known key has signed it with an allowed algorithm, it is meant for this
broker (`iss`, `aud`), the present lies in its time (`exp`, `nbf`, `iat`, with a tolerance), and it
names a user. The header of a token chooses among the known keys and nothing more: keys and
addresses of keys in it are ignored. Signatures with shared secrets do not exist here, so a public
key can never serve as one.

Differs from Kafka: an issuer and an audience must be configured, and tokens without a signature are
refused unless a setting of a loopback listener accepts them; a Kafka without a JWKS accepts them.

Source: RFC 7519, RFC 7515, RFC 8725; Kafka `BrokerJwtValidator`.
"""

import json
from typing import Any, Final

from jwt import PyJWS
from jwt.exceptions import PyJWTError

from broker.security.oauth.keys import IdentityKeys
from config.security.keys import OAuthSettings
from values.dataclasses import dataclass

NAME_LENGTH_MAX: Final = 255
TIME_S_MAX: Final = 2**40
"""The year 36812; a later one is no time."""


class TokenRefused(Exception):
    """A token that proves nothing; `reason` is one word for the audit log."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedToken:
    """What an accepted token says.

    Attributes:
        name: the name of the user.
        expires_ms: the wall-clock time until which it is accepted.
    """

    name: str
    expires_ms: int


class TokenVerifier:
    """Checks the tokens of one listener; without keys (None) tokens need no signature."""

    def __init__(self, settings: OAuthSettings, keys: IdentityKeys | None) -> None:
        self._settings = settings
        self._keys = keys
        self._signatures = PyJWS()

    def verify(self, token: str, wall_ms: int) -> VerifiedToken:
        """The user and the end of a token.

        Raises:
            TokenRefused: it proves nothing.
        """
        claims = self._claims(token)
        settings = self._settings
        now_s, skew_s = wall_ms / 1000, settings.skew_seconds
        expires_s, issued_s = _time(claims, "exp"), _time(claims, "iat")
        if self._keys is not None and issued_s is None:
            raise TokenRefused("no-iat")
        if expires_s is None:
            raise TokenRefused("no-exp")
        if now_s >= expires_s + skew_s:
            raise TokenRefused("expired")
        if any(time_s and time_s > now_s + skew_s for time_s in (issued_s, _time(claims, "nbf"))):
            raise TokenRefused("not-yet-valid")
        if settings.issuer and claims.get("iss") != settings.issuer:
            raise TokenRefused("issuer")
        if settings.audience and not _is_for(settings.audience, claims.get("aud")):
            raise TokenRefused("audience")
        _check_scope(claims.get(settings.scope_claim))
        # A session of a token that has just expired lives as long as the clocks may differ.
        until_s = expires_s if expires_s > now_s else expires_s + skew_s
        return VerifiedToken(name=self._name(claims), expires_ms=int(until_s * 1000))

    def _claims(self, token: str) -> dict[str, Any]:
        """The claims, once the signature is verified."""
        try:
            header = self._signatures.get_unverified_header(token)
            if self._keys is None:
                payload = self._unsigned_payload(token)
            else:
                payload = self._signed_payload(token, header, self._keys)
            claims = json.loads(payload)
        except (PyJWTError, ValueError, RecursionError):
            raise TokenRefused("malformed") from None
        if not isinstance(claims, dict):
            raise TokenRefused("malformed")
        return claims

    def _signed_payload(self, token: str, header: dict[str, Any], keys: IdentityKeys) -> bytes:
        algorithm = header.get("alg")
        if algorithm not in self._settings.algorithms:
            raise TokenRefused("algorithm")
        known = keys.find(header.get("kid"))
        if known is None:
            raise TokenRefused("unknown-key")
        if algorithm not in known.algorithms:
            raise TokenRefused("algorithm")
        try:
            payload: bytes = self._signatures.decode(token, known.key, algorithms=[algorithm])
        except PyJWTError:
            raise TokenRefused("signature") from None
        return payload

    def _unsigned_payload(self, token: str) -> bytes:
        parts = self._signatures.decode_complete(token, options={"verify_signature": False})
        if parts["header"].get("alg") != "none" or parts["signature"]:
            raise TokenRefused("algorithm")
        payload: bytes = parts["payload"]
        return payload

    def _name(self, claims: dict[str, Any]) -> str:
        found = claims.get(self._settings.sub_claim)
        name = found.strip() if isinstance(found, str) else ""
        if not name or len(name) > NAME_LENGTH_MAX or not name.isprintable():
            raise TokenRefused("name")
        return name


def _time(claims: dict[str, Any], name: str) -> float | None:
    """A time in seconds since the epoch, or None for a claim that is not there."""
    value = claims.get(name)
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= TIME_S_MAX:
        raise TokenRefused(f"malformed-{name}")
    return float(value)


def _is_for(expected: tuple[str, ...], audience: object) -> bool:
    """Whether a text or a list of texts has one of the expected ones."""
    given = audience if isinstance(audience, list) else [audience]
    return any(name in expected for name in given)


def _check_scope(scope: object) -> None:
    """Refuse what is neither words nor a list of words, each once."""
    words = scope.split() if isinstance(scope, str) else scope
    if words is None:
        return
    if not (
        isinstance(words, list)
        and all(isinstance(word, str) and word for word in words)
        and len(set(words)) == len(words)
    ):
        raise TokenRefused("malformed-scope")

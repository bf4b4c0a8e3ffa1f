"""PLAIN: user name and password in clear, therefore only over TLS or on loopback.

    [authzid] NUL authcid NUL password

There is no second store of passwords: the password is checked against the user's SCRAM credential.
That costs one PBKDF2, some milliseconds, so `step` runs in another thread. `PasswordCache` keeps a
keyed digest of the last good password of each user, so that the next login costs one HMAC.

Source: RFC 4616; Kafka `PlainSaslServer` (its messages for malformed tokens).
"""

import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from broker.principal import user
from broker.security.mechanism import AuthenticationFailed, Step
from broker.security.scram import ScramCredential, ScramMechanism, salted

MESSAGE_BYTES_MAX: Final = 1024
USERS_CACHED_MAX: Final = 10_000

_WRONG: Final = "Authentication failed: Invalid username or password"
_NO_PASSWORD: Final = (None, bytes(32))
"""As long as a digest, so that the comparison takes as long."""


class PasswordCache:
    """Keyed digests of passwords that were right; worthless outside this process."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._known: OrderedDict[str, tuple[ScramCredential, bytes]] = OrderedDict()

    def holds(self, name: str, password: str, credential: ScramCredential) -> bool:
        """Whether `password` was right before, for the same credential."""
        digest = self._digest(name, password)
        known, right = self._known.get(name, _NO_PASSWORD)
        return hmac.compare_digest(digest, right) and known == credential

    def keep(self, name: str, password: str, credential: ScramCredential) -> None:
        """Remember that `password` is right for `credential`."""
        self._known[name] = (credential, self._digest(name, password))
        self._known.move_to_end(name)
        if len(self._known) > USERS_CACHED_MAX:
            self._known.popitem(last=False)

    def _digest(self, name: str, password: str) -> bytes:
        return hmac.digest(self._key, f"{name}\0{password}".encode(), "sha256")


class PlainExchange:
    """One PLAIN authentication on the server's side."""

    is_slow = True

    def __init__(
        self,
        credential_of: Callable[[str], tuple[ScramMechanism, ScramCredential]],
        cache: PasswordCache,
    ) -> None:
        """Check passwords against `credential_of(name)`, which has an answer for every name."""
        self.claimed_name = ""
        self._credential_of = credential_of
        self._cache = cache

    def step(self, token: bytes) -> Step:
        """Take the only token.

        Raises:
            AuthenticationFailed: malformed, or the user or the password is wrong.
        """
        name, password = self._parse(token)
        mechanism, credential = self._credential_of(name)
        if not self._cache.holds(name, password, credential):
            key = salted(mechanism, password, credential.salt, credential.iterations)
            client_key = hmac.digest(key, b"Client Key", mechanism.hash_name)
            stored_key = hashlib.new(mechanism.hash_name, client_key).digest()
            if not hmac.compare_digest(stored_key, credential.stored_key):
                raise AuthenticationFailed("credentials", _WRONG)
            self._cache.keep(name, password, credential)
        return Step(principal=user(name))

    def _parse(self, token: bytes) -> tuple[str, str]:
        if len(token) > MESSAGE_BYTES_MAX:
            raise AuthenticationFailed("too-large")
        try:
            parts = token.decode().split("\0")
        except UnicodeDecodeError:
            raise AuthenticationFailed("malformed") from None
        if len(parts) != 3:
            raise AuthenticationFailed(
                "malformed", f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}"
            )
        authzid, name, password = parts
        for word, value in (("username", name), ("password", password)):
            if not value:
                raise AuthenticationFailed(
                    "malformed",
                    f"Authentication failed: {word} not specified",
                )
        self.claimed_name = name
        if authzid and authzid != name:
            raise AuthenticationFailed(
                "authzid",
                "Authentication failed: Client requested an authorization id that is different "
                "from username",
            )
        return name, password

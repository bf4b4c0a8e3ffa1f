"""SCRAM: salted challenge and response, both its credentials and its server side.

    client                                              server
    n,,n=user,r=NONCE                        ->
                                             <-  r=NONCE+MORE,s=SALT,i=ITERATIONS
    c=biws,r=NONCE+MORE,p=PROOF              ->
                                             <-  v=SIGNATURE

The server stores no password, only what is derived from it (`ScramCredential`). The proof covers
the messages as they were received, byte for byte. An unknown user gets a first message like any
other, with a salt derived from the name and a secret of this data directory, and fails at the
proof: an attacker cannot list users. Channel binding (the -PLUS mechanisms) is not offered, so the
client's flag must be `n`.

Deviations from RFC 5802 are Kafka's: no SASLprep (names and passwords are raw UTF-8) and no `e=`
error attribute (the Kafka protocol has an error field).

Source: RFC 5802, RFC 7677; KIP-84, KIP-554; Kafka `ScramSaslServer`, `ScramFormatter`. The
final nonce has to end with the whole one (CVE-2024-56128), as in Kafka.
"""

import base64
import binascii
import enum
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from dataclasses import field
from typing import Final, NamedTuple, TypeAlias

from broker.principal import Principal, user
from broker.security.mechanism import AuthenticationFailed, Step
from values.dataclasses import dataclass

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16384
FIRST_MESSAGE_BYTES_MAX: Final = 2048
FINAL_MESSAGE_BYTES_MAX: Final = 2048
SALT_BYTES: Final = 24
"""Salt of credentials that this program makes."""

_NONCE_BYTES: Final = 24

_CLIENT_FIRST = re.compile(
    r"(?P<gs2>n,(?:a=(?P<authzid>[^,]*))?,)(?P<bare>n=(?P<name>[^,]*),r=(?P<nonce>[!-+\--~]+)"
    r"(?P<extensions>(?:,[A-Za-z]+=[^,]*)*))",
    re.ASCII,
)
_CLIENT_FINAL = re.compile(
    r"(?P<unproved>c=(?P<binding>[A-Za-z0-9+/=]*),r=(?P<nonce>[!-+\--~]+)"
    r"(?:,(?!p=)[A-Za-z]=[^,]*)*),p=(?P<proof>[A-Za-z0-9+/=]+)",
    re.ASCII,
)
_BAD_ESCAPE = re.compile(r"=(?!2C|3D)")


class ScramMechanism(enum.IntEnum):
    """The mechanisms, numbered as in AlterUserScramCredentials."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        """The name that clients ask for."""
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        """The name of the hash function for `hashlib`."""
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"

    @property
    def digest_size(self) -> int:
        """The size of its keys in bytes."""
        return hashlib.new(self.hash_name).digest_size


SCRAM_BY_NAME: Final = {mechanism.sasl_name: mechanism for mechanism in ScramMechanism}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramCredential:
    """What the broker keeps of one password. `repr` shows no secret."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


def credential_of_salted_password(
    mechanism: ScramMechanism, salted_password: bytes, *, salt: bytes, iterations: int
) -> ScramCredential:
    """The credential of a password that the client has salted already (KIP-554)."""
    hash_name = mechanism.hash_name
    client_key = hmac.digest(salted_password, b"Client Key", hash_name)
    return ScramCredential(
        salt=salt,
        stored_key=hashlib.new(hash_name, client_key).digest(),
        server_key=hmac.digest(salted_password, b"Server Key", hash_name),
        iterations=iterations,
    )


def salted(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """PBKDF2 of `password`: some milliseconds of work."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def new_credential(
    mechanism: ScramMechanism,
    password: str,
    *,
    iterations: int,
    salt: bytes | None = None,
) -> ScramCredential:
    """The credential of `password`, with a random salt unless one is given.

    Raises:
        ValueError: the number of iterations is out of bounds.
    """
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise ValueError(f"iterations {iterations}: give {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    salt = secrets.token_bytes(SALT_BYTES) if salt is None else salt
    return credential_of_salted_password(
        mechanism, salted(mechanism, password, salt, iterations), salt=salt, iterations=iterations
    )


def unknown_user_credential(
    mechanism: ScramMechanism, name: str, secret: bytes, iterations: int, salt_bytes: int
) -> ScramCredential:
    """A credential for a user that does not exist: stable per name, and no password fits it."""
    seed = hmac.digest(secret, f"{mechanism.sasl_name}/{name}".encode(), "sha512")
    size = mechanism.digest_size
    return ScramCredential(
        salt=hashlib.shake_256(seed).digest(salt_bytes),
        stored_key=hmac.digest(secret, seed, "sha512")[:size],
        server_key=hmac.digest(secret, b"server" + seed, "sha512")[:size],
        iterations=iterations,
    )


class Bearer(NamedTuple):
    """Who the bearer of a delegation token is, and when the token expires by the wall clock."""

    owner: Principal
    expires_ms: int


TokenOf: TypeAlias = Callable[[ScramMechanism, str], tuple[ScramCredential, Bearer | None]]
_TOKEN_EXTENSION: Final = "tokenauth=true"


class ScramExchange:
    """One SCRAM authentication on the server's side."""

    is_slow = False

    def __init__(
        self,
        mechanism: ScramMechanism,
        credential_of: Callable[[ScramMechanism, str], ScramCredential],
        token_of: TokenOf | None = None,
        *,
        nonce: str | None = None,
    ) -> None:
        """Begin with the client's first message.

        Args:
            mechanism: the hash function.
            credential_of: the credential of a user, who may be unknown.
            token_of: the credential of a delegation token, by its id, and its bearer; for an
                unknown one a credential that no secret fits. Without this function tokens are
                refused.
            nonce: a fixed one, for tests.
        """
        self.claimed_name = ""
        self._mechanism = mechanism
        self._credential_of = credential_of
        self._token_of = token_of
        self._bearer: Bearer | None = None
        self._is_by_token = False
        self._own_nonce = nonce or secrets.token_urlsafe(_NONCE_BYTES)
        self._credential: ScramCredential | None = None
        self._gs2_header = b""
        self._nonce = ""
        self._auth_message_start = ""

    def step(self, token: bytes) -> Step:
        """Take the first or the final message of the client.

        Raises:
            AuthenticationFailed: malformed, or the proof is wrong.
        """
        return self._first(token) if self._credential is None else self._final(token)

    def _first(self, token: bytes) -> Step:
        text = _text(token, FIRST_MESSAGE_BYTES_MAX)
        match = _CLIENT_FIRST.fullmatch(text)
        if match is None:
            raise AuthenticationFailed("malformed")
        name = _unescape(match["name"])
        authzid = match["authzid"]
        if not name or (authzid and _unescape(authzid) != name):
            raise AuthenticationFailed("malformed" if not name else "authzid")
        self.claimed_name = name
        self._gs2_header = match["gs2"].encode()
        self._nonce = match["nonce"] + self._own_nonce
        credential = self._credential = self._credential_for(name, match["extensions"])
        salt = base64.b64encode(credential.salt).decode()
        answer = f"r={self._nonce},s={salt},i={credential.iterations}"
        self._auth_message_start = f"{match['bare']},{answer},"
        return Step(token=answer.encode())

    def _credential_for(self, name: str, extensions: str) -> ScramCredential:
        """The credential of a user, or of the delegation token that the client says it has."""
        if _TOKEN_EXTENSION not in extensions.lower().split(","):
            return self._credential_of(self._mechanism, name)
        if self._token_of is None:
            raise AuthenticationFailed("delegation-tokens-are-off")
        self._is_by_token = True
        credential, self._bearer = self._token_of(self._mechanism, name)
        return credential

    def _final(self, token: bytes) -> Step:
        credential = self._credential
        assert credential is not None
        text = _text(token, FINAL_MESSAGE_BYTES_MAX)
        match = _CLIENT_FINAL.fullmatch(text)
        if match is None:
            raise AuthenticationFailed("malformed")
        if _decoded(match["binding"]) != self._gs2_header:
            raise AuthenticationFailed("channel-binding")
        # librdkafka before 2.6.1 writes its own nonce a second time in front of the whole one.
        if not match["nonce"].endswith(self._nonce):
            raise AuthenticationFailed("nonce")
        auth_message = (self._auth_message_start + match["unproved"]).encode()
        if not self._proves(credential, _decoded(match["proof"]), auth_message):
            raise AuthenticationFailed("credentials")
        signature = hmac.digest(credential.server_key, auth_message, self._mechanism.hash_name)
        answer = b"v=" + base64.b64encode(signature)
        if not self._is_by_token:
            return Step(token=answer, principal=user(self.claimed_name))
        if self._bearer is None:
            raise AuthenticationFailed("unknown-token")
        return Step(
            token=answer,
            principal=self._bearer.owner,
            expires_ms=self._bearer.expires_ms,
            is_by_token=True,
        )

    def _proves(self, credential: ScramCredential, proof: bytes, auth_message: bytes) -> bool:
        hash_name = self._mechanism.hash_name
        signature = hmac.digest(credential.stored_key, auth_message, hash_name)
        if len(proof) != len(signature):
            return False
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        return hmac.compare_digest(
            hashlib.new(hash_name, client_key).digest(), credential.stored_key
        )


def _text(token: bytes, limit: int) -> str:
    if len(token) > limit:
        raise AuthenticationFailed("too-large")
    try:
        return token.decode()
    except UnicodeDecodeError:
        raise AuthenticationFailed("malformed") from None


def _unescape(name: str) -> str:
    if _BAD_ESCAPE.search(name):
        raise AuthenticationFailed("malformed")
    return name.replace("=2C", ",").replace("=3D", "=")


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise AuthenticationFailed("malformed") from None

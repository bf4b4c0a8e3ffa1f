"""The public keys of an identity provider, read from its JSON Web Key Set (JWKS).

Keys are read when the broker starts, after `refresh_ms`, and when a token names an unknown key:
providers replace their keys. A reading that fails keeps the former keys and is tried again with a
back-off. Unknown keys cause at most one reading in `backoff_max_ms`, however many tokens name one.

Only public keys that can verify a signature are taken. Others in the set are ignored, and so are
RSA keys of less than 2048 bits.

Source: RFC 7517, RFC 7518 section 6, RFC 8037; Kafka `RefreshingHttpsJwks`.
Read next: `broker.jobs.identity_keys`, which calls `reload` in another thread.
"""

import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import IO, Any, Final, NamedTuple, TypeAlias

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from jwt.exceptions import PyJWTError

from config.security.keys import JWKS, OAuthSettings

DOCUMENT_BYTES_MAX: Final = 1024 * 1024
TIMEOUT_S: Final = 5
KEY_ID_LENGTH_MAX: Final = 1000
RSA_BITS_MIN: Final = 2048

PublicKey: TypeAlias = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey

_GIVE_JWKS_URI: Final = "give the address that the provider publishes as its jwks_uri"
_REACH_IT: Final = "see that the provider runs and that this machine reaches it"
_CURVES: Final = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
_RSA_SIGNATURES: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})


class KeysUnusable(Exception):
    """The keys cannot be read; the message says where and why."""


class VerificationKey(NamedTuple):
    """A public key, and the signatures that it may verify."""

    key: PublicKey
    algorithms: frozenset[str]


class IdentityKeys:
    """The keys of one listener's identity provider, which a reading may replace."""

    def __init__(self, settings: OAuthSettings, *, now_ms: int) -> None:
        """Read the keys; blocks until they are there.

        Raises:
            KeysUnusable: there are none.
        """
        self.url = settings.jwks_url
        self._settings = settings
        self._failures = 0
        self._begun_ms = self._due_ms = now_ms
        self._known: Mapping[str, VerificationKey]
        self.reload(now_ms)

    def __len__(self) -> int:
        """How many keys there are."""
        return len(self._known)

    def find(self, key_id: str | None) -> VerificationKey | None:
        """The key that a token names, or the only one there is for a token that names none.

        None for an unknown key; then the keys are due to be read again.
        """
        known = self._known
        if key_id is None:
            return next(iter(known.values())) if len(known) == 1 else None
        found = known.get(key_id)
        if found is None:
            self._due_ms = min(self._due_ms, self._begun_ms + self._settings.backoff_max_ms)
        return found

    def is_due(self, now_ms: int) -> bool:
        """Whether the keys should be read again."""
        return now_ms >= self._due_ms

    def reload(self, now_ms: int) -> None:
        """Read the keys again; blocks.

        Raises:
            KeysUnusable: the former keys stay in use.
        """
        settings = self._settings
        self._begun_ms = now_ms
        wait_ms = min(settings.backoff_max_ms, settings.backoff_ms << min(self._failures, 30))
        self._due_ms = now_ms + wait_ms
        self._failures += 1
        self._known = parse_keys(_read(self.url), f"{JWKS}.url = {self.url}")
        self._failures = 0
        self._due_ms = now_ms + settings.refresh_ms


def parse_keys(document: bytes, source: str) -> dict[str, VerificationKey]:
    """The keys of a JWKS by their ids; a key without an id has the empty one.

    Raises:
        KeysUnusable: it is no JWKS, or no key in it can verify signatures.
    """
    try:
        match json.loads(document):
            case {"keys": list(entries)}:
                pass
            case _:
                raise KeysUnusable(_no_key_set(source, "it has no list of keys"))
    except json.JSONDecodeError as error:
        where = f"it is not JSON (line {error.lineno}, column {error.colno})"
        raise KeysUnusable(_no_key_set(source, where)) from error
    except UnicodeDecodeError as error:
        raise KeysUnusable(_no_key_set(source, "it is not JSON, nor any text")) from error
    except RecursionError as error:
        raise KeysUnusable(_no_key_set(source, "its JSON is nested too deeply")) from error
    except ValueError as error:  # Python's bound, against numbers that cost time
        raise KeysUnusable(_no_key_set(source, "a number in it has too many digits")) from error
    found = {}
    for entry in entries:
        key = _verification_key(entry) if isinstance(entry, dict) else None
        key_id = entry.get("kid", "") if key is not None else None
        if key is not None and isinstance(key_id, str) and len(key_id) <= KEY_ID_LENGTH_MAX:
            found[key_id] = key
    if not found:
        raise KeysUnusable(
            f"{source} has no public key that can verify signatures: RSA from {RSA_BITS_MIN} "
            f"bits, P-256, P-384, P-521 or Ed25519; {_GIVE_JWKS_URI}"
        )
    return found


def _no_key_set(source: str, reason: str) -> str:
    return f"{source} is no JSON Web Key Set: {reason}; {_GIVE_JWKS_URI}"


def _verification_key(entry: dict[str, Any]) -> VerificationKey | None:
    if entry.get("use", "sig") != "sig" or "d" in entry:
        return None
    key: Any = None
    algorithms: frozenset[str] = frozenset()
    try:
        match entry.get("kty"), entry.get("crv"):
            case "RSA", _:
                key, algorithms = RSAAlgorithm.from_jwk(entry), _RSA_SIGNATURES
            case "EC", str(curve) if curve in _CURVES:
                key, algorithms = ECAlgorithm.from_jwk(entry), frozenset({_CURVES[curve]})
            case "OKP", "Ed25519":
                key, algorithms = OKPAlgorithm.from_jwk(entry), frozenset({"EdDSA"})
    except (PyJWTError, ValueError, TypeError):
        return None
    if isinstance(key, RSAPublicKey) and key.key_size < RSA_BITS_MIN:
        return None
    if "alg" in entry:
        algorithms &= {entry["alg"]} if isinstance(entry["alg"], str) else set()
    return VerificationKey(key, algorithms) if algorithms else None


class _SameHost(urllib.request.HTTPRedirectHandler):
    """Follows redirects within one host by TLS alone: keys of another host are not trusted."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: Any,
        newurl: str,
    ) -> urllib.request.Request | None:
        former, new = urllib.parse.urlsplit(req.full_url), urllib.parse.urlsplit(newurl)
        if (former.scheme, former.netloc) != (new.scheme, new.netloc):
            fp.close()
            raise urllib.error.URLError(f"it redirects to another host, {newurl}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _read(url: str) -> bytes:
    """The document at an `https:` or `file:` address.

    Raises:
        KeysUnusable: it cannot be read.
    """
    opener = urllib.request.build_opener(_SameHost)
    request = urllib.request.Request(url, headers={"Accept": "application/json"})
    try:
        with opener.open(request, timeout=TIMEOUT_S) as answer:
            document: bytes = answer.read(DOCUMENT_BYTES_MAX + 1)
    except (OSError, ValueError, HTTPException) as error:
        reason, cure = _why(error)
        raise KeysUnusable(f"{JWKS}.url = {url} cannot be read: {reason}; {cure}") from error
    if len(document) > DOCUMENT_BYTES_MAX:
        raise KeysUnusable(
            f"{JWKS}.url = {url} has more than {DOCUMENT_BYTES_MAX} bytes; {_GIVE_JWKS_URI}"
        )
    return document


def _why(error: Exception) -> tuple[str, str]:
    """What keeps an address from being read, and the cure."""
    if isinstance(error, urllib.error.HTTPError):
        error.close()  # it is the answer, too
        return f"it answers {error.code} {error.reason}", _GIVE_JWKS_URI
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    match cause:
        case ssl.SSLCertVerificationError():
            return (
                f"its certificate is refused ({cause.verify_message})",
                "give the host that the certificate is for, and name the file of its authority in "
                "the variable SSL_CERT_FILE if this machine does not know it",
            )
        case ssl.SSLError():
            words = str(cause.reason or cause).replace("_", " ").lower()
            return f"TLS fails there ({words})", "give the provider's https: address"
        case OSError(errno=int(number)) if number < 0:  # of getaddrinfo
            return (
                f"its host is not found ({cause.strerror})",
                "correct the host, or this machine's DNS",
            )
        case TimeoutError():
            return f"no answer in {TIMEOUT_S} s", _REACH_IT
        case FileNotFoundError() | PermissionError() | IsADirectoryError():
            return str(cause.strerror), "put the keys into a file there that the broker may read"
        case OSError():
            return str(cause.strerror or cause), _REACH_IT
    return str(cause), "give the provider's https: address itself"

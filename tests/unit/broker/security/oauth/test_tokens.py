"""Tokens: what is accepted, every way to be wrong, and attacks on the format."""

import base64
import json
import time
from typing import Any

import pytest

from broker.security.oauth.keys import IdentityKeys
from broker.security.oauth.tokens import TokenRefused, TokenVerifier
from config.security.keys import SIGNATURES, OAuthSettings
from tests.support.identity_provider import AUDIENCE, ISSUER, SigningKey, jwks, unsigned

KEY = SigningKey()
NOW_S = int(time.time())


def settings(**changed: Any) -> OAuthSettings:
    fields: dict[str, Any] = {
        "jwks_url": "", "refresh_ms": 3_600_000, "backoff_ms": 100, "backoff_max_ms": 10_000,
        "issuer": ISSUER, "audience": (AUDIENCE, "other"), "skew_seconds": 30,
        "sub_claim": "sub", "scope_claim": "scope", "algorithms": SIGNATURES, "unsecured": False,
    }  # fmt: skip
    return OAuthSettings(**{**fields, **changed})


@pytest.fixture
def verifier_of(tmp_path: Any) -> Any:
    def make(*keys: SigningKey, **changed: Any) -> TokenVerifier:
        path = tmp_path / "jwks.json"
        path.write_bytes(jwks(*keys))
        chosen = settings(jwks_url=path.as_uri(), **changed)
        return TokenVerifier(chosen, IdentityKeys(chosen, now_ms=0))

    return make


@pytest.fixture
def verifier(verifier_of: Any) -> TokenVerifier:
    made: TokenVerifier = verifier_of(KEY)
    return made


def refusal(verifier: TokenVerifier, token: str, now_s: float = NOW_S) -> str:
    with pytest.raises(TokenRefused) as caught:
        verifier.verify(token, int(now_s * 1000))
    return caught.value.reason


@pytest.mark.parametrize("algorithm", SIGNATURES)
def test_every_signature_is_verified(algorithm: str, verifier_of: Any) -> None:
    key = SigningKey("k", algorithm)
    verified = verifier_of(key).verify(key.token(exp=NOW_S + 60), NOW_S * 1000)
    assert (verified.name, verified.expires_ms) == ("ann", (NOW_S + 60) * 1000)
    assert refusal(verifier_of(SigningKey("k", algorithm)), key.token()) == "signature"


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": None}, "no-exp"),
        ({"exp": NOW_S - 30}, "expired"),
        ({"exp": "soon"}, "malformed-exp"),
        ({"exp": True}, "malformed-exp"),
        ({"exp": float("nan")}, "malformed-exp"),
        ({"exp": float("inf")}, "malformed-exp"),
        ({"exp": -1}, "malformed-exp"),
        ({"exp": 2**60}, "malformed-exp"),
        ({"iat": None}, "no-iat"),
        ({"iat": NOW_S + 31}, "not-yet-valid"),
        ({"iat": [1]}, "malformed-iat"),
        ({"nbf": NOW_S + 31}, "not-yet-valid"),
        ({"nbf": {}}, "malformed-nbf"),
        ({"iss": "https://evil.test"}, "issuer"),
        ({"iss": None}, "issuer"),
        ({"aud": "another"}, "audience"),
        ({"aud": []}, "audience"),
        ({"aud": [["tidelog"], {"a": 1}]}, "audience"),
        ({"aud": None}, "audience"),
        ({"aud": "tidelog other"}, "audience"),
        ({"scope": "a a"}, "malformed-scope"),
        ({"scope": ["a", ""]}, "malformed-scope"),
        ({"scope": 7}, "malformed-scope"),
        ({"sub": None}, "name"),
        ({"sub": "  "}, "name"),
        ({"sub": "a\nb"}, "name"),
        ({"sub": "x" * 256}, "name"),
    ],
)
def test_a_wrong_claim_is_refused(
    claims: dict[str, Any], reason: str, verifier: TokenVerifier
) -> None:
    # PyJWT itself makes only tokens whose claims have the right types.
    good = {"sub": "ann", "iss": ISSUER, "aud": AUDIENCE, "iat": NOW_S, "exp": NOW_S + 60}
    changed = {name: value for name, value in (good | claims).items() if value is not None}
    assert refusal(verifier, signed(json.dumps(changed).encode())) == reason


def signed(payload: bytes, **header: Any) -> str:
    from jwt import PyJWS

    return PyJWS().encode(payload, KEY.private, "ES256", headers={"kid": "key-1", **header})


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": ["x", "other"]},
        {"iat": NOW_S + 29, "nbf": NOW_S + 29},
        {"scope": "read write"},
        {"scope": ["read"]},
        {"sub": " ann "},
        {"exp": NOW_S + 60.5},
        {"custom": {"a": [1]}},
    ],
)
def test_good_claims_are_accepted(claims: dict[str, Any], verifier: TokenVerifier) -> None:
    assert verifier.verify(KEY.token(**claims), NOW_S * 1000).name == "ann"


def test_a_token_that_has_just_expired_lives_as_long_as_the_clocks_may_differ(
    verifier: TokenVerifier,
) -> None:
    token = KEY.token(exp=NOW_S)
    assert verifier.verify(token, (NOW_S + 29) * 1000).expires_ms == (NOW_S + 30) * 1000
    assert refusal(verifier, token, NOW_S + 30) == "expired"


def test_other_claims_may_hold_the_name_and_the_scope(verifier_of: Any) -> None:
    verifier = verifier_of(KEY, sub_claim="client", scope_claim="scp")
    assert verifier.verify(KEY.token(client="bob"), NOW_S * 1000).name == "bob"
    assert refusal(verifier, KEY.token(client="bob", scp="a a")) == "malformed-scope"


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "HS256", "", None, 7, ["ES256"]])
def test_no_signature_and_shared_secrets_are_refused(
    algorithm: Any, verifier: TokenVerifier
) -> None:
    header = {"alg": algorithm, "kid": "key-1"}
    assert refusal(verifier, unsigned(header, {"sub": "ann", "exp": NOW_S + 60})) == "algorithm"


def test_a_public_key_is_no_shared_secret(verifier_of: Any) -> None:
    import hashlib
    import hmac

    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    rsa = SigningKey("r", "RS256")
    pem = rsa.private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    head = unsigned({"alg": "HS256", "kid": "r"}, {"sub": "ann", "exp": NOW_S + 60}).rstrip(".")
    mac = base64.urlsafe_b64encode(hmac.digest(pem, head.encode(), hashlib.sha256)).rstrip(b"=")
    assert refusal(verifier_of(rsa), f"{head}.{mac.decode()}") == "algorithm"


def test_a_key_verifies_its_own_algorithms_alone(verifier_of: Any) -> None:
    verifier = verifier_of(SigningKey("key-1", "RS256"))
    assert refusal(verifier, KEY.token()) == "algorithm"
    assert refusal(verifier_of(KEY, algorithms=("RS256",)), KEY.token()) == "algorithm"


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ({"kid": "key-2"}, "unknown-key"),
        ({"kid": "../../key"}, "unknown-key"),
        ({"crit": ["x"], "x": 1}, "malformed"),
    ],
)
def test_a_header_that_asks_for_more_is_refused(
    header: dict[str, Any], reason: str, verifier: TokenVerifier
) -> None:
    assert refusal(verifier, KEY.token(header=header)) == reason


def test_a_key_that_a_token_brings_along_is_ignored(verifier: TokenVerifier) -> None:
    own = SigningKey()
    for header in ({"jwk": own.public()}, {"jku": "https://evil.test/jwks"}, {"x5c": ["abc"]}):
        assert refusal(verifier, own.token(header=header)) == "signature"
        assert verifier.verify(KEY.token(header=header), NOW_S * 1000).name == "ann"


def test_a_token_without_a_key_id_fits_an_only_key(verifier_of: Any) -> None:
    import jwt

    claims = {"sub": "ann", "iss": ISSUER, "aud": AUDIENCE, "iat": NOW_S, "exp": NOW_S + 60}
    token = jwt.encode(claims, KEY.private, "ES256")
    assert verifier_of(KEY).verify(token, NOW_S * 1000).name == "ann"
    assert refusal(verifier_of(KEY, SigningKey("key-2")), token) == "unknown-key"


@pytest.mark.parametrize(
    "token",
    [
        "", ".", "..", "a.b.c", "....", "e30.e30.", "W10.e30.", "bnVsbA.bnVsbA.",
        base64.urlsafe_b64encode(b"[" * 20_000).decode().rstrip("=") + ".e30.",
    ],
)  # fmt: skip
def test_what_is_no_token_is_refused(token: str, verifier: TokenVerifier) -> None:
    assert refusal(verifier, token) in {"malformed", "algorithm"}


@pytest.mark.parametrize("payload", [b"", b"[]", b"7", b"{", b'{"a":' * 9000, b"\xff"])
def test_a_signed_payload_that_is_no_object_is_refused(
    payload: bytes, verifier: TokenVerifier
) -> None:
    assert refusal(verifier, signed(payload)) == "malformed"


def test_without_keys_tokens_need_no_signature_and_may_have_none() -> None:
    verifier = TokenVerifier(settings(unsecured=True, issuer="", audience=()), None)
    claims = {"sub": "ann", "exp": NOW_S + 60}
    assert verifier.verify(unsigned({"alg": "none"}, claims), NOW_S * 1000).name == "ann"
    assert refusal(verifier, unsigned({"alg": "none"}, claims, b"x")) == "algorithm"
    assert refusal(verifier, KEY.token()) == "algorithm"
    assert refusal(verifier, unsigned({"alg": "none"}, {"sub": "ann"})) == "no-exp"

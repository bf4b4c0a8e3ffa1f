"""Keys of identity providers: which are taken, where they are read from, and when again."""

import json
from pathlib import Path
from typing import Any

import pytest

from broker.security.oauth import keys as module
from broker.security.oauth.keys import IdentityKeys, KeysUnusable, parse_keys
from tests.support.certificates import authority, signed
from tests.support.identity_provider import SigningKey, identity_provider, jwks
from tests.unit.broker.security.oauth.test_tokens import KEY, settings

RSA = SigningKey("r", "RS256")
P256 = KEY.public()


def document(*entries: Any) -> bytes:
    return json.dumps({"keys": entries}).encode()


@pytest.mark.parametrize(
    ("entry", "algorithms"),
    [
        (RSA.public(), {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}),
        (RSA.public(alg="PS256"), {"PS256"}),
        (P256, {"ES256"}),
        (SigningKey("s", "ES384").public(), {"ES384"}),
        (SigningKey("s", "EdDSA").public(), {"EdDSA"}),
        ({**P256, "x5c": ["ignored"]}, {"ES256"}),
    ],
)
def test_a_key_verifies_what_fits_it(entry: dict[str, Any], algorithms: set[str]) -> None:
    (key,) = parse_keys(document(entry, {"kty": "new", "kid": "n"}), "here").values()
    assert key.algorithms == algorithms


@pytest.mark.parametrize(
    "entry",
    [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "a"},
        SigningKey("w", "RS256", bits=1024).public(),
        {**P256, "use": "enc"},
        {**P256, "d": "AAAA"},
        {**P256, "x": "AAAA"},
        {**P256, "x": 7},
        {**P256, "crv": "secp256k1"},
        {**P256, "crv": ["P-256"]},
        {**P256, "alg": "RS256"},
        {**P256, "alg": ["ES256"]},
        {**P256, "kid": 7},
        {**P256, "kid": "k" * 1001},
        {"kty": ["RSA"]},
        RSA.public(n=None),
        "text",
        None,
    ],
)
def test_what_can_verify_nothing_is_no_key(entry: Any) -> None:
    with pytest.raises(KeysUnusable, match="here has no public key"):
        parse_keys(document(entry), "here")
    assert list(parse_keys(document(entry, P256), "here")) == ["key-1"]


@pytest.mark.parametrize(
    "text", [b"", b"{}", b"[]", b'{"keys": 1}', b"\xff", b"[" * 100_000, b"<html>"]
)
def test_what_is_no_key_set_is_refused(text: bytes) -> None:
    with pytest.raises(KeysUnusable, match="here is no JSON Web Key Set"):
        parse_keys(text, "here")


def test_keys_of_a_file_are_read_again_in_time(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    path.write_bytes(jwks(KEY))
    keys = IdentityKeys(settings(jwks_url=path.as_uri()), now_ms=0)
    assert not keys.is_due(3_599_999)
    assert keys.is_due(3_600_000)
    path.write_bytes(jwks(KEY, RSA))
    keys.reload(3_600_000)
    assert len(keys) == 2
    assert not keys.is_due(3_600_001)


def test_an_unknown_key_causes_one_reading_in_a_while(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    path.write_bytes(jwks(KEY))
    keys = IdentityKeys(settings(jwks_url=path.as_uri()), now_ms=0)
    for number in range(1000):
        assert keys.find(f"unknown-{number}") is None
    assert not keys.is_due(9_999)
    assert keys.is_due(10_000)
    keys.reload(10_000)
    assert not keys.is_due(60_000)
    keys.find("unknown")
    assert keys.is_due(20_000)


def test_a_failed_reading_keeps_the_keys_and_backs_off(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    path.write_bytes(jwks(KEY))
    keys = IdentityKeys(settings(jwks_url=path.as_uri()), now_ms=0)
    path.write_text("half-writ")
    now_ms, waits = 1_000_000, []
    for _ in range(9):
        with pytest.raises(KeysUnusable):
            keys.reload(now_ms)
        assert keys.find("key-1") is not None
        wait_ms = next(ms for ms in range(20_000) if keys.is_due(now_ms + ms))
        now_ms += wait_ms
        waits.append(wait_ms)
    assert waits == [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]
    path.write_bytes(jwks(KEY))
    keys.reload(now_ms)
    assert not keys.is_due(now_ms + 3_599_999)


def test_a_first_reading_that_fails_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "none.json"
    with pytest.raises(KeysUnusable, match=f"{path.as_uri()} cannot be read: .*No such file"):
        IdentityKeys(settings(jwks_url=path.as_uri()), now_ms=0)


def test_a_huge_document_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DOCUMENT_BYTES_MAX", 100)
    path = tmp_path / "jwks.json"
    path.write_bytes(jwks(KEY))
    with pytest.raises(KeysUnusable, match="has more than 100 bytes"):
        IdentityKeys(settings(jwks_url=path.as_uri()), now_ms=0)


def test_keys_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trusted = authority(tmp_path)
    certificate = signed(tmp_path, trusted, "provider")
    with identity_provider(certificate) as provider:
        chosen = settings(jwks_url=provider.jwks_url)
        with pytest.raises(KeysUnusable, match="CERTIFICATE_VERIFY_FAILED"):
            IdentityKeys(chosen, now_ms=0)
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
        assert len(IdentityKeys(chosen, now_ms=0)) == 1
        elsewhere = provider.jwks_url.replace("/jwks", "/elsewhere")
        with pytest.raises(KeysUnusable, match="redirects to another host"):
            IdentityKeys(settings(jwks_url=elsewhere), now_ms=0)
        missing = provider.jwks_url.replace("/jwks", "/missing")
        with pytest.raises(KeysUnusable, match="404"):
            IdentityKeys(settings(jwks_url=missing), now_ms=0)

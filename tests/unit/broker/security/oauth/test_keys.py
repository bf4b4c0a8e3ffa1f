"""Keys of identity providers: which are taken, where they are read from, and when again."""

import json
import socket
import ssl
from http.client import IncompleteRead, RemoteDisconnected
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import OpenerDirector

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
    ("text", "reason"),
    [
        (b"", "it is not JSON (line 1, column 1)"),
        (b"{}", "it has no list of keys"),
        (b"[]", "it has no list of keys"),
        (b'{"keys": 1}', "it has no list of keys"),
        (b"\xff", "it is not JSON, nor any text"),
        (b"[" * 100_000, "its JSON is nested too deeply"),
        (b"<html>", "it is not JSON (line 1, column 1)"),
        (b'{"keys": ' + b"9" * 5000 + b"}", "a number in it has too many digits"),
    ],
)
def test_what_is_no_key_set_is_refused(text: bytes, reason: str) -> None:
    with pytest.raises(KeysUnusable) as caught:
        parse_keys(text, "here")
    assert str(caught.value) == (
        f"here is no JSON Web Key Set: {reason}; give the address that the provider publishes as "
        "its jwks_uri"
    )


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
    assert complaint(path.as_uri()) == (
        f"{FIELD}{path.as_uri()} cannot be read: No such file or directory; put the keys into a "
        "file there that the broker may read"
    )


FIELD = "sasl.oauthbearer.jwks.endpoint.url = "


def complaint(url: str) -> str:
    with pytest.raises(KeysUnusable) as caught:
        IdentityKeys(settings(jwks_url=url), now_ms=0)
    return str(caught.value)


def no_tls() -> ssl.SSLError:
    """What a client of TLS gets from a server that has none."""
    answer = ssl.MemoryBIO()
    answer.write(b"HTTP/1.1 400 Bad Request")
    client = ssl.create_default_context().wrap_bio(answer, ssl.MemoryBIO(), server_hostname="x")
    with pytest.raises(ssl.SSLError) as caught:
        client.do_handshake()
    return caught.value


@pytest.mark.parametrize(
    ("raised", "words"),
    [
        (URLError(ConnectionRefusedError(111, "Connection refused")),
         "Connection refused; see that the provider runs and that this machine reaches it"),
        (URLError(socket.gaierror(-2, "Name or service not known")),
         "its host is not found (Name or service not known); correct the host, or this machine's"),
        (TimeoutError("timed out"), "no answer in 5 s; see that the provider runs"),
        (URLError(TimeoutError("timed out")), "no answer in 5 s; see that the provider runs"),
        (URLError(no_tls()), "TLS fails there (wrong version number); give the provider's https:"),
        (IncompleteRead(b"x", 7), "IncompleteRead(1 bytes read, 7 more expected); give the"),
        (RemoteDisconnected("Remote end closed connection without response"),
         "Remote end closed connection without response; see that the provider runs"),
    ],
)  # fmt: skip
def test_why_an_address_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch, raised: Exception, words: str
) -> None:
    def opened(*_: object, **__: object) -> None:
        raise raised

    monkeypatch.setattr(OpenerDirector, "open", opened)
    said = complaint("https://identity.example.com/jwks")
    assert said.startswith(f"{FIELD}https://identity.example.com/jwks cannot be read: {words}")
    assert "urlopen" not in said


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
        said = complaint(provider.jwks_url)
        assert "cannot be read: its certificate is refused (unable to get" in said
        assert "name the file of its authority in the variable SSL_CERT_FILE" in said
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
        assert len(IdentityKeys(chosen, now_ms=0)) == 1
        elsewhere = provider.jwks_url.replace("/jwks", "/elsewhere")
        assert "redirects to another host" in complaint(elsewhere)
        missing = provider.jwks_url.replace("/jwks", "/missing")
        said = complaint(missing)
        assert said.startswith(f"{FIELD}{missing} cannot be read: it answers 404 ")
        assert said.endswith("; give the address that the provider publishes as its jwks_uri")

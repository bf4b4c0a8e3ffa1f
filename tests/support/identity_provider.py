"""A small identity provider: signing keys, their JWKS, and tokens by the client credentials grant.

`SigningKey` makes tokens without a server. `IdentityProvider` serves them over HTTP, with TLS when
it is given a certificate: `/jwks` (RFC 7517) and `/token` (RFC 6749 section 4.4), where every
client whose secret is `secret` gets a token with its id as the subject.
"""

import base64
import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

ISSUER, AUDIENCE = "https://identity.test", "tidelog"
SECRET = "secret"


class SigningKey:
    """A private key of an identity provider."""

    def __init__(self, key_id: str = "key-1", algorithm: str = "ES256", bits: int = 2048) -> None:
        self.key_id, self.algorithm = key_id, algorithm
        self.private: Any
        if algorithm == "EdDSA":
            self.private = ed25519.Ed25519PrivateKey.generate()
        elif algorithm.startswith("ES"):
            curves = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}
            self.private = ec.generate_private_key(curves[algorithm])
        else:
            self.private = rsa.generate_private_key(public_exponent=65537, key_size=bits)

    def public(self, **changed: Any) -> dict[str, Any]:
        """The public half, as it stands in a JWKS; None takes a member out."""
        kinds: dict[str, Any] = {"E": ECAlgorithm, "R": RSAAlgorithm, "P": RSAAlgorithm}
        kind = OKPAlgorithm if self.algorithm == "EdDSA" else kinds[self.algorithm[0]]
        described = kind.to_jwk(self.private.public_key(), as_dict=True)
        described.pop("key_ops", None)
        members = {**described, "kid": self.key_id, "use": "sig", **changed}
        return {name: value for name, value in members.items() if value is not None}

    def token(self, *, header: dict[str, Any] | None = None, **changed: Any) -> str:
        """A token of an hour ago, good for a minute; `changed` claims win, None takes one out."""
        now = int(time.time())
        claims = {"sub": "ann", "iss": ISSUER, "aud": AUDIENCE, "iat": now - 3600, "exp": now + 60}
        claims = {name: value for name, value in (claims | changed).items() if value is not None}
        return jwt.encode(
            claims,
            self.private,
            algorithm=self.algorithm,
            headers={"kid": self.key_id, **(header or {})},
        )


def unsigned(header: dict[str, Any], claims: dict[str, Any], signature: bytes = b"") -> str:
    """A token with any header, and any bytes as its signature."""
    parts = (json.dumps(header).encode(), json.dumps(claims).encode(), signature)
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def jwks(*keys: SigningKey) -> bytes:
    """The document with the public halves."""
    return json.dumps({"keys": [key.public() for key in keys]}).encode()


class IdentityProvider:
    """What a running one serves; `keys[0]` signs. Counts how often its keys were read."""

    def __init__(self, address: str, keys: list[SigningKey]) -> None:
        self.jwks_url, self.token_url = f"{address}/jwks", f"{address}/token"
        self.keys = keys
        self.readings = 0
        self.lifetime_s = 300


@contextmanager
def identity_provider(certificate: Path | None = None) -> Iterator[IdentityProvider]:
    """A provider on a free port of this machine; with `certificate` (a PEM file) over TLS."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    scheme = "http"
    if certificate is not None:
        scheme = "https"
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    address = f"{scheme}://127.0.0.1:{server.server_address[1]}"
    server.provider = made = IdentityProvider(address, [SigningKey()])  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    @property
    def provider(self) -> IdentityProvider:
        provider: IdentityProvider = self.server.provider  # type: ignore[attr-defined]
        return provider

    def do_GET(self) -> None:
        if self.path == "/jwks":
            self.provider.readings += 1
            self._answer(200, jwks(*self.provider.keys))
        elif self.path == "/elsewhere":
            self.send_response(302)
            self.send_header("Location", "https://localhost:1/jwks")
            self.end_headers()
        else:
            self._answer(404, b"{}")

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        basic = self.headers.get("Authorization", "").removeprefix("Basic ")
        client, _, secret = base64.b64decode(basic).decode().partition(":")
        grant = form.get("grant_type", [""])[0]
        if self.path != "/token" or grant != "client_credentials" or secret != SECRET:
            self._answer(401, b'{"error":"invalid_client"}')
            return
        lifetime_s = self.provider.lifetime_s
        token = self.provider.keys[0].token(sub=client, exp=int(time.time()) + lifetime_s)
        answer = {"access_token": token, "token_type": "Bearer", "expires_in": lifetime_s}
        self._answer(200, json.dumps(answer).encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""

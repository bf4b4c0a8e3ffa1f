"""The client's side of SASL over a `RawClient`, written from the RFCs."""

import base64
import hashlib
import hmac
import re

from protocol.api.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from protocol.api.sasl_handshake import SaslHandshakeRequest
from tests.support.broker import RawClient


async def log_in_plain(client: RawClient, name: str, password: str) -> SaslAuthenticateResponse:
    """Log in with PLAIN; the last answer of the broker."""
    await _handshake(client, "PLAIN")
    return await _send(client, f"\0{name}\0{password}".encode())


async def log_in_scram(
    client: RawClient,
    name: str,
    password: str,
    *,
    mechanism: str = "SCRAM-SHA-512",
    extension: str = "",
) -> SaslAuthenticateResponse:
    """Log in as RFC 5802 has it; the last answer of the broker.

    `extension` stands after the client's first message, for instance `,tokenauth=true`.
    """
    await _handshake(client, mechanism)
    algorithm = "sha" + mechanism.rpartition("-")[2]
    bare = f"n={name},r=nonce{extension}"
    first = await _send(client, f"n,,{bare}".encode())
    if first.error_code:
        return first
    match = re.fullmatch(rb"r=([^,]+),s=([^,]+),i=(\d+)", bytes(first.auth_bytes))
    assert match is not None, first
    salt, iterations = base64.b64decode(match[2]), int(match[3])
    key = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, iterations)
    client_key = hmac.digest(key, b"Client Key", algorithm)
    unproved = b"c=biws,r=" + match[1]
    message = b",".join([bare.encode(), bytes(first.auth_bytes), unproved])
    signature = hmac.digest(hashlib.new(algorithm, client_key).digest(), message, algorithm)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return await _send(client, unproved + b",p=" + base64.b64encode(proof))


async def log_in_with_token(
    client: RawClient, token_id: str, secret: bytes, *, mechanism: str = "SCRAM-SHA-512"
) -> SaslAuthenticateResponse:
    """Log in with a delegation token; the last answer of the broker."""
    password = base64.b64encode(secret).decode()
    return await log_in_scram(
        client, token_id, password, mechanism=mechanism, extension=",tokenauth=true"
    )


async def _handshake(client: RawClient, mechanism: str) -> None:
    answer = await client.request(SaslHandshakeRequest(mechanism=mechanism), 1)
    assert answer.error_code == 0, answer


async def _send(client: RawClient, token: bytes) -> SaslAuthenticateResponse:
    answer = await client.request(SaslAuthenticateRequest(auth_bytes=token), 2)
    assert isinstance(answer, SaslAuthenticateResponse)
    return answer

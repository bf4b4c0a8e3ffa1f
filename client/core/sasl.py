"""Authentication of a connection: SASL PLAIN and SCRAM-SHA-256/512.

A conversation over a connection whose versions are known; before it the broker answers nothing
else. A broker that limits the life of a session (KIP-368) closes the connection in the end, and the
next request opens another.

Source: KIP-43, KIP-152 (SASL in Kafka's frames), RFC 4616 (PLAIN), RFC 5802 (SCRAM).
"""

import base64
import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING

from client.core.options import Security
from client.errors import BrokerRefused, BrokerUnreachable
from protocol.api.sasl_authenticate import SaslAuthenticateRequest
from protocol.api.sasl_handshake import SaslHandshakeRequest

if TYPE_CHECKING:
    from client.core.connection import Connection

_ITERATIONS_MAX = 1_000_000
"""More would keep the client busy for seconds; Kafka's default is 4096."""


async def authenticate(connection: "Connection", security: Security) -> None:
    """Prove the user's name by the chosen mechanism.

    Raises:
        BrokerRefused: the broker knows no such mechanism, user or password.
        BrokerUnreachable: the connection ended, or the broker does not know the password.
    """
    handshake = await connection.call(
        SaslHandshakeRequest(mechanism=security.mechanism), min_version=1, max_version=1
    )
    if handshake.error_code:
        raise BrokerRefused(
            f"authenticating by {security.mechanism}",
            handshake.error_code,
            broker=connection.address,
            detail=f"the broker offers: {', '.join(handshake.mechanisms) or 'no mechanism'}",
        )
    if security.mechanism == "PLAIN":
        await _send(connection, security, f"\0{security.username}\0{security.password}")
    else:
        await _scram(connection, security)


async def _send(connection: "Connection", security: Security, text: str) -> str:
    """The broker's answer to one message."""
    answer = await connection.call(SaslAuthenticateRequest(auth_bytes=text.encode()), max_version=2)
    if answer.error_code:
        raise BrokerRefused(
            f"authenticating as {security.username!r}",
            answer.error_code,
            broker=connection.address,
            detail=answer.error_message,
        )
    return bytes(answer.auth_bytes).decode()


async def _scram(connection: "Connection", security: Security) -> None:
    """The four messages of RFC 5802, without channel binding."""
    algorithm = security.mechanism.removeprefix("SCRAM-").replace("-", "").lower()
    name = security.username.replace("=", "=3D").replace(",", "=2C")
    nonce = secrets.token_urlsafe(24)
    first_bare = f"n={name},r={nonce}"
    server_first = await _send(connection, security, f"n,,{first_bare}")
    try:
        fields = dict(part.split("=", 1) for part in server_first.split(","))
        server_nonce, salt, count = fields["r"], base64.b64decode(fields["s"]), int(fields["i"])
    except (KeyError, ValueError):
        raise _foreign(connection, "cannot be read") from None
    if not server_nonce.startswith(nonce):
        raise _foreign(connection, "has a foreign nonce")
    if not 1 <= count <= _ITERATIONS_MAX:
        raise _foreign(connection, f"wants {count} iterations; 1 to {_ITERATIONS_MAX} are allowed")
    salted = hashlib.pbkdf2_hmac(algorithm, security.password.encode(), salt, count)
    without_proof = f"c=biws,r={server_nonce}"
    signed = f"{first_bare},{server_first},{without_proof}".encode()
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    stored_key = hashlib.new(algorithm, client_key).digest()
    signature = hmac.digest(stored_key, signed, algorithm)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    last = f"{without_proof},p={base64.b64encode(proof).decode()}"
    server_final = await _send(connection, security, last)
    server_key = hmac.digest(salted, b"Server Key", algorithm)
    expected = base64.b64encode(hmac.digest(server_key, signed, algorithm)).decode()
    if f"v={expected}" not in server_final.split(","):
        raise _foreign(connection, "does not know the password")


def _foreign(connection: "Connection", problem: str) -> BrokerUnreachable:
    return BrokerUnreachable(
        f"{connection.address}: the SCRAM answer {problem}", broker=connection.address
    )

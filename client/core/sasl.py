"""Authentication of a connection: SASL PLAIN, SCRAM-SHA-256/512 and OAUTHBEARER.

A conversation over a connection whose versions are known; before it the broker answers nothing
else. A broker that limits the life of a session (KIP-368) closes the connection in the end, and the
next request opens another.

Source: KIP-43, KIP-152 (SASL in Kafka's frames), RFC 4616 (PLAIN), RFC 5802 (SCRAM), RFC 7628
(OAUTHBEARER).
"""

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from client.core.options import TOKEN_MECHANISM, Security
from client.core.parts import check
from client.errors import BrokerRefused, BrokerUnreachable, InvalidUse
from protocol.api.sasl_authenticate import SaslAuthenticateRequest
from protocol.api.sasl_handshake import SaslHandshakeRequest

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")

_ITERATIONS_MAX = 1_000_000
"""More would keep the client busy for seconds; Kafka's default is 4096."""


Call = Callable[..., Awaitable[Any]]
"""`Connection.call` of the connection."""


async def authenticate(call: Call, address: str, security: Security) -> None:
    """Prove the user's name by the chosen mechanism; `address` is the broker's, for messages.

    Raises:
        BrokerRefused: the broker knows no such mechanism, user or password, or not the token.
        BrokerUnreachable: the connection ended, or the broker does not know the password.
        InvalidUse: there is no token.
    """
    handshake = await call(
        SaslHandshakeRequest(mechanism=security.mechanism), min_version=1, max_version=1
    )
    if handshake.error_code:
        raise BrokerRefused(
            f"authenticating by {security.mechanism}",
            handshake.error_code,
            broker=address,
            detail=f"the broker offers: {', '.join(handshake.mechanisms) or 'no mechanism'}",
        )

    async def send(text: str) -> str:
        answer = await call(SaslAuthenticateRequest(auth_bytes=text.encode()), max_version=2)
        who = repr(security.username) if security.username else "the user of the token"
        check(f"authenticating as {who}", answer, address)
        return bytes(answer.auth_bytes).decode()

    if security.mechanism == "PLAIN":
        await send(f"\0{security.username}\0{security.password}")
    elif security.mechanism == TOKEN_MECHANISM:
        refusal = await send(f"n,,\1auth=Bearer {_token(security)}\1\1")
        if refusal:
            await send("\1")  # the answer to this is the error
            raise _foreign(address, f"refuses the token without an error: {refusal}")
    else:
        await _scram(send, address, security)


def _token(security: Security) -> str:
    """The token of this moment."""
    if security.token is not None:
        source, given = "what the function token returned", security.token()
    else:
        source = f"token_file={security.token_file!r}"
        try:
            given = Path(security.token_file).read_text("ascii")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidUse(f"{source}: {error}; give a file with the token") from None
    if not isinstance(given, str) or not _TOKEN.fullmatch(given.strip()):
        raise InvalidUse(f"{source} is no token: get one from the identity provider")
    return given.strip()


async def _scram(send: Callable[[str], Awaitable[str]], address: str, security: Security) -> None:
    """The four messages of RFC 5802, without channel binding."""
    algorithm = security.mechanism.removeprefix("SCRAM-").replace("-", "").lower()
    name = security.username.replace("=", "=3D").replace(",", "=2C")
    nonce = secrets.token_urlsafe(24)
    first_bare = f"n={name},r={nonce}"
    server_first = await send(f"n,,{first_bare}")
    try:
        fields = dict(part.split("=", 1) for part in server_first.split(","))
        server_nonce, salt, count = fields["r"], base64.b64decode(fields["s"]), int(fields["i"])
    except (KeyError, ValueError):
        raise _foreign(address, "cannot be read") from None
    if not server_nonce.startswith(nonce):
        raise _foreign(address, "has a foreign nonce")
    if not 1 <= count <= _ITERATIONS_MAX:
        raise _foreign(address, f"wants {count} iterations; 1 to {_ITERATIONS_MAX} are allowed")
    salted = hashlib.pbkdf2_hmac(algorithm, security.password.encode(), salt, count)
    without_proof = f"c=biws,r={server_nonce}"
    signed = f"{first_bare},{server_first},{without_proof}".encode()
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    stored_key = hashlib.new(algorithm, client_key).digest()
    signature = hmac.digest(stored_key, signed, algorithm)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    last = f"{without_proof},p={base64.b64encode(proof).decode()}"
    server_final = await send(last)
    server_key = hmac.digest(salted, b"Server Key", algorithm)
    expected = base64.b64encode(hmac.digest(server_key, signed, algorithm)).decode()
    if f"v={expected}" not in server_final.split(","):
        raise _foreign(address, "does not know the password")


def _foreign(address: str, problem: str) -> BrokerUnreachable:
    return BrokerUnreachable(f"{address}: the SASL answer {problem}", broker=address)

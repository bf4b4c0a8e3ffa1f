"""SCRAM: the examples of the RFCs, forged messages, and users that do not exist."""

import base64
import hashlib
import hmac
import re
from typing import Any

import pytest

from broker.principal import user
from broker.security.mechanism import AuthenticationFailed
from broker.security.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramCredential,
    ScramExchange,
    ScramMechanism,
    new_credential,
    salted,
    unknown_user_credential,
)

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512


class Client:
    """The client's side, written from RFC 5802 independently of the server's."""

    def __init__(self, name: str, password: str, mechanism: ScramMechanism) -> None:
        self.hash = mechanism.hash_name
        self.password = password
        self.bare = f"n={name.replace('=', '=3D').replace(',', '=2C')},r=abcdefgh"
        self.signature = b""

    def first(self) -> bytes:
        return f"n,,{self.bare}".encode()

    def final(self, challenge: bytes, *, binding: str = "biws", before_nonce: str = "") -> bytes:
        match = re.fullmatch(rb"r=([^,]+),s=([^,]+),i=(\d+)", challenge)
        assert match is not None
        nonce, salt, iterations = match[1], base64.b64decode(match[2]), int(match[3])
        key = hashlib.pbkdf2_hmac(self.hash, self.password.encode(), salt, iterations)
        client_key = hmac.digest(key, b"Client Key", self.hash)
        stored_key = hashlib.new(self.hash, client_key).digest()
        unproved = f"c={binding},r={before_nonce}".encode() + nonce
        message = self.bare.encode() + b"," + challenge + b"," + unproved
        proof = bytes(
            a ^ b
            for a, b in zip(client_key, hmac.digest(stored_key, message, self.hash), strict=True)
        )
        server_key = hmac.digest(key, b"Server Key", self.hash)
        self.signature = b"v=" + base64.b64encode(hmac.digest(server_key, message, self.hash))
        return unproved + b",p=" + base64.b64encode(proof)


def exchange_for(
    password: str = "secret", mechanism: ScramMechanism = SHA_512, **kwargs: Any
) -> ScramExchange:
    credential = new_credential(mechanism, password, iterations=ITERATIONS_MIN)
    return ScramExchange(mechanism, lambda _mechanism, _name: credential, **kwargs)


def test_the_example_of_rfc_7677() -> None:
    credential = ScramCredential(
        salt=base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="),
        stored_key=b"",
        server_key=b"",
        iterations=4096,
    )
    full = new_credential(SHA_256, "pencil", iterations=4096, salt=credential.salt)
    exchange = ScramExchange(
        SHA_256, lambda _mechanism, _name: full, nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    step = exchange.step(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert step.token == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    step = exchange.step(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert step.token == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert step.principal == user("user")


@pytest.mark.parametrize("mechanism", list(ScramMechanism))
@pytest.mark.parametrize("name", ["alice", "a,b=c", "jörg"])
def test_a_right_password_is_proved_to_both_sides(mechanism: ScramMechanism, name: str) -> None:
    exchange, client = exchange_for("pä55,=", mechanism), Client(name, "pä55,=", mechanism)
    challenge = exchange.step(client.first())
    assert challenge.principal is None
    step = exchange.step(client.final(challenge.token))
    assert (step.principal, step.token) == (user(name), client.signature)


def test_a_client_may_write_its_nonce_twice() -> None:
    """As librdkafka before 2.6.1 does, and Kafka lets it."""
    exchange, client = exchange_for(), Client("alice", "secret", SHA_512)
    challenge = exchange.step(client.first())
    step = exchange.step(client.final(challenge.token, before_nonce="abcdefgh"))
    assert (step.principal, step.token) == (user("alice"), client.signature)


def test_a_wrong_password_fails() -> None:
    exchange, client = exchange_for(), Client("alice", "Secret", SHA_512)
    challenge = exchange.step(client.first())
    with pytest.raises(AuthenticationFailed, match="credentials"):
        exchange.step(client.final(challenge.token))


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,n=,r=abc",
        b"n,,n=alice",
        b"n,,n=alice,r=",
        b"y,,n=alice,r=abc",
        b"p=tls-unique,,n=alice,r=abc",
        b"n,a=bob,n=alice,r=abc",
        b"n,,m=ext,n=alice,r=abc",
        b"n,,n=al=ice,r=abc",
        b"n,,n=al=2cice,r=abc",
        b"n,,n=alice,r=a,b",
        b"n,,n=alice,r=abc\xff",
        b"n,,n=alice,r=" + b"a" * 2048,
        b"n,,n=alice,r=abc,tokenauth=true",
    ],
)
def test_a_bad_first_message_fails(message: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        exchange_for().step(message)


def test_extensions_are_part_of_what_is_proved() -> None:
    exchange, client = exchange_for(), Client("alice", "secret", SHA_512)
    client.bare += ",x=1,y=2"
    step = exchange.step(client.final(exchange.step(client.first()).token))
    assert step.principal == user("alice")


@pytest.mark.parametrize(
    "change",
    [
        lambda final: final.replace(b"c=biws", b"c=eSws"),
        lambda final: final.replace(b"r=abcdefgh", b"r=abcdefgX"),
        lambda final: re.sub(rb"r=[^,]+", b"r=abcdefgh", final),
        lambda final: final[: final.index(b"p=")] + b"p=",
        lambda final: final[: final.index(b"p=")] + b"p=AAAA",
        lambda final: final[: final.index(b"p=")] + b"p=" + base64.b64encode(bytes(64)),
        lambda final: b"m=x," + final,
        lambda final: final + b"\xff",
        lambda final: b"",
    ],
)
def test_a_forged_final_message_fails(change: "object") -> None:
    exchange, client = exchange_for(), Client("alice", "secret", SHA_512)
    final = client.final(exchange.step(client.first()).token)
    assert callable(change)
    with pytest.raises(AuthenticationFailed):
        exchange.step(change(final))


def test_an_unknown_user_looks_like_any_other_until_the_proof() -> None:
    secret = b"s" * 32
    first = unknown_user_credential(SHA_512, "nobody", secret, ITERATIONS_MIN, 24)
    assert first == unknown_user_credential(SHA_512, "nobody", secret, ITERATIONS_MIN, 24)
    assert first.salt != unknown_user_credential(SHA_512, "nobodz", secret, ITERATIONS_MIN, 24).salt
    assert len(first.salt) == 24
    known = new_credential(SHA_512, "x", iterations=ITERATIONS_MIN)
    assert [len(first.salt), len(first.stored_key), len(first.server_key)] == [
        len(known.salt),
        len(known.stored_key),
        len(known.server_key),
    ]
    exchange, client = (
        ScramExchange(SHA_512, lambda _mechanism, _name: first),
        Client("nobody", "x", SHA_512),
    )
    challenge = exchange.step(client.first())
    with pytest.raises(AuthenticationFailed, match="credentials"):
        exchange.step(client.final(challenge.token))


@pytest.mark.parametrize("iterations", [ITERATIONS_MIN - 1, ITERATIONS_MAX + 1])
def test_iterations_have_bounds(iterations: int) -> None:
    with pytest.raises(ValueError, match=str(iterations)):
        new_credential(SHA_256, "x", iterations=iterations)


def test_a_credential_shows_no_secret() -> None:
    credential = new_credential(SHA_256, "hunter2", iterations=ITERATIONS_MIN)
    shown = repr(credential)
    for secret in (credential.salt, credential.stored_key, credential.server_key):
        assert repr(secret) not in shown
    assert salted(SHA_256, "hunter2", b"salt", 1) != b""

"""The states of a login: no order of requests lets in a client that has not proved who it is.

`LOGIN_ORDERS=200000` tries that many random orders.
"""

import os
import random
from dataclasses import dataclass

import pytest

from broker.principal import Principal, user
from broker.security.mechanism import TOKENS_MAX, AuthenticationFailed, Step
from broker.security.sasl import Admission, SaslSession, SaslState
from protocol.api_keys import ApiKey
from protocol.error_codes import ErrorCode

ORDERS = int(os.environ.get("LOGIN_ORDERS", "5000"))
LIFETIME_MS = 5_000
PROOFS = {b"ann": user("ann"), b"bob": user("bob")}
BEFORE_A_LOGIN = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
KEYS = (
    *(ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE),
    *(ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.CREATE_ACLS, 97, -1),
)
TOKENS = (b"ann", b"bob", b"more", b"wrong")


@dataclass(slots=True)
class Proof:
    """An exchange in which a token proves the user of this name, or asks for another token."""

    is_slow: bool = False
    claimed_name: str = ""

    def step(self, token: bytes) -> Step:
        if token == b"more":
            return Step(token=b"challenge")
        if token not in PROOFS:
            raise AuthenticationFailed("wrong")
        return Step(principal=PROOFS[token])


class Client:
    """One connection, as the gate and the handlers drive its session."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.now_ms = 0
        lifetimes = {"PLAIN": LIFETIME_MS} if rng.random() < 0.5 else {}
        self.session = SaslSession({"PLAIN": Proof, "OTHER": Proof}, max_reauth_ms=lifetimes)
        self.proved: Principal | None = None
        self.proved_ms = 0
        self.has_lifetime = bool(lifetimes)
        self.is_closed = False

    def send(self) -> None:
        """One random request."""
        self.now_ms += self.rng.choice([0, 1, 500, 2_000, LIFETIME_MS])
        if self.session.state is SaslState.RAW:
            self._token()
            return
        key = self.rng.choice(KEYS)
        admission = self.session.admit(key, self.now_ms)
        self._check(key, admission)
        if admission is not Admission.SERVE:
            self.is_closed = True
        elif key == ApiKey.API_VERSIONS:
            if self.rng.random() < 0.7:
                self.session.versions_answered()
        elif key == ApiKey.SASL_HANDSHAKE:
            self._handshake()
        elif key == ApiKey.SASL_AUTHENTICATE and self.session.exchange is not None:
            self._token()

    def _check(self, key: int, admission: Admission) -> None:
        if key not in BEFORE_A_LOGIN and admission is Admission.SERVE:
            assert self.proved is not None, "a request of a stranger is served"
            assert self.session.principal == self.proved
            assert self.session.state is SaslState.DONE
            if self.has_lifetime and self.session.mechanism == "PLAIN":
                assert self.now_ms <= self.proved_ms + LIFETIME_MS, "the session has ended"

    def _handshake(self) -> None:
        mechanism = self.rng.choice(["PLAIN", "PLAIN", "OTHER", "NONE"])
        try:
            code = self.session.handshake(mechanism, self.rng.randrange(2), self.now_ms)
        except AuthenticationFailed:
            self.is_closed = True
        else:
            self.is_closed = code == ErrorCode.UNSUPPORTED_SASL_MECHANISM

    def _token(self) -> None:
        token = self.rng.choice(TOKENS)
        try:
            step = self.session.begin_token().step(token)
            result = self.session.stepped(step, now_ms=self.now_ms, wall_ms=self.now_ms)
        except AuthenticationFailed:
            self.is_closed = True
            return
        if result.is_done:
            assert self.proved in (None, PROOFS[token]), "the principal has changed"
            self.proved, self.proved_ms = PROOFS[token], self.now_ms


def test_no_order_of_requests_lets_a_stranger_in() -> None:
    rng = random.Random(ORDERS)
    let_in = 0
    for _ in range(ORDERS):
        client = Client(rng)
        for _ in range(rng.randrange(1, 12)):
            client.send()
            assert client.session.is_authenticated == (client.proved is not None)
            if client.is_closed:
                break
        let_in += client.proved is not None
    assert ORDERS / 50 < let_in < ORDERS


def test_an_exchange_without_an_end_is_ended() -> None:
    session = SaslSession({"PLAIN": Proof})
    assert session.handshake("PLAIN", 1, 0) == ErrorCode.NONE
    for _ in range(TOKENS_MAX):
        session.stepped(session.begin_token().step(b"more"), now_ms=0, wall_ms=0)
    with pytest.raises(AuthenticationFailed, match="too-many-tokens"):
        session.begin_token()

"""OAUTHBEARER messages as clients write them, and malformed ones."""

from pathlib import Path

import pytest

from broker.principal import user
from broker.security.mechanism import AuthenticationFailed
from broker.security.oauth.exchange import MESSAGE_BYTES_MAX, REFUSAL, OAuthBearerExchange
from broker.security.oauth.keys import IdentityKeys
from broker.security.oauth.tokens import TokenVerifier
from tests.support.identity_provider import jwks
from tests.unit.broker.security.oauth.test_tokens import KEY, NOW_S, settings

TOKEN = KEY.token(exp=NOW_S + 60)


@pytest.fixture
def exchange(tmp_path: Path) -> OAuthBearerExchange:
    path = tmp_path / "jwks.json"
    path.write_bytes(jwks(KEY))
    chosen = settings(jwks_url=path.as_uri())
    return OAuthBearerExchange(
        TokenVerifier(chosen, IdentityKeys(chosen, now_ms=0)), lambda: NOW_S * 1000
    )


@pytest.mark.parametrize(
    "message",
    [
        f"n,,\1auth=Bearer {TOKEN}\1\1",
        f"n,a=ann,\1auth=Bearer {TOKEN}\1\1",
        f"n,,\1auth=bearer  {TOKEN}\1\1",
        f"n,,\1auth=BEARER {TOKEN}\1host=x\1port=9092\1\1",
        f"n,,\1logicalCluster=a b\t\r\n\1auth=Bearer {TOKEN}\1\1",
    ],
)
def test_messages_of_clients(message: str, exchange: OAuthBearerExchange) -> None:
    step = exchange.step(message.encode())
    assert (step.token, step.principal, step.expires_ms) == (
        b"", user("ann"), (NOW_S + 60) * 1000
    )  # fmt: skip
    assert exchange.claimed_name == "ann"


@pytest.mark.parametrize(
    "message",
    [
        "", "n,,", "n,,\1\1", f"y,,\1auth=Bearer {TOKEN}\1\1", f"n,,\1auth=Bearer {TOKEN}\1",
        f"n,,\1auth=Bearer {TOKEN}\1\1\1", f"n,,\1auth=Basic {TOKEN}\1\1", "n,,\1auth=Bearer\1\1",
        f"n,,\1auth=Bearer {TOKEN}\1auth=Bearer {TOKEN}\1\1", f"n,,\1Auth=Bearer {TOKEN}\1\1",
        f"n,a=,\1auth=Bearer {TOKEN}\1\1", f"n,a=a=x,\1auth=Bearer {TOKEN}\1\1",
        f"n,,\1auth=Bearer {TOKEN}\1k1=v\1\1", f"n,,\1auth=Bearer {TOKEN} x\1\1",
        f"p=tls-unique,,\1auth=Bearer {TOKEN}\1\1", f"n,,\1auth=Bearer {TOKEN}ä\1\1",
    ],
)  # fmt: skip
def test_malformed_messages(message: str, exchange: OAuthBearerExchange) -> None:
    with pytest.raises(AuthenticationFailed) as caught:
        exchange.step(message.encode())
    assert (caught.value.reason, caught.value.message) == ("malformed", None)


def test_a_message_has_a_size(exchange: OAuthBearerExchange) -> None:
    message = f"n,,\1auth=Bearer {TOKEN}\1k=".encode()
    exchange.step(message.ljust(MESSAGE_BYTES_MAX - 2, b"x") + b"\1\1")
    with pytest.raises(AuthenticationFailed, match="too-large"):
        exchange.step(message.ljust(MESSAGE_BYTES_MAX - 1, b"x") + b"\1\1")


def test_a_name_that_is_not_the_tokens_is_refused(exchange: OAuthBearerExchange) -> None:
    with pytest.raises(AuthenticationFailed) as caught:
        exchange.step(f"n,a=b=2Cc,\1auth=Bearer {TOKEN}\1\1".encode())
    assert caught.value.message == (
        "Authentication failed: Client requested an authorization id (b,c) that is different from "
        "the token's principal name (ann)"
    )


@pytest.mark.parametrize("acknowledgement", [b"\1", b"", f"n,,\1auth=Bearer {TOKEN}\1\1".encode()])
def test_a_refused_token_takes_a_second_round(
    acknowledgement: bytes, exchange: OAuthBearerExchange
) -> None:
    expired = KEY.token(exp=NOW_S - 100)
    step = exchange.step(f"n,,\1auth=Bearer {expired}\1\1".encode())
    assert (step.token, step.principal) == (b'{"status":"invalid_token"}', None)
    with pytest.raises(AuthenticationFailed) as caught:
        exchange.step(acknowledgement)
    assert (caught.value.reason, caught.value.message) == ("expired", REFUSAL)

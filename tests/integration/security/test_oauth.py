"""OAUTHBEARER as clients meet it: logins, the end of a token's time, keys that change."""

import asyncio
import logging
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from broker.errors import StartError
from broker.net.limits import LINGER_MS
from client.admin import Admin
from client.core.options import Security
from client.errors import BrokerRefused, InvalidUse
from protocol.api.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from protocol.error_codes import ErrorCode
from tests.integration.security.test_sasl import handshake, works
from tests.support.broker import RawClient, RunningBroker, running_broker
from tests.support.clock import FrozenClock, FrozenTimer
from tests.support.identity_provider import AUDIENCE, ISSUER, SigningKey, jwks, unsigned

REFUSAL = '{"status":"invalid_token"}'
SETTINGS: dict[str, Any] = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl_enabled_mechanisms": "OAUTHBEARER,SCRAM-SHA-512",
    "connection_failed_authentication_delay_ms": "0",
}


class Provider:
    """An identity provider whose keys are a file, in the time of the test's clock."""

    def __init__(self, folder: Path, clock: FrozenClock) -> None:
        self.path, self.clock = folder / "jwks.json", clock
        self.key = SigningKey()
        self.publish()

    def publish(self) -> None:
        self.path.write_bytes(jwks(self.key))

    def token(self, name: str = "ann", lifetime_s: int = 60, **claims: Any) -> str:
        now_s = self.clock.wall_ms() // 1000
        return self.key.token(sub=name, iat=now_s, exp=now_s + lifetime_s, **claims)

    @property
    def settings(self) -> dict[str, Any]:
        return {
            **SETTINGS,
            "sasl_oauthbearer_jwks_endpoint_url": self.path.as_uri(),
            "sasl_oauthbearer_expected_issuer": ISSUER,
            "sasl_oauthbearer_expected_audience": AUDIENCE,
        }


class PromptClock(FrozenClock):
    """A clock on which the answer to a failure, and the end of its connection, are due at once."""

    def call_later(self, delay_ms: int, callback: Callable[[], object]) -> FrozenTimer:
        return super().call_later(0 if delay_ms == LINGER_MS else delay_ms, callback)


@pytest.fixture
async def clock() -> AsyncIterator[FrozenClock]:
    """A clock that fires what is due now, and stands still."""
    made = PromptClock()

    async def fire() -> None:
        while True:
            made.advance(0)
            await asyncio.sleep(0.005)

    firing = asyncio.create_task(fire())
    yield made
    firing.cancel()


@pytest.fixture
def provider(tmp_path: Path, clock: FrozenClock) -> Provider:
    return Provider(tmp_path, clock)


@pytest.fixture
async def secured(
    tmp_path: Path, clock: FrozenClock, provider: Provider
) -> AsyncIterator[RunningBroker]:
    async with running_broker(tmp_path / "data", clock=clock, **provider.settings) as running:
        yield running


@pytest.fixture
async def client(secured: RunningBroker) -> RawClient:
    return await secured.client()


async def send(client: RawClient, message: str, version: int = 2) -> SaslAuthenticateResponse:
    request = SaslAuthenticateRequest(auth_bytes=message.encode())
    answer = await client.request(request, version)
    assert isinstance(answer, SaslAuthenticateResponse)
    return answer


async def log_in(client: RawClient, token: str, version: int = 2) -> SaslAuthenticateResponse:
    assert await handshake(client, "OAUTHBEARER") == 0
    return await send(client, f"n,,\1auth=Bearer {token}\1\1", version)


async def refused(client: RawClient, token: str) -> None:
    """Log in with a token that proves nothing, as clients do it."""
    first = await log_in(client, token)
    assert (first.error_code, bytes(first.auth_bytes)) == (0, REFUSAL.encode())
    assert first.session_lifetime_ms == 0
    last = await send(client, "\1")
    assert (last.error_code, last.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, REFUSAL)
    assert await client.is_closed_by_broker()


@pytest.mark.parametrize(("version", "lifetime_ms"), [(0, 0), (1, 60_000), (2, 60_000)])
async def test_a_session_lives_as_long_as_its_token(
    version: int, lifetime_ms: int, client: RawClient, provider: Provider, clock: FrozenClock
) -> None:
    answer = await log_in(client, provider.token(), version)
    assert (answer.error_code, bytes(answer.auth_bytes)) == (0, b"")
    assert answer.session_lifetime_ms == lifetime_ms
    clock.advance(60_000)
    assert await works(client)
    clock.advance(1)
    client.send(SaslAuthenticateRequest(auth_bytes=b""), 2)
    assert await client.is_closed_by_broker()


async def test_a_newer_token_prolongs_a_session(
    client: RawClient, provider: Provider, clock: FrozenClock
) -> None:
    await log_in(client, provider.token())
    for _ in range(3):
        clock.advance(50_000)
        answer = await log_in(client, provider.token())
        assert (answer.error_code, answer.session_lifetime_ms) == (0, 60_000)
    assert await works(client)


async def test_a_newer_token_of_another_user_ends_it(client: RawClient, provider: Provider) -> None:
    await log_in(client, provider.token())
    answer = await log_in(client, provider.token("eve"))
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == (
        "Cannot change principals during re-authentication from User.ann: User.eve"
    )
    assert await client.is_closed_by_broker()


async def test_the_setting_for_all_sessions_also_bounds_one(
    tmp_path: Path, clock: FrozenClock, provider: Provider
) -> None:
    settings = provider.settings | {"connections_max_reauth_ms": "10000"}
    async with running_broker(tmp_path / "data", clock=clock, **settings) as running:
        answer = await log_in(await running.client(), provider.token())
        assert answer.session_lifetime_ms == 10_000
        answer = await log_in(await running.client(), provider.token(lifetime_s=5))
        assert answer.session_lifetime_ms == 5_000


async def test_a_bad_token_is_refused_in_two_rounds(
    client: RawClient, provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    token = provider.token(aud="another-service")
    await refused(client, token)
    (line,) = [record.message for record in caplog.records if "failed to auth" in record.message]
    assert line.endswith("with OAUTHBEARER on listener SASL_PLAINTEXT: audience")
    assert token not in caplog.text


@pytest.mark.parametrize("is_acknowledged", [True, False])
async def test_a_refused_token_is_noted_once_acknowledged_or_not(
    secured: RunningBroker,
    provider: Provider,
    caplog: pytest.LogCaptureFixture,
    is_acknowledged: bool,
) -> None:
    client = await secured.client()
    await log_in(client, provider.token(aud="another-service"))
    if is_acknowledged:
        await send(client, "\1")
    await client.close()
    (line,) = [record.message for record in caplog.records if "failed to auth" in record.message]
    assert line.endswith("with OAUTHBEARER on listener SASL_PLAINTEXT: audience")
    counted = secured.broker.metrics.authentications
    assert counted["SASL_PLAINTEXT", "OAUTHBEARER", "failed"] == 1


async def test_a_malformed_message_is_refused_at_once(client: RawClient) -> None:
    assert await handshake(client, "OAUTHBEARER") == 0
    answer = await send(client, "n,,\1auth=Basic x\1\1")
    assert answer.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL "
        "mechanism OAUTHBEARER"
    )
    assert await client.is_closed_by_broker()


async def test_a_new_key_is_read_once_a_token_names_it(
    secured: RunningBroker, provider: Provider, clock: FrozenClock
) -> None:
    former = provider.token()
    provider.key = SigningKey("key-2")
    provider.publish()
    await refused(await secured.client(), provider.token())
    clock.advance(11_000)
    await secured.broker.jobs.run_now("identity-keys")
    assert (await log_in(await secured.client(), provider.token())).session_lifetime_ms == 60_000
    await refused(await secured.client(), former)


async def test_keys_that_cannot_be_read_leave_the_former_ones(
    secured: RunningBroker,
    provider: Provider,
    clock: FrozenClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    provider.path.write_text("{")
    for _ in range(3):
        clock.advance(3_600_000)
        await secured.broker.jobs.run_now("identity-keys")
    failures = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert ["keeps the keys" in record.message for record in failures] == [True]
    assert (await log_in(await secured.client(), provider.token())).error_code == 0
    caplog.clear()
    caplog.set_level(logging.INFO)
    provider.publish()
    await secured.broker.reload(secured.broker.config)
    assert f"keys read from {provider.path.as_uri()}: 1" in caplog.text


async def test_a_refused_token_hurts_no_one(secured: RunningBroker, provider: Provider) -> None:
    bystander = await secured.client()
    await log_in(bystander, provider.token())

    async def fail() -> None:
        stranger = await RawClient.connect(secured.host, secured.port)
        await refused(stranger, SigningKey().token())
        await stranger.close()

    for _ in range(10):
        await asyncio.gather(*(fail() for _ in range(10)))
        assert await works(bystander)


async def test_unsigned_tokens_pass_where_a_setting_says_so(
    tmp_path: Path, clock: FrozenClock, caplog: pytest.LogCaptureFixture
) -> None:
    settings = SETTINGS | {"sasl_oauthbearer_unsecured": "true"}
    async with running_broker(tmp_path / "data", clock=clock, **settings) as running:
        assert "anyone may be any user" in caplog.text
        claims = {"sub": "ann", "exp": clock.wall_ms() // 1000 + 60}
        token = unsigned({"alg": "none"}, claims)
        assert (await log_in(await running.client(), token)).session_lifetime_ms == 60_000


async def test_a_start_without_keys_is_refused(tmp_path: Path, provider: Provider) -> None:
    provider.path.unlink()
    with pytest.raises(StartError, match=r"sasl.oauthbearer.jwks.endpoint.url = file:.*No such"):
        async with running_broker(tmp_path / "data", **provider.settings):
            pass


async def test_a_start_without_the_library_names_the_extra(
    tmp_path: Path, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in list(sys.modules):
        if name.startswith("broker.security.oauth"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "jwt", None)
    with pytest.raises(StartError, match=r"OAUTHBEARER needs a package .*'tidelog\[oauth\]'"):
        async with running_broker(tmp_path / "data", **provider.settings):
            pass


class TestTheBundledClient:
    """In real time: its tokens are real ones."""

    @pytest.fixture
    async def secured(self, tmp_path: Path, provider: Provider) -> AsyncIterator[RunningBroker]:
        async with running_broker(tmp_path / "data", **provider.settings) as running:
            yield running

    async def test_a_function_or_a_file_gives_the_token(
        self, secured: RunningBroker, provider: Provider, tmp_path: Path
    ) -> None:
        path, address = tmp_path / "token", f"{secured.host}:{secured.port}"
        path.write_text(provider.key.token() + "\n")
        for chosen in ({"token": provider.key.token}, {"token_file": str(path)}):
            security = Security(mechanism="OAUTHBEARER", **chosen)
            async with Admin(address, security=security) as admin:
                assert await admin.topics() == {}

    async def test_a_new_connection_takes_a_newer_token(
        self, secured: RunningBroker, provider: Provider
    ) -> None:
        made = []

        def token() -> str:
            made.append(provider.key.token(exp=time.time() + 1))
            return made[-1]

        security = Security(mechanism="OAUTHBEARER", token=token)
        async with Admin(f"{secured.host}:{secured.port}", security=security) as admin:
            await admin.topics()
            first = len(made)
            await asyncio.sleep(1.2)
            await admin.topics()
        assert len(made) > first

    @pytest.mark.parametrize(
        ("token", "error", "sentence"),
        [
            (SigningKey().token(), BrokerRefused, 'as the user of the token.*"invalid_token"'),
            ("not a token", InvalidUse, "what the function token returned is no token"),
            (None, InvalidUse, "token_file='/none': .*; give a file with the token"),
        ],
    )
    async def test_a_bad_token_is_reported(
        self, secured: RunningBroker, token: str | None, error: type[Exception], sentence: str
    ) -> None:
        security = Security(mechanism="OAUTHBEARER", token_file="/none")
        if token is not None:
            security = Security(mechanism="OAUTHBEARER", token=lambda: token)
        with pytest.raises(error, match=sentence):
            async with Admin(f"{secured.host}:{secured.port}", security=security) as admin:
                await admin.topics()


@pytest.mark.slow
async def test_librdkafka_prolongs_its_session(tmp_path: Path, provider: Provider) -> None:
    def tokens(_: str) -> tuple[str, float]:
        # It gets a newer one before a session ends, else that would begin the next session.
        return provider.key.token(exp=time.time() + 4), time.time() + 2

    def produce(address: str) -> list[Any]:
        errors: list[Any] = []
        settings: dict[str, Any] = {
            "bootstrap.servers": address, "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "OAUTHBEARER", "oauth_cb": tokens, "error_cb": errors.append,
        }  # fmt: skip

        def delivered(error: Any, _: object) -> None:
            if error is not None:
                errors.append(error)

        producer = Producer(settings)
        end_s = time.monotonic() + 8
        while time.monotonic() < end_s:
            producer.produce("t", b"x", on_delivery=delivered)
            producer.poll(0.1)
        assert producer.flush(10) == 0
        return errors

    async with running_broker(tmp_path / "data", **provider.settings) as running:
        assert await asyncio.to_thread(produce, running.bootstrap) == []
        metrics = running.broker.metrics
        ok = "SASL_PLAINTEXT", "OAUTHBEARER", "ok"
        assert metrics.reauthentications[ok] >= 2
        assert metrics.authentications.keys() == metrics.reauthentications.keys() == {ok}

"""SASL as clients meet it: each state of the exchange, with the answers of Apache Kafka 4.3.1."""

import asyncio
import os
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker.net import limits
from broker.net.limits import LINGER_MS
from broker.security import failed_logins
from broker.security.credentials import Upsertion
from broker.security.scram import ScramMechanism, salted
from protocol.api.api_versions import ApiVersionsRequest
from protocol.api.metadata import MetadataRequest
from protocol.api.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from protocol.api.sasl_handshake import SaslHandshakeRequest
from protocol.api_keys import ApiKey
from protocol.error_codes import ErrorCode
from tests.support.broker import ConnectionClosed, RawClient, RunningBroker, running_broker
from tests.support.clock import FrozenClock
from tests.support.kafka_peer import resident_bytes
from tests.support.logins import log_in_scram

HELLO = ApiVersionsRequest(client_software_name="x", client_software_version="1")
SALT = b"0123456789abcdef"
ITERATIONS = 4096
PASSWORDS = {"alice": "secret", "bob": "other"}


def add_users(running: RunningBroker) -> None:
    outcomes = running.broker.security.alter_users(
        [],
        [
            Upsertion(
                name=name,
                mechanism=ScramMechanism.SCRAM_SHA_512,
                iterations=ITERATIONS,
                salt=SALT,
                salted_password=salted(ScramMechanism.SCRAM_SHA_512, password, SALT, ITERATIONS),
            )
            for name, password in PASSWORDS.items()
        ],
    )
    assert [outcome.code for outcome in outcomes] == [0, 0]


SETTINGS: dict[str, Any] = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl_enabled_mechanisms": "PLAIN,SCRAM-SHA-512",
    "connection_failed_authentication_delay_ms": "0",
}


@pytest.fixture
async def secured(tmp_path: Path) -> AsyncIterator[RunningBroker]:
    async with running_broker(tmp_path / "data", **SETTINGS) as running:
        add_users(running)
        yield running


@pytest.fixture
async def client(secured: RunningBroker) -> RawClient:
    return await secured.client()


def plain(name: str, password: str, authzid: str = "") -> SaslAuthenticateRequest:
    return SaslAuthenticateRequest(auth_bytes=f"{authzid}\0{name}\0{password}".encode())


async def handshake(client: RawClient, mechanism: str = "PLAIN", version: int = 1) -> int:
    answer = await client.request(SaslHandshakeRequest(mechanism=mechanism), version)
    return int(answer.error_code)


async def log_in(
    client: RawClient, name: str = "alice", password: str | None = None, version: int = 2
) -> SaslAuthenticateResponse:
    assert await handshake(client) == 0
    answer = await client.request(plain(name, password or PASSWORDS[name]), version)
    assert isinstance(answer, SaslAuthenticateResponse)
    return answer


async def works(client: RawClient) -> bool:
    return bool((await client.request(MetadataRequest(topics=[]), 12)).brokers)


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_plain(client: RawClient, version: int) -> None:
    answer = await log_in(client, version=version)
    assert (answer.error_code, bytes(answer.auth_bytes), answer.session_lifetime_ms) == (0, b"", 0)
    assert await works(client)


async def test_an_address_that_fails_again_and_again_waits_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer still comes, and a good login of the same address does not wait for it."""
    monkeypatch.setattr(failed_logins, "FREE", 2)
    monkeypatch.setattr(limits, "AUTHENTICATION_TICKS", 1)
    settings = SETTINGS | {"connection_failed_authentication_delay_ms": "400"}
    async with running_broker(tmp_path / "data", **settings) as running:
        add_users(running)
        loop = asyncio.get_running_loop()
        waited_s = []
        for _ in range(5):
            began = loop.time()
            answer = await log_in(await running.client(), "alice", "wrong")
            waited_s.append(loop.time() - began)
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        expected_s = (0.4, 0.4, 0.8, 1.6, 3.2)
        assert all(
            waited >= expected for waited, expected in zip(waited_s, expected_s, strict=True)
        )
        slow = asyncio.create_task(log_in(await running.client(), "alice", "wrong"))
        await asyncio.sleep(0.1)
        assert (await log_in(await running.client())).error_code == 0
        assert not slow.done()
        slow.cancel()


async def test_scram(secured: RunningBroker) -> None:
    client = await secured.client()
    answer = await log_in_scram(client, "alice", "secret")
    assert answer.error_code == 0
    assert bytes(answer.auth_bytes).startswith(b"v=")
    assert await works(client)


@pytest.mark.parametrize("name", ["alice", "nobody"])
async def test_a_wrong_password_and_an_unknown_user_look_alike(
    secured: RunningBroker, name: str
) -> None:
    client = await secured.client()
    answer = await log_in(client, name, "wrong")
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        "Authentication failed: Invalid username or password",
    )
    assert await client.is_closed_by_broker()
    other = await secured.client()
    answer = await log_in_scram(other, name, "wrong")
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        "Authentication failed during authentication due to invalid credentials with SASL "
        "mechanism SCRAM-SHA-512",
    )
    assert await other.is_closed_by_broker()


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (b"alice\0secret", "expected 3 tokens, got 2"),
        (b"\0\0secret", "username not specified"),
        (b"\0alice\0", "password not specified"),
        (b"bob\0alice\0secret", "authorization id that is different from username"),
        (b"\0alice\0\xff", "invalid credentials with SASL mechanism PLAIN"),
        (b"\0alice\0" + b"x" * 1024, "invalid credentials with SASL mechanism PLAIN"),
    ],
)
async def test_bad_plain_tokens(client: RawClient, token: bytes, message: str) -> None:
    assert await handshake(client) == 0
    answer = await client.request(SaslAuthenticateRequest(auth_bytes=token), 1)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert message in answer.error_message
    assert await client.is_closed_by_broker()


async def test_an_authorization_id_equal_to_the_user_passes(client: RawClient) -> None:
    assert await handshake(client) == 0
    answer = await client.request(plain("alice", "secret", "alice"), 1)
    assert answer.error_code == 0


async def test_one_api_versions_comes_first(client: RawClient) -> None:
    assert (await client.request(HELLO, 3)).error_code == 0
    assert (await log_in(client)).error_code == 0


async def test_a_refused_api_versions_may_be_asked_again(client: RawClient) -> None:
    bad = ApiVersionsRequest(client_software_name="!", client_software_version="1")
    assert (await client.request(bad, 3)).error_code == ErrorCode.INVALID_REQUEST
    assert (await client.request(HELLO, 3)).error_code == 0
    client.send(HELLO, 3)
    assert await client.is_closed_by_broker()


@pytest.mark.parametrize(
    "early",
    [MetadataRequest(topics=[]), SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret")],
)
async def test_nothing_is_served_before_the_handshake(client: RawClient, early: object) -> None:
    client.send(early, 1)
    assert await client.is_closed_by_broker()


async def test_a_bare_kerberos_token_closes(client: RawClient) -> None:
    client.send_raw((4).to_bytes(4, "big") + b"\x60\x01\x02\x03")
    assert await client.is_closed_by_broker()


@pytest.mark.parametrize("mechanism", ["plain", "GSSAPI", "", "SCRAM-SHA-256"])
async def test_an_unknown_mechanism(client: RawClient, mechanism: str) -> None:
    answer = await client.request(SaslHandshakeRequest(mechanism=mechanism), 1)
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert sorted(answer.mechanisms) == ["PLAIN", "SCRAM-SHA-512"]
    assert await client.is_closed_by_broker()


async def test_another_request_in_the_middle(client: RawClient) -> None:
    assert await handshake(client) == 0
    answer = await client.request(HELLO, 3)
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert await client.is_closed_by_broker()


async def test_an_unknown_version_in_the_middle_is_answered_in_the_oldest(
    client: RawClient,
) -> None:
    assert await handshake(client) == 0
    client.send_raw(struct.pack(">ihhihb", 11, ApiKey.API_VERSIONS, 99, 7, -1, 0))
    answer = await client.receive_frame()
    assert struct.unpack_from(">ih", answer) == (7, ErrorCode.ILLEGAL_SASL_STATE)
    assert await client.is_closed_by_broker()


async def test_bare_tokens_after_an_old_handshake(client: RawClient) -> None:
    assert await handshake(client, version=0) == 0
    token = b"\0alice\0secret"
    client.send_raw(len(token).to_bytes(4, "big") + token)
    assert await client.receive_frame() == b""
    assert await works(client)


async def test_a_wrong_bare_token_closes_without_an_answer(client: RawClient) -> None:
    assert await handshake(client, version=0) == 0
    token = b"\0alice\0wrong"
    client.send_raw(len(token).to_bytes(4, "big") + token)
    with pytest.raises(ConnectionClosed):
        await client.receive_frame()


async def test_a_whole_login_in_one_write(client: RawClient) -> None:
    client.send(HELLO, 3)
    client.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    client.send(plain("alice", "secret"), 1)
    client.send(MetadataRequest(topics=[]), 12)
    answers = [await client.receive() for _ in range(4)]
    assert [answer.error_code for answer in answers[:3]] == [0, 0, 0]
    assert answers[3].brokers


async def test_nothing_after_a_failed_login_is_answered(client: RawClient) -> None:
    assert await handshake(client) == 0
    client.send(plain("alice", "wrong"), 1)
    client.send(MetadataRequest(topics=[]), 12)
    assert (await client.receive()).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    with pytest.raises(ConnectionClosed):
        await client.receive()


async def test_sasl_requests_after_the_login_are_refused_and_harmless(client: RawClient) -> None:
    await log_in(client)
    assert await handshake(client) == ErrorCode.ILLEGAL_SASL_STATE
    answer = await client.request(plain("alice", "secret"), 1)
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert await works(client)


async def test_a_large_frame_before_the_login_closes(client: RawClient) -> None:
    client.send_raw((65_537).to_bytes(4, "big"))
    assert await client.is_closed_by_broker()


async def test_large_frames_after_the_login_pass(client: RawClient) -> None:
    await log_in(client)
    request = MetadataRequest(topics=[], include_cluster_authorized_operations=False)
    assert (await client.request(request, 12, client_id="x" * 30_000)).brokers
    client.send_raw((70_000).to_bytes(4, "big"))
    assert not await client.is_closed_by_broker(timeout_s=0.2)


async def test_the_failure_waits(tmp_path: Path) -> None:
    clock = FrozenClock()
    settings = SETTINGS | {"connection_failed_authentication_delay_ms": "700"}
    async with running_broker(tmp_path / "data", clock=clock, **settings) as running:
        add_users(running)
        client = await running.client()
        assert await handshake(client) == 0
        client.send(plain("alice", "wrong"), 1)
        await asyncio.sleep(0.3)  # the password is checked in another thread
        clock.advance(699)
        assert not client.has_received
        clock.advance(1)
        answer = await client.receive()
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert not await client.is_closed_by_broker(timeout_s=0.2)
        clock.advance(LINGER_MS)
        assert await client.is_closed_by_broker()


FAILED_LOGINS = int(os.environ.get("FAILED_LOGINS", "200"))


@pytest.mark.timeout(120 + FAILED_LOGINS // 4)
async def test_failed_logins_leave_nothing_and_hurt_no_one(secured: RunningBroker) -> None:
    bystander = await secured.client()
    await log_in(bystander)

    async def fail(number: int) -> None:
        stranger = await RawClient.connect(secured.host, secured.port)
        name = "alice" if number % 2 else f"stranger-{number}"
        attempt = log_in if number % 10 == 0 else log_in_scram
        answer = await attempt(stranger, name, "wrong")
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert await stranger.is_closed_by_broker()
        await stranger.close()

    async def storm(count: int) -> None:
        for start in range(0, count, 20):
            await asyncio.gather(*(fail(number) for number in range(start, start + 20)))
            assert await works(bystander)
        async with asyncio.timeout(10):
            while len(secured.broker.connections) > 1:
                await asyncio.sleep(0.01)

    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    await storm(200)
    before, memory = descriptors(), resident_bytes(os.getpid())
    await storm(FAILED_LOGINS)
    assert descriptors() <= before
    assert resident_bytes(os.getpid()) - memory < 8 << 20
    failed = secured.broker.metrics.authentications
    assert sum(n for (_, _, result), n in failed.items() if result == "failed") == (
        200 + FAILED_LOGINS
    )


class TestSessionsWithALifetime:
    """KIP-368."""

    @pytest.fixture
    def clock(self) -> FrozenClock:
        return FrozenClock()

    @pytest.fixture
    async def secured(self, tmp_path: Path, clock: FrozenClock) -> AsyncIterator[RunningBroker]:
        settings = SETTINGS | {"connections_max_reauth_ms": "60000"}
        async with running_broker(tmp_path / "data", clock=clock, **settings) as running:
            add_users(running)
            yield running

    async def test_a_client_authenticates_again(
        self, client: RawClient, clock: FrozenClock
    ) -> None:
        assert (await log_in(client)).session_lifetime_ms == 60_000
        clock.advance(50_000)
        assert (await log_in(client)).session_lifetime_ms == 60_000
        clock.advance(50_000)
        assert await works(client)

    async def test_the_time_of_a_further_login_is_measured(
        self, secured: RunningBroker, client: RawClient, clock: FrozenClock
    ) -> None:
        assert (await log_in(client)).error_code == ErrorCode.NONE
        measured = secured.broker.metrics.reauthentication_ns
        assert measured == {}
        clock.advance(2_000)
        await handshake(client)
        clock.advance(70)
        answer = await client.request(plain("alice", PASSWORDS["alice"]), 2)
        assert answer.error_code == ErrorCode.NONE
        (distribution,) = measured.values()
        assert distribution.cumulative(1e6)[1] == 70

    async def test_an_expired_session_closes_when_it_is_used(
        self, client: RawClient, clock: FrozenClock
    ) -> None:
        await log_in(client)
        clock.advance(60_001)
        assert not await client.is_closed_by_broker(timeout_s=0.1)
        client.send(MetadataRequest(topics=[]), 12)
        assert await client.is_closed_by_broker()

    async def test_authentication_is_still_possible_after_the_end(
        self, client: RawClient, clock: FrozenClock
    ) -> None:
        await log_in(client)
        clock.advance(60_001)
        assert (await log_in(client)).error_code == 0
        assert await works(client)

    async def test_not_twice_within_a_second(self, client: RawClient, clock: FrozenClock) -> None:
        await log_in(client)
        await log_in(client)
        assert await handshake(client) == ErrorCode.ILLEGAL_SASL_STATE
        clock.advance(1_000)
        assert await handshake(client) == 0

    @staticmethod
    async def pass_the_delay(clock: FrozenClock) -> None:
        """Let the broker see the request, and then answer it."""
        await asyncio.sleep(0.3)
        clock.advance(1)

    @staticmethod
    async def is_closed(client: RawClient, clock: FrozenClock) -> bool:
        """Whether the connection ends a moment after its last answer."""
        open_still = not await client.is_closed_by_broker(timeout_s=0.2)
        clock.advance(LINGER_MS)
        return open_still and await client.is_closed_by_broker()

    async def test_the_principal_must_stay(self, client: RawClient, clock: FrozenClock) -> None:
        await log_in(client)
        assert await handshake(client) == 0
        client.send(plain("bob", "other"), 1)
        await self.pass_the_delay(clock)
        answer = await client.receive()
        assert (answer.error_code, answer.error_message) == (
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            "Cannot change principals during re-authentication from User.alice: User.bob",
        )
        assert await self.is_closed(client, clock)

    @pytest.mark.parametrize(("mechanism", "is_on_offer"), [("SCRAM-SHA-512", 1), ("GSSAPI", 0)])
    async def test_the_mechanism_must_stay(
        self, client: RawClient, clock: FrozenClock, mechanism: str, is_on_offer: bool
    ) -> None:
        await log_in(client)
        client.send(SaslHandshakeRequest(mechanism=mechanism), 1)
        await self.pass_the_delay(clock)
        if is_on_offer:
            assert (await client.receive()).error_code == 0
        assert await self.is_closed(client, clock)

    async def test_another_request_in_the_middle_closes(
        self, client: RawClient, clock: FrozenClock
    ) -> None:
        await log_in(client)
        assert await handshake(client) == 0
        client.send(HELLO, 3)
        await self.pass_the_delay(clock)
        assert (await client.receive()).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await self.is_closed(client, clock)

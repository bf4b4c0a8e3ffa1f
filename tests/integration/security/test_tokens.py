"""Delegation tokens of a running broker: sessions, restarts, secrets.

Its answers are compared with Kafka's in `tests.compat.test_delegation_tokens`.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cli.security.offline_users import add_user
from protocol.api.create_delegation_token import CreateDelegationTokenRequest
from protocol.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.api.describe_delegation_token import DescribeDelegationTokenRequest
from protocol.api.expire_delegation_token import ExpireDelegationTokenRequest
from protocol.api.metadata import MetadataRequest
from protocol.api.renew_delegation_token import RenewDelegationTokenRequest
from protocol.error_codes import ErrorCode
from protocol.structs import TokenPrincipal
from tests.support.broker import ConnectionClosed, RawClient, RunningBroker, running_broker
from tests.support.clock import FrozenClock
from tests.support.logins import log_in_scram, log_in_with_token

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
PASSWORD, KEY = "secret", "canary-of-the-token-key"


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "key").write_text(KEY)
    for name in ("ann", "bob", "admin"):
        add_user(str(tmp_path / "data"), name, PASSWORD, "SCRAM-SHA-512", 4096)
    return {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
        "connections.max.idle.ms": str(3 * DAY_MS),
        "delegation.token.master.key": f"file:{tmp_path}/key",
    }


@pytest.fixture
async def running(
    tmp_path: Path, settings: dict[str, str], clock: FrozenClock
) -> AsyncIterator[RunningBroker]:
    async with running_broker(tmp_path / "data", clock=clock, **settings) as running:
        yield running


async def user(running: RunningBroker, name: str) -> RawClient:
    client = await running.client()
    assert (await log_in_scram(client, name, PASSWORD)).error_code == 0
    return client


async def created(client: RawClient, **fields: Any) -> Any:
    answer = await client.request(CreateDelegationTokenRequest(**fields), 3)
    assert answer.error_code == 0, answer
    return answer


async def shown(client: RawClient) -> list[Any]:
    answer = await client.request(DescribeDelegationTokenRequest(owners=None), 3)
    return list(answer.tokens)


async def is_refused(running: RunningBroker, clock: FrozenClock, token: Any) -> bool:
    """Whether a login with the token fails; the answer waits until the clock moves."""
    client = await running.client()
    login = asyncio.create_task(log_in_with_token(client, token.token_id, token.hmac))
    while not login.done():
        clock.advance(100)
        await asyncio.sleep(0.05)
    return (await login).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_a_session_ends_when_its_token_expires(
    running: RunningBroker, clock: FrozenClock
) -> None:
    token = await created(await user(running, "bob"))
    bearer = await running.client()
    answer = await log_in_with_token(bearer, token.token_id, token.hmac)
    assert (answer.error_code, answer.session_lifetime_ms) == (0, DAY_MS)
    clock.advance(DAY_MS)
    assert (await bearer.request(MetadataRequest(topics=[]), 12)).brokers
    clock.advance(1)
    with pytest.raises(ConnectionClosed):
        await bearer.request(MetadataRequest(topics=[]), 12)
    assert await is_refused(running, clock, token)


async def test_a_renewed_token_opens_sessions_again(
    running: RunningBroker, clock: FrozenClock
) -> None:
    ann = await user(running, "ann")
    carl = [TokenPrincipal(principal_type="User", principal_name="bob")]
    token = await created(ann, renewers=carl)
    clock.advance(DAY_MS // 2)
    renewal = RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=-1)
    assert (await (await user(running, "bob")).request(renewal, 2)).error_code == 0
    clock.advance(DAY_MS // 2 + 1)
    bearer = await running.client()
    answer = await log_in_with_token(bearer, token.token_id, token.hmac)
    assert (answer.error_code, answer.session_lifetime_ms) == (0, DAY_MS // 2 - 1)


async def test_expired_tokens_are_removed_in_time(
    running: RunningBroker, clock: FrozenClock
) -> None:
    bob = await user(running, "bob")
    await created(bob, max_lifetime_ms=1000)
    lasting = await created(bob)
    clock.advance(1001)
    assert len(await shown(bob)) == 2  # as in Kafka
    clock.advance(2 * HOUR_MS)
    while len(await shown(bob)) > 1:
        await asyncio.sleep(0.01)
    assert [token.token_id for token in await shown(bob)] == [lasting.token_id]


async def test_a_restart_keeps_tokens(
    tmp_path: Path, settings: dict[str, str], clock: FrozenClock
) -> None:
    async with running_broker(tmp_path / "data", clock=clock, **settings) as running:
        token = await created(await user(running, "bob"))
        gone = await created(await user(running, "bob"))
        removal = ExpireDelegationTokenRequest(hmac=gone.hmac, expiry_time_period_ms=-1)
        assert (await (await user(running, "bob")).request(removal, 2)).error_code == 0
    async with running_broker(tmp_path / "data", clock=clock, **settings) as running:
        assert [one.token_id for one in await shown(await user(running, "bob"))] == [token.token_id]
        bearer = await running.client()
        assert (await log_in_with_token(bearer, token.token_id, token.hmac)).error_code == 0
    (tmp_path / "key").write_text("another key")
    async with running_broker(tmp_path / "data", clock=clock, **settings) as running:
        assert await is_refused(running, clock, token)


async def test_no_secret_is_shown(
    running: RunningBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    token = await created(await user(running, "bob"))
    bearer = await running.client()
    await log_in_with_token(bearer, token.token_id, token.hmac)
    asked = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
    answer = await (await user(running, "admin")).request(
        DescribeConfigsRequest(resources=[asked]), 4
    )
    rows = {row.name: row for row in answer.results[0].configs}
    row = rows["delegation.token.secret.key"]
    assert (row.value, row.is_sensitive, row.read_only) == (None, True, True)
    journal = (tmp_path / "data" / "metadata.journal").read_bytes()
    for secret in (KEY.encode(), bytes(token.hmac), bytes(token.hmac).hex().encode()):
        assert secret not in journal
        assert repr(secret)[2:-1] not in caplog.text
    assert f"made the delegation token {token.token_id} of User:bob" in caplog.text

"""What `/metrics` says of logins, rights, limits and TLS, and that strangers choose no label."""

import asyncio
import ssl
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from protocol.error_codes import ErrorCode
from tests.integration.operator.test_metrics import get, samples
from tests.integration.security.test_quotas import alter
from tests.integration.security.test_sasl import add_users, handshake, log_in, works
from tests.support.broker import ConnectionClosed, batch, running_broker
from tests.support.certificates import authority, signed
from tests.support.clock import FrozenClock
from tests.support.logins import log_in_scram
from tests.support.requests import create_topic, produce_request

_T = TypeVar("_T")

PRODUCE = 11
SETTINGS: dict[str, Any] = {
    "listeners": "SASL_SSL://127.0.0.1:0",
    "sasl_enabled_mechanisms": "PLAIN,SCRAM-SHA-512",
    "connection_failed_authentication_delay_ms": "0",
    "connections_max_reauth_ms": "60000",
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:alice",
    "metrics_listener": "127.0.0.1:0",
}


async def _ticking(clock: FrozenClock, work: Coroutine[Any, Any, _T]) -> _T:
    """The result of `work`, while the clock goes on: a refusal waits for it, be it for 0 ms."""
    task = asyncio.create_task(work)
    while not task.done():
        await asyncio.sleep(0.01)
        clock.advance(1)
    return await task


async def test_logins_rights_limits_and_tls_are_counted(tmp_path: Path) -> None:
    signer = authority(tmp_path)
    settings = SETTINGS | {"ssl_keystore_location": str(signed(tmp_path, signer, "server"))}
    tls = ssl.create_default_context(cafile=str(signer))
    clock = FrozenClock(time.time_ns() // 1_000_000)  # certificates are not valid in the past
    async with running_broker(tmp_path / "data", clock=clock, **settings) as running:
        add_users(running)
        alice, bob = await running.client(tls), await running.client(tls)
        for client, name in ((alice, "alice"), (bob, "bob")):
            assert (await log_in(client, name)).error_code == 0
        clock.advance(2_000)
        assert (await log_in(alice)).error_code == 0
        await create_topic(alice, "t")
        refused = await bob.request(produce_request("t", batch(b"x")), PRODUCE)
        (answer,) = refused.responses[0].partition_responses
        assert answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        stranger = await running.client(tls)
        failed = await _ticking(clock, log_in_scram(stranger, "sneaky-user", "wrong"))
        assert failed.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        other = await running.client(tls)
        refusal = await _ticking(clock, handshake(other, "SNEAKY-MECHANISM"))
        assert refusal == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        clock.advance(60_001)
        with pytest.raises(ConnectionClosed):
            await works(bob)
        assert (await log_in(alice)).error_code == 0
        await alter(alice, {"user": "alice"}, producer_byte_rate=1.0)
        await alice.request(produce_request("t", batch(b"x")), PRODUCE)

        found = await samples(running)
        listener = "SASL_SSL"
        assert found["tidelog_authentications_total", listener, "PLAIN", "ok"] == 2
        assert found["tidelog_authentications_total", listener, "SCRAM-SHA-512", "failed"] == 1
        assert found["tidelog_reauthentications_total", listener, "PLAIN", "ok"] == 2
        assert found["tidelog_reauthentication_seconds_count", listener] == 2
        assert found["tidelog_sessions_expired_total", listener] == 1
        assert found["tidelog_authorizations_total", "denied"] == 1
        assert found["tidelog_authorizations_total", "allowed"] >= 1
        assert found["tidelog_acls",] == 0
        assert found["tidelog_users",] == 2
        assert found["tidelog_quotas",] == 1
        assert found["tidelog_throttled_connections",] == 1
        assert found["tidelog_throttle_seconds_count", "produce"] == 1
        assert found["tidelog_quota_bound", "", "", "producer_byte_rate", "alice"] == 1
        assert found["tidelog_quota_rate", "", "", "producer_byte_rate", "alice"] > 1
        assert found["tidelog_tls_handshakes_total", listener, "ok"] == 4
        assert found["tidelog_tls_handshake_seconds_count", listener] == 4
        of_suites = {
            key: n for key, n in found.items() if key[0] == "tidelog_tls_connections_total"
        }
        assert sum(of_suites.values()) == 4
        assert {key[-1] for key in of_suites} == {"TLSv1.3"}
        (subject,) = [
            key[2]
            for key in found
            if key[:2] == ("tidelog_certificate_expiry_timestamp_seconds", listener)
        ]
        assert subject.startswith("CN=")
        assert found["tidelog_certificate_expiry_timestamp_seconds", listener, subject] > 1e9
        assert found["tidelog_listener_connections", listener] >= 1
        assert found["tidelog_audit_lines_lost_total",] == 0
        _, shown = await get(running, "/metrics")
        assert b"sneaky" not in shown.lower()

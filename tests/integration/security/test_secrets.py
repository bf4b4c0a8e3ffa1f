"""Secrets stay where they are: canaries in every one, looked for in all that can be read."""

import logging
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from protocol.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.api.sasl_authenticate import SaslAuthenticateRequest
from tests.integration.security.test_sasl import add_users, handshake, log_in, plain
from tests.support.broker import RawClient, running_broker
from tests.support.certificates import authority, openssl, signed
from tests.support.logins import log_in_scram

CANARY = "canary-4711"


async def test_no_secret_is_logged_shown_or_described(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    signer = authority(tmp_path)
    signed(tmp_path, signer, "server")
    key = openssl(
        "pkcs8", "-topk8", "-in", str(tmp_path / "server.key"), "-passout", f"pass:{CANARY}",
        "-v2", "aes256",
    ).decode()  # fmt: skip
    chain = openssl("x509", "-in", str(tmp_path / "server.pem")).decode()
    monkeypatch.setenv("SECRET_KEY", key.replace("\n", " "))
    monkeypatch.setenv("SECRET_CHAIN", chain.replace("\n", " "))
    monkeypatch.setenv("SECRET_PASSWORD", CANARY)
    settings: dict[str, Any] = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "sasl_enabled_mechanisms": "PLAIN,SCRAM-SHA-512",
        "connection_failed_authentication_delay_ms": "0",
        "ssl_keystore_key": "env:SECRET_KEY",
        "ssl_keystore_certificate_chain": "env:SECRET_CHAIN",
        "ssl_key_password": "env:SECRET_PASSWORD",
        "metrics_listener": "127.0.0.1:0",
        "metrics_auth": "bearer",
        "metrics_auth_token": "env:SECRET_PASSWORD",
    }
    async with running_broker(tmp_path / "data", **settings) as running:
        add_users(running)

        async def fresh() -> RawClient:
            return await running.client()

        for name in ("alice", CANARY):  # people type passwords into the field for names
            await log_in(await fresh(), name, CANARY)
            await log_in_scram(await fresh(), name, CANARY)
        undecodable = await fresh()
        assert await handshake(undecodable, "PLAIN") == 0
        undecodable.send(SaslAuthenticateRequest(auth_bytes=b"\0alice\0\xff" + CANARY.encode()), 2)
        await undecodable.receive()
        bug = RuntimeError("a bug")
        with monkeypatch.context() as planted:
            planted.setattr("broker.security.plain.PlainExchange.step", Mock(side_effect=bug))
            broken = await fresh()
            assert await handshake(broken, "PLAIN") == 0
            broken.send(plain("alice", CANARY), 2)
            shown_by_bug = repr(await broken.receive())
        assert "a bug" in caplog.text
        broken = await fresh()
        assert await handshake(broken) == 0
        broken.send_raw(b"\0\0\0\x20" + CANARY.encode() + bytes(32 - len(CANARY)))
        assert await broken.is_closed_by_broker()
        early = await fresh()
        early.send(plain("alice", CANARY), 2)
        assert await early.is_closed_by_broker()
        await running.broker.reload(running.broker.config)
        client = await fresh()
        await log_in(client)
        answer = await client.request(
            DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(
                        resource_type=4, resource_name="1", configuration_keys=None
                    )
                ],
                include_synonyms=True,
                include_documentation=True,
            ),
            4,
        )
        (resource,) = answer.results
        assert resource.error_code == 0, resource.error_message
        described = {entry.name: entry for entry in resource.configs}
        for name in (
            "ssl.key.password",
            "ssl.keystore.key",
            "ssl.keystore.certificate.chain",
            "metrics.auth.token",
        ):
            entry = described[name]
            assert (entry.value, entry.is_sensitive) == (None, True), name
            assert {synonym.value for synonym in entry.synonyms} <= {None}, name
        assert not described["listeners"].is_sensitive
        shown = [shown_by_bug, repr(answer), repr(running.broker.config), caplog.text]
    shown += [
        path.read_bytes().decode("latin-1") for path in (tmp_path / "data").rglob("*")
        if path.is_file()
    ]  # fmt: skip
    for text in shown:
        assert CANARY not in text
        assert key.splitlines()[1] not in text
    assert "authenticated as User:alice with PLAIN" in caplog.text

"""References to providers in settings that a client changes while the broker runs."""

from pathlib import Path
from typing import Any

import pytest

from broker.errors import StartError
from tests.integration.security.test_dynamic_certificates import (
    alter,
    described,
    fingerprint,
    shown,
)
from tests.support.broker import running_broker
from tests.support.certificates import authority, signed

LOCATION = "listener.name.ssl.ssl.keystore.location"
CANARY = "/canary-4711"


async def test_a_client_may_refer_and_sees_no_value(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    signer = authority(tmp_path)
    one, two = (signed(tmp_path, signer, name, subject="/CN=x") for name in ("one", "two"))
    values = tmp_path / "values.properties"
    values.write_text(f"two={two}\nsecret={CANARY}\nmany=127.0.0.1:77\n")
    data = tmp_path / "data"
    settings: dict[str, Any] = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "ssl_keystore_location": str(one),
        "config_providers": "file",
        "config_providers_file_param_allowed_paths": str(tmp_path),
    }

    def reference(key: str) -> str:
        return f"${{file:{values}:{key}}}"

    async with running_broker(data, **settings) as running:
        assert await alter(running, {LOCATION: reference("two")}) == (0, "")
        assert await shown(running) == fingerprint(two)
        entry = (await described(running, LOCATION))[LOCATION]
        assert entry.value == reference("two")
        code, text = await alter(running, {LOCATION: reference("secret")})
        assert code != 0
        assert reference("secret") in text
        assert CANARY not in text
        for bad, why in (
            (reference("gone"), "has no key gone"),
            ("${file:/etc/passwd:root}", "not at or below allowed.paths"),
            ("${env:HOME}", "there is no provider 'env'"),
        ):
            code, text = await alter(running, {LOCATION: bad})
            assert code != 0
            assert why in text
        code, text = await alter(running, {"max.connections": reference("secret")})
        assert code != 0
        assert "what it refers to is no valid value" in text
        assert CANARY not in text
        overrides = "max.connections.per.ip.overrides"
        assert await alter(running, {overrides: reference("many")}) == (0, "")
        assert (await described(running, overrides))[overrides].value == reference("many")
        assert running.broker.topics.broker_config.max_connections_per_ip_overrides == (
            "127.0.0.1:77",
        )
        assert await shown(running) == fingerprint(two)
    journal = (data / "metadata.journal").read_text()
    assert str(two) not in journal
    assert "127.0.0.1:77" not in journal
    async with running_broker(data, **settings) as running:
        assert await shown(running) == fingerprint(two)
    values.write_text("")
    with pytest.raises(StartError, match="has no key two"):
        async with running_broker(data, **settings):
            pass
    assert CANARY not in caplog.text

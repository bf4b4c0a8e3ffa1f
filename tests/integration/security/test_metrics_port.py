"""With an authorizer the metrics port is no way round the rules."""

import asyncio
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from storage.log.log import Log
from tests.support.broker import RunningBroker, running_broker
from tests.support.requests import create_topic

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
PATHS = [
    "/metrics",
    "/explain?topic=secret&partition=0&at=0",
    "/segments?topic=secret",
    "/retention?topic=secret",
    "/skew?topic=secret",
    "/healthz",
]


async def answers(running: RunningBroker) -> list[tuple[int, bytes]]:
    def get(path: str) -> tuple[int, bytes]:
        url = f"http://127.0.0.1:{running.ready.metrics_port}{path}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    return [await asyncio.to_thread(get, path) for path in PATHS]


@pytest.mark.parametrize("has_authorizer", [True, False])
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
async def test_names_are_shown_on_loopback_or_without_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, has_authorizer: bool
) -> None:
    settings: dict[str, Any] = {
        "metrics_listener": f"{host}:0",
        "authorizer_class_name": STANDARD if has_authorizer else "",
        "super_users": "User:ANONYMOUS",
    }
    async with running_broker(tmp_path / "data", **settings) as running:
        await create_topic(await running.client(), "secret")
        shows = host == "127.0.0.1" or not has_authorizer
        found = await answers(running)
        assert [status for status, _ in found] == [200, *([200] * 4 if shows else [403] * 4), 200]
        assert any(b"secret" in body for _, body in found) is shows
        assert b"tidelog_batches_appended" in found[0][1]

        monkeypatch.setattr(Log, "offline_reason", property(lambda log: "broken"))
        status, body = (await answers(running))[-1]
        assert (status, b" is offline: broken" in body) == (503, shows)
        monkeypatch.undo()

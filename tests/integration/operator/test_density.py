"""The density variant of a topic, through the protocol: set, described, changed, explained."""

from pathlib import Path

from client.admin import Admin
from tests.support.broker import RunningBroker, batch, running_broker
from tests.support.explain import explain_lookup
from tests.support.requests import create_topic, produce

MINUTE_MS = 60_000


async def index_used(running: RunningBroker, at_ms: int) -> tuple[str, int]:
    """Which index a lookup started from, and the offset that it found."""
    url = f"127.0.0.1:{running.ready.metrics_port}"
    explained = await explain_lookup(url, "t", 0, at_ms)
    (search,) = explained["searched"]
    return search["index"], explained["found"]["offset"]


async def test_variant_is_a_topic_setting_that_may_change_at_run_time(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with running_broker(data, metrics_listener="127.0.0.1:0") as running:
        client = await running.client()
        await create_topic(client, "t", time_index_variant="minute-map")
        for minute in (5, 2, 6, 3):
            await produce(client, "t", batch(str(minute), timestamp=minute * MINUTE_MS))
        assert await index_used(running, 2 * MINUTE_MS) == ("minute-map", 0)
        async with Admin(running.bootstrap) as admin:
            described = (await admin.topic_configs("t"))["time.index.variant"]
            assert described.value == "minute-map"
            for variant in ("interval", "minute", "none"):
                await admin.alter_topic_configs("t", {"time.index.variant": variant})
                used = "timeindex" if variant == "none" else variant
                assert await index_used(running, 5 * MINUTE_MS + 1) == (used, 2)
    assert not list((data / "t-0").glob("*.density"))

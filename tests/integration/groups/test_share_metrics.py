"""The figures of share groups on the metrics port: what members do is counted as it is stored."""

from pathlib import Path

from tests.integration.operator.test_metrics import samples
from tests.support.broker import RunningBroker, batch, running_broker
from tests.support.clock import FrozenClock
from tests.support.requests import create_topic, produce
from tests.support.share_group import ShareMember, set_group


async def figures(running: RunningBroker) -> dict[tuple[str, ...], float]:
    """The samples of share groups: name without its prefix, and label values by label."""
    return {
        (name.removeprefix("tidelog_share_"), *labels): value
        for (name, *labels), value in (await samples(running)).items()
        if name.startswith("tidelog_share_")
    }


async def test_figures_follow_what_members_do(tmp_path: Path, clock: FrozenClock) -> None:
    async with running_broker(
        tmp_path / "data", clock=clock, metrics_listener="127.0.0.1:0"
    ) as running:
        nothing = await figures(running)
        assert nothing["sessions",] == nothing["state_records_total",] == 0
        client = await running.client()
        await set_group(client, "g", share_auto_offset_reset="earliest")
        topic_id = await create_topic(client, "t")
        await produce(client, "t", batch(*"abcdefgh"))
        member = ShareMember(client, "g", topic_id)
        await member.heartbeat("t")
        await member.fetch(max_records=6, share_acquire_mode=1)
        assert await member.acked((0, 1, (1,)), (2, 4, (3, 2, 1))) == 0
        found = await figures(running)
        assert found["groups", "Stable"] == 1
        assert found["rebalances_total",] == 1
        assert found["sessions",] == found["session_partitions",] == 1
        assert found["acknowledged_records_total", "accept"] == 3
        assert found["acknowledged_records_total", "reject"] == 1
        assert found["acknowledged_records_total", "release"] == 1
        # 3 was given back, 5 is held; 4 is done, and 6 and 7 were not delivered yet.
        assert found["lag_records", "g", "0", "t"] == 4
        assert found["in_flight_records", "g", "0", "t"] == 3
        assert found["in_flight_ranges", "g", "0", "t"] == 3
        assert found["expired_records_total",] == 0

        # What was acknowledged before, and what is refused, is not counted.
        assert await member.acked((0, 1, (1,))) == 0
        assert await member.acked((6, 6, (1,))) != 0
        clock.advance(60_000)
        found = await figures(running)
        assert found["acknowledged_records_total", "accept"] == 3
        assert found["expired_records_total",] == 1

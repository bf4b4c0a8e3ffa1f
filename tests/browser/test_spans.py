"""What the bars count, the list shows and the copied command prints: the same records."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from client.producer import Producer
from protocol.time_windows import window_name
from tests.support.cli import environment
from tidelog.testing import RunningBroker, Seed, running_broker
from tidelog.testing.topics import run

pytestmark = [pytest.mark.browser, pytest.mark.core, pytest.mark.timeout(180)]

MINUTE = 60_000
START = 1_767_225_600_000  # 2026-01-01T00:00Z
NOW = START + 80 * MINUTE
TIMES = [
    *(START + n * MINUTE for n in range(40)),
    START + 110 * MINUTE,  # ahead of the clock
    START - 300 * MINUTE,  # late: the oldest of all
    *(START + n * MINUTE for n in range(40, 60)),
    START + 10 * MINUTE,
]
CLOSED = window_name("late", START + 10 * MINUTE, START + 50 * MINUTE)
OPEN = window_name("late", START + 10 * MINUTE)


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker(clock="settable", settings={"time.windows.enable": "true"}) as running:
        running.clock.freeze(NOW)
        seeds = [Seed("x", timestamp_ms=time, partition=n % 2) for n, time in enumerate(TIMES)]
        running.create_topic("late", seeds, partitions=2)
        compacted = {"cleanup.policy": "compact"}
        running.create_topic("compacted", [Seed("x", key="k")], settings=compacted)
        slow = [Seed("x", timestamp_ms=NOW - days * 24 * 60 * MINUTE) for days in (5, 0)]
        running.create_topic("slow", slow)
        far = [Seed("x", timestamp_ms=START + n * 1000) for n in range(500)]
        running.create_topic("far", far)
        run(lambda: write_seconds(running))
        yield running


async def write_seconds(broker: RunningBroker) -> None:
    """A record whose time is in seconds, which our client sends only when it is to."""
    async with Producer(broker.bootstrap, check_timestamps=False) as producer:
        await producer.send_and_wait("far", b"s", timestamp_ms=START // 1000)


def between(low: int, high: int) -> int:
    return sum(low <= time < high for time in TIMES)


@pytest.mark.parametrize(
    ("path", "count"),
    [
        ("late", len(TIMES)),
        ("late?from=-55m", between(NOW - 55 * MINUTE, NOW + 1)),
        ("late?from=-55m&to=-33m", between(NOW - 55 * MINUTE, NOW - 33 * MINUTE)),
        (CLOSED, between(START + 10 * MINUTE, START + 50 * MINUTE)),
        (OPEN, between(START + 10 * MINUTE, NOW * 2)),
    ],
)
def test_bars_list_and_command_have_the_same_records(page: Page, path: str, count: int) -> None:
    page.goto(f"/topics/{path}")
    chart = page.locator("canvas[role=img]").first
    expect(chart).to_have_attribute("aria-label", re.compile(rf": {count} from "))
    expect(page.get_by_text("exact counts of the broker")).to_be_visible()
    expect(page.get_by_text(f"{count} records. That is all.")).to_be_visible()
    page.get_by_role("button", name="Copy as command").first.click()
    copied = page.evaluate("navigator.clipboard.readText()")
    variables = environment(None)
    path_of_ours = f"{Path(sys.executable).parent}:{variables['PATH']}"
    done = subprocess.run(
        ["bash", "-c", copied],
        env={**variables, "PATH": path_of_ours},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert len(done.stdout.splitlines()) == count


def test_times_far_from_all_others_do_not_hide_the_others(page: Page) -> None:
    """A producer that writes seconds is in 1970; the address keeps the time of the others."""
    page.goto("/topics/far")
    expect(page.get_by_text("Nearly all records are between")).to_be_visible()
    page.get_by_role("button", name="Show that time").click()
    chart = page.locator("canvas[role=img]").first
    expect(chart).to_have_attribute("aria-label", re.compile(": 500 from .*, 1 before, 0 after"))
    expect(page.get_by_text("100 records.")).to_be_visible()
    page.goto("/topics/far?from=1000000000ms&to=2000000000ms")
    expect(page.get_by_text("1 record. That is all.")).to_be_visible()


def test_a_partition_that_does_not_exist_is_named(page: Page) -> None:
    page.goto("/topics/late?p=77")
    expect(page.get_by_role("alert")).to_contain_text("late has no partition 77: it has 0 to 1")
    expect(page.locator(".skeleton")).to_have_count(0)
    page.get_by_label("Partitions").fill("1")
    page.get_by_label("Partitions").press("Enter")
    expect(page.get_by_text("31 records. That is all.")).to_be_visible()


def test_a_window_has_the_tabs_of_windows(page: Page) -> None:
    page.goto(f"/topics/{CLOSED}")
    tabs = page.get_by_label("About the topic").get_by_role("link")
    expect(tabs).to_have_text(["Timeline", "Live tail", "Partitions", "Settings"])
    expect(page.get_by_text("to read only")).to_be_visible()
    page.goto(f"/topics/{CLOSED}?tab=partitions")
    expect(page.get_by_role("heading", name="Partitions")).to_be_visible()
    expect(page.get_by_text("Delete records older")).to_have_count(0)
    page.goto(f"/topics/{CLOSED}?tab=settings")
    expect(page.get_by_text("These are the settings of late.")).to_be_visible()
    expect(page.get_by_role("button", name="Change")).to_have_count(0)
    page.goto("/topics/late.__t__19990101T000000Z__19990102T000000Z")
    expect(page.get_by_text("No record of the topic is in this window.")).to_be_visible()
    expect(page.get_by_text("Copy a command that writes one")).to_have_count(0)


def test_the_map_has_all_of_a_slow_topic(page: Page) -> None:
    """Its one segment is days long, which is no mistake of a clock."""
    page.goto("/topics/slow?tab=segments")
    expect(page.get_by_role("heading", name="Segments in time")).to_be_visible()
    expect(page.get_by_text("Nothing would go now.")).to_be_visible()
    expect(page.get_by_text("left of the map")).to_have_count(0)


def test_the_simulator_says_why_nothing_goes(page: Page) -> None:
    page.goto("/topics/compacted?tab=segments")
    expect(page.get_by_text("Nothing goes by age or size")).to_be_visible()
    page.goto("/topics/late?tab=segments")
    expect(
        page.get_by_text("The oldest segment of 1 partition: It is held by a timestamp")
    ).to_be_visible()

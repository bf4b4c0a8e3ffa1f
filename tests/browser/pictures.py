"""Takes the pictures of docs/images: a broker with flights, a console, Chromium.

`make pictures`. Look at each of them afterwards: light and dark, wide and narrow.
"""

import argparse
import json
import math
import re
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from random import Random

from playwright.sync_api import Browser, Error, Page, sync_playwright

from client.admin import Admin
from client.producer import Producer
from client.types import TopicPartition
from protocol.acl import Acl, Operation, PatternType, Permission, ResourceType
from tests.browser.conftest import find_browser, running_console
from tests.browser.steps import drag_on_the_timeline
from tidelog.testing import RunningBroker, running_broker
from tidelog.testing.topics import run

IMAGES = Path(__file__).parents[2] / "docs" / "images"
MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
NOW = 1_783_598_400_000  # 2026-07-09T12:00Z
PORTS = ("IAH", "EWR", "JFK", "LGA", "BQN", "ATL", "ORD", "MIA")
LIMIT_BYTES = 150_000
LAG_SAMPLES = 9


def main(arguments: Sequence[str] | None = None) -> int:
    """Take all pictures, or those whose names match a pattern."""
    parser = argparse.ArgumentParser(prog="python -m tests.browser.pictures", description=__doc__)
    parser.add_argument("--only", default="", metavar="PATTERN")
    parser.add_argument("--into", type=Path, default=IMAGES)
    parser.add_argument("--every", action="store_true", help="each also dark, and narrow")
    options = parser.parse_args(arguments)
    options.into.mkdir(parents=True, exist_ok=True)
    settings = {
        "time.windows.enable": "true",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with running_broker(clock="settable", settings=settings) as broker:
        run(lambda: fill(broker))
        with running_console(broker.bootstrap) as url, sync_playwright() as playwright:
            chromium = playwright.chromium.launch(
                executable_path=find_browser(), args=["--no-sandbox", "--disable-dev-shm-usage"]
            )
            failed = 0
            for name in filter(re.compile(options.only).search, PICTURES):
                try:
                    take(chromium, url, broker, name, options.into, is_every=options.every)
                except Error as error:
                    print(f"{name}: {error}", file=sys.stderr, flush=True)
                    failed = 1
            chromium.close()
    return failed


async def fill(broker: RunningBroker) -> None:
    """Flights of five days, with late ones and wrong clocks; a failing consumer's dead letters.

    The broker's clock goes along, an hour at a time.
    """
    random = Random(7)
    broker.clock.freeze(NOW - 5 * DAY - 5 * HOUR)
    bootstrap = broker.bootstrap
    async with Admin(bootstrap) as admin, Producer(bootstrap, linger_ms=5) as producer:
        week = {"retention.ms": str(7 * DAY), "segment.bytes": "120000"}
        await admin.create_topic("flights", partitions=4, configs=week)
        await admin.create_topic("flights.failed", partitions=1)
        await admin.create_topic("aircraft", partitions=2, configs={"cleanup.policy": "compact"})
        ahead = {"segment.bytes": "30000", "message.timestamp.after.max.ms": str(30 * DAY)}
        await admin.create_topic("sensors", partitions=1, configs=ahead)
        measured = iter(range(1200))
        until_ms = NOW - 5 * DAY
        for n, time_ms in enumerate(sorted(_departures(random))):
            if time_ms >= until_ms:
                await _measure(producer, random, measured, until_ms)
                await producer.flush()
                until_ms += HOUR
                broker.clock.freeze(until_ms)
            # One in twenty comes some hours late.
            late_ms = random.randrange(4 * HOUR) if random.random() < 0.05 else 0
            value = {
                "flight": f"UA{n % 900}",
                "origin": random.choice(PORTS),
                "dest": random.choice(PORTS),
                "delay": max(0, round(random.gauss(8, 20))),
            }
            key = f"N{random.randrange(100, 999)}UA".encode()
            data = json.dumps(value).encode()
            await producer.send("flights", data, key=key, timestamp_ms=time_ms - late_ms)
            if n % 97 == 0:
                await producer.send("flights.failed", data, key=key, timestamp_ms=time_ms)
            if n % 13 == 0:
                tail = json.dumps({"tail": key.decode(), "seats": 150 + n % 60}).encode()
                await producer.send("aircraft", tail, key=key, timestamp_ms=time_ms)
        await _measure(producer, random, measured, NOW)
        await producer.flush()
        await _commit(admin)
        for name in ("ann", "billing-service", "dashboards"):
            await admin.set_user(name, "tide-pool")
        await admin.alter_quotas({"user": "dashboards"}, {"consumer_byte_rate": 5e6})
        await admin.alter_quotas({"client-id": None}, {"producer_byte_rate": 20e6})
        await admin.add_rules(
            Acl(
                ResourceType.TOPIC, topic, pattern, f"User:{user}", "*", operation, Permission.ALLOW
            )
            for user, topic, pattern, operation in (
                ("billing-service", "flights", PatternType.LITERAL, Operation.READ),
                ("dashboards", "flights", PatternType.PREFIXED, Operation.READ),
                ("ann", "*", PatternType.LITERAL, Operation.ALL),
            )
        )


async def _measure(
    producer: Producer, random: Random, numbers: Iterator[int], until_ms: int
) -> None:
    """What a sensor has measured before a time, every two minutes; once its clock was wrong."""
    while until_ms > NOW - 2 * DAY and (n := next(numbers, None)) is not None:
        at_ms = NOW - 2 * DAY + n * 2 * MINUTE
        value = f"{random.gauss(20, 2):.2f}".encode() * 10
        await producer.send("sensors", value, timestamp_ms=at_ms + 3 * DAY if n == 500 else at_ms)
        if at_ms + 2 * MINUTE >= until_ms:
            return


def _departures(random: Random) -> list[int]:
    """When flights leave, in five days: many by day, few by night."""
    found: list[int] = []
    for slot in range(5 * 24 * 12):
        at_ms = NOW - 5 * DAY + slot * 5 * MINUTE
        hour = at_ms / HOUR % 24
        wanted = 22 + 20 * math.sin((hour - 9) / 24 * 2 * math.pi) + random.gauss(0, 3)
        found += [at_ms + random.randrange(5 * MINUTE) for _ in range(max(1, round(wanted)))]
    return found


async def _commit(admin: Admin) -> None:
    for group, age_ms in (
        ("billing", 26 * HOUR),
        ("dashboards", 9 * MINUTE),
        ("archive", 3 * HOUR),
    ):
        partitions = [TopicPartition("flights", number) for number in range(4)]
        found = await admin.list_offsets(dict.fromkeys(partitions, NOW - age_ms))
        await admin.alter_group_offsets(group, {tp: hit.offset for tp, hit in found.items() if hit})


def _nothing(page: Page, broker: RunningBroker) -> None:
    pass


def _drag(page: Page, broker: RunningBroker) -> None:
    drag_on_the_timeline(page, 0.62, 0.635, "100 records.")
    page.locator("tr.row").nth(3).click()
    page.get_by_label("The value", exact=True).wait_for()
    page.mouse.move(0, 0)


def _explain(page: Page, broker: RunningBroker) -> None:
    box = page.get_by_label("Time to look up")
    box.fill("2026-07-07T12:00Z")
    box.press("Enter")
    page.get_by_text(re.compile("[15] of 5")).wait_for()
    page.locator("h1").click()
    page.keyboard.press("5")
    page.evaluate("scrollTo(0, 170)")


def _simulate(page: Page, broker: RunningBroker) -> None:
    page.get_by_label("retention.ms", exact=True).fill("12h")
    page.get_by_text("These groups would lose").wait_for()
    page.evaluate("scrollTo(0, 9999)")


def _delete(page: Page, broker: RunningBroker) -> None:
    box = page.get_by_label("Older than", exact=True)
    box.fill("2026-07-06T00:00Z")
    box.press("Enter")
    page.get_by_role("button", name="Delete these records…").wait_for()
    page.evaluate("scrollTo(0, 9999)")


def _reset(page: Page, broker: RunningBroker) -> None:
    page.get_by_label("Move to").fill("2026-07-08T06:00Z")
    page.get_by_role("button", name="Preview").click()
    page.get_by_role("button", name="Move the group").wait_for()
    page.evaluate("scrollTo(0, 9999)")


def _copy(page: Page, broker: RunningBroker) -> None:
    page.get_by_role("button", name="Copy to a topic…").click()
    page.get_by_label("To the topic").fill("flights.failed")
    page.get_by_role("button", name="Count", exact=True).click()
    page.get_by_text("would be copied").wait_for()


def _tail(page: Page, broker: RunningBroker) -> None:
    page.get_by_text("Following").wait_for()
    for n in range(12):
        broker.write("flights", json.dumps({"flight": f"B6{n}", "delay": n}))
    page.get_by_role("cell", name="B611").wait_for()


def _lag(page: Page, broker: RunningBroker) -> None:
    """A group that catches up, over some samples of ten seconds."""

    async def commit(age_ms: int) -> None:
        async with Admin(broker.bootstrap) as admin:
            partitions = [TopicPartition("flights", number) for number in range(4)]
            found = await admin.list_offsets(dict.fromkeys(partitions, NOW - age_ms))
            positions = {tp: hit.offset for tp, hit in found.items() if hit}
            await admin.alter_group_offsets("archive", positions)

    for step in range(1, LAG_SAMPLES):
        page.wait_for_timeout(10_000)
        broker.clock.advance("10s")
        run(partial(commit, 3 * HOUR - step * (15 + step % 3) * MINUTE))
    page.get_by_text("The lag shrinks.").wait_for()


def _clock(page: Page, broker: RunningBroker) -> None:
    page.get_by_role("button", name="1 min", exact=True).click()
    page.get_by_text(re.compile("jobs? ran")).wait_for()


PICTURES = {
    "console-overview": ("/", _nothing, 620),
    "console-topics": ("/topics", _nothing, 400),
    "console-timeline": ("/topics/flights", _drag, 880),
    "console-split": ("/topics/flights?split=1&unit=bytes&from=-2d", _nothing, 640),
    "console-copy": ("/topics/flights?sel=1783508400000..1783519200000", _copy, 760),
    "console-segments": ("/topics/sensors?tab=segments", _nothing, 640),
    "console-lookup": ("/topics/flights?tab=segments", _explain, 860),
    "console-retention": ("/topics/flights?tab=segments", _simulate, 760),
    "console-deletion": ("/topics/flights?tab=partitions", _delete, 640),
    "console-skew": ("/topics/sensors?tab=skew", _nothing, 480),
    "console-settings": ("/topics/flights?tab=settings", _nothing, 560),
    "console-produce": ("/topics/flights?tab=produce&from=0:100", _nothing, 660),
    "console-group": ("/groups/billing", _reset, 900),
    "console-groups": ("/groups", _nothing, 340),
    "console-security": ("/security", _nothing, 760),
    "console-window": ("/topics/flights.__t__20260707T060000Z__20260708T060000Z", _nothing, 640),
    "console-tail": ("/topics/flights?tab=tail", _tail, 620),
    "console-lag": ("/groups/archive", _lag, 620),
    "console-clock": ("/clock", _clock, 460),
}


def take(
    chromium: Browser, url: str, broker: RunningBroker, name: str, into: Path, *, is_every: bool
) -> None:
    """One picture; with `is_every` a dark and a narrow one beside it."""
    path, act, height = PICTURES[name]
    forms = [("", 1280, "light")]
    if is_every:
        forms += [("-dark", 1280, "dark"), ("-narrow", 420, "light")]
    for suffix, width, theme in forms:
        context = chromium.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if theme == "dark" else "light",
            reduced_motion="reduce",
        )
        page = context.new_page()
        page.goto(f"{url}{path}")
        page.locator("h1").wait_for()
        page.locator(".skeleton").first.wait_for(state="detached")
        act(page, broker)
        page.wait_for_timeout(1200)
        file = into / f"{name}{suffix}.png"
        page.screenshot(path=file)
        size = file.stat().st_size
        print(f"{file.name}: {size} bytes{' TOO LARGE' if size > LIMIT_BYTES else ''}", flush=True)
        context.close()


if __name__ == "__main__":
    sys.exit(main())

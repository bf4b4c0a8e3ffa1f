"""Names and records that are written to run as scripts: each page shows them as text.

A dialog, a refused policy or a request to elsewhere fails in the fixture of the page.
"""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from client.admin import Admin
from client.consumer import Consumer
from client.producer import Producer
from client.types import TopicPartition
from protocol.acl import Acl, Operation, PatternType, Permission, ResourceType
from tests.browser.conftest import filled_broker
from tests.browser.steps import HOSTILE
from tidelog.testing import RunningBroker, Seed
from tidelog.testing.topics import run

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

HOUR = 3_600_000
NOW = 1_767_225_600_000 + 10 * HOUR  # 2026-01-01T10:00Z
SCRIPTED = "main script, main img, main iframe, main svg, main style"


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with filled_broker(NOW, fill) as running:
        yield running


async def fill(broker: RunningBroker) -> None:
    """Every text as a key, value, header, client, group, user, rule and quota."""
    async with Admin(broker.bootstrap) as admin:
        free = {"message.timestamp.after.max.ms": str(2**63 - 1)}
        await admin.create_topic("hostile", partitions=1, configs=free)
        await admin.create_topic("nested")
        for text in HOSTILE:
            # The client id is a name that the page of skew shows.
            async with Producer(
                broker.bootstrap, client_id=text, check_timestamps=False
            ) as producer:
                key = text.encode()
                await producer.send_and_wait(
                    "hostile", key, key=key, headers=[(text, key)], timestamp_ms=NOW + 5 * HOUR
                )
                value = json.dumps({text: [text, {text: text}]}).encode()
                await producer.send_and_wait("nested", value, key=key, timestamp_ms=NOW)
            await admin.alter_group_offsets(text, {TopicPartition("hostile", 0): 1})
            await admin.set_user(text, "tide-pool")
            await admin.alter_quotas({"client-id": text}, {"producer_byte_rate": 1e6})
            await admin.alter_quotas({"user": text}, {"producer_byte_rate": 1e6})
        await admin.alter_group_offsets("billing", {TopicPartition("hostile", 0): 4})
        await admin.add_rules(
            Acl(
                ResourceType.GROUP, text, PatternType.LITERAL, f"User:{text}", "*",
                Operation.READ, Permission.ALLOW,
            )
            for text in HOSTILE
        )  # fmt: skip


# How many of the hostile names each page shows: the overview has room for eight of nine groups.
NAMED = {
    "/": len(HOSTILE) - 1,
    "/groups": len(HOSTILE),
    "/security": len(HOSTILE),
    "/topics": 1,
    "/topics/hostile": len(HOSTILE),
    "/topics/hostile?tab=skew": len(HOSTILE),
}


@pytest.mark.parametrize("path", NAMED)
def test_hostile_names_are_text_on_every_page(page: Page, path: str) -> None:
    """Of groups, clients, users, rules, quotas, keys, values; dialogs fail in the fixture."""
    page.goto(path)
    expect(page.locator("h1")).to_be_visible()
    expect(page.locator(".skeleton")).to_have_count(0)
    page.wait_for_load_state("networkidle")
    texts = page.locator("main").inner_text()
    assert sum(text in texts for text in HOSTILE) >= NAMED[path], texts
    assert page.locator(SCRIPTED).count() == 0


def test_a_hostile_group_has_its_page(page: Page) -> None:
    for text in HOSTILE:
        page.goto("/groups")
        page.get_by_role("link", name=text, exact=True).click()
        expect(page.locator("h1")).to_have_text(text)
        expect(page.get_by_text("records behind", exact=True)).to_be_visible()
        assert page.locator(SCRIPTED).count() == 0


def test_a_hostile_user_is_changed_in_a_dialog(page: Page) -> None:
    page.goto("/security")
    text = HOSTILE[0]
    page.get_by_role("button", name=f"Remove {text}", exact=True).click()
    expect(page.get_by_role("dialog")).to_contain_text(text)
    page.get_by_role("button", name="Cancel").click()


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_user_is_changed_in_dialogs(page: Page, text: str) -> None:
    page.goto("/security")
    for act in (f"Change the password of {text}", f"Remove {text}"):
        page.get_by_role("button", name=act, exact=True).click()
        expect(page.get_by_role("dialog")).to_contain_text(text)
        page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name=f"Remove the quota of user {text}", exact=True).click()
    expect(page.get_by_role("dialog")).to_contain_text(text)
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name=f"Remove the rule of User:{text} to read group {text}").click()
    expect(page.get_by_role("dialog")).to_contain_text(text)
    assert page.locator(SCRIPTED.replace("main", "dialog")).count() == 0


@contextmanager
def members(bootstrap: str, group: str) -> Iterator[None]:
    """A group whose members have hostile client ids and lasting names, in a thread of its own."""
    joined, done = threading.Event(), threading.Event()

    async def stay() -> None:
        async with AsyncExitStack() as stack:
            for text in HOSTILE:
                member = Consumer(
                    "hostile",
                    bootstrap=bootstrap,
                    group_id=group,
                    client_id=text,
                    group_instance_id=text,
                )
                await stack.enter_async_context(member)
            joined.set()
            await asyncio.to_thread(done.wait)

    thread = threading.Thread(target=lambda: run(stay))
    thread.start()
    try:
        assert joined.wait(120)
        yield
    finally:
        done.set()
        thread.join(120)


def test_hostile_members_of_a_group_are_text(page: Page, broker: RunningBroker) -> None:
    with members(broker.bootstrap, "live"):
        page.goto("/groups/live")
        expect(page.get_by_text(f"Members ({len(HOSTILE)})")).to_be_visible(timeout=60_000)
        texts = page.locator("main").inner_text()
        # As a client, and as a lasting name.
        assert all(texts.count(text) >= 2 for text in HOSTILE), texts
        assert page.locator(SCRIPTED).count() == 0


def test_a_hostile_record_is_text_in_the_tail(page: Page, broker: RunningBroker) -> None:
    page.goto("/topics/hostile?tab=tail")
    expect(page.get_by_text("Following 1 partition")).to_be_visible()
    broker.write("hostile", *(Seed(text, key=text, timestamp_ms=NOW) for text in HOSTILE))
    for text in HOSTILE:
        expect(page.get_by_role("cell", name=text, exact=True)).to_have_count(2)
    page.locator("tr.row").first.click()
    expect(page.get_by_label("The value", exact=True)).to_have_text(HOSTILE[-1])
    assert page.locator(SCRIPTED).count() == 0


def test_hostile_names_and_texts_of_json_are_text_in_the_tree(page: Page) -> None:
    for offset, text in enumerate(HOSTILE):
        page.goto(f"/topics/nested?open=0:{offset}")
        page.get_by_label("Form of the value").select_option("tree")
        tree = page.get_by_label("The value as a tree")
        expect(tree.get_by_text("object, 1 field").first).to_be_visible()
        shown = tree.inner_text()
        assert f"{text}: list" in shown
        assert json.dumps(text) in shown
        assert page.locator(SCRIPTED).count() == 0


def test_hostile_keys_are_text_where_a_group_is_moved_and_records_go(page: Page) -> None:
    page.goto("/groups/billing")
    page.get_by_label("Move to").fill("earliest")
    page.get_by_label("Topics", exact=True).fill("hostile")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_text(HOSTILE[0]).first).to_be_visible()
    page.goto("/topics/nested?tab=partitions")
    page.get_by_label("Older than", exact=True).fill("2026-01-01T09:00Z")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_text("0 offsets of 0 partitions would go")).to_be_visible()
    assert page.locator(SCRIPTED).count() == 0


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_filters_and_targets_are_text(page: Page, text: str) -> None:
    page.goto("/topics/nested")
    kept = [{"name": text, "filter": text, "topic": "nested"}]
    page.evaluate("kept => localStorage.setItem('tidelog.filters', kept)", json.dumps(kept))
    page.reload()
    expect(page.get_by_label("Kept filters")).to_contain_text(text)
    page.get_by_label("Kept filters").select_option(text)
    expect(page.get_by_label("Filter", exact=True)).to_have_value(text)
    page.goto("/topics/nested")
    page.get_by_role("button", name="Copy to a topic…").click()
    page.get_by_label("To the topic").fill(text)
    page.get_by_role("button", name="Copy", exact=True).click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_be_visible()
    assert page.locator(SCRIPTED).count() == 0


def test_a_download_of_hostile_records_is_a_file(page: Page) -> None:
    page.goto("/topics/hostile?open=0:0")
    with page.expect_download() as started:
        page.get_by_role("link", name="Download").last.click()
    assert Path(started.value.path()).read_text() == HOSTILE[0]

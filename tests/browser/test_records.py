"""Records that fit no box: odd bytes, numbers of 64 bits, unseen characters, huge values."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from client.admin import Admin
from client.types import TopicPartition
from tidelog.testing import RunningBroker, Seed
from tidelog.testing.topics import run

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

HEADERS = (
    ("json", b'{"a": 1, "b": [2]}'),
    ("bytes", b"\x00\x01\xff"),
    ("bytes", b"\x00\x01\xfe"),
    ("none", None),
    ("lines", b"one\ntwo"),
    ("plain", b"text: more"),
    (" spaced ", b" x "),
)
ODD = {
    "deleted": Seed(None, key="gone"),
    "line ends": Seed("a\r\nb\rc", key="crlf"),
    "byte order mark": Seed(b"\xef\xbb\xbfvalue", key=b"\xef\xbb\xbfkey"),
    "empty": Seed("", key=""),
    "without a key": Seed("x"),
    "bytes": Seed(b"\x00\xff", key=b"\xfe"),
    "headers": Seed("x", headers=HEADERS),
}
NUMBERS = b'{"id":9223372036854775807,"cost":1.10,"ids":[1234567890123456789]}'
OVERRIDE = "\u202e"
SPOOFED = f"pay{OVERRIDE}gnp.exe"
HUGE = b"[" + b"1," * 300_000 + b"2]"


@pytest.fixture(scope="module", autouse=True)
def _seeded(broker: RunningBroker) -> None:
    broker.create_topic("odd", list(ODD.values()))
    broker.create_topic("numbers", [NUMBERS])
    spoofed = Seed(f"a\u200bb{OVERRIDE}c", key=SPOOFED, headers=((SPOOFED, b"\xef\xbb\xbfx"),))
    broker.create_topic("spoofed", [spoofed])
    many = tuple((f"h{number}", b"x") for number in range(300))
    broker.create_topic("huge", [Seed(HUGE, key=b"k" * 100_000, headers=many)])

    async def commit() -> None:
        async with Admin(broker.bootstrap) as admin:
            await admin.alter_group_offsets(SPOOFED, {TopicPartition("odd", 0): 0})

    run(commit)


@pytest.mark.parametrize("name", ODD)
def test_a_record_is_produced_again_byte_for_byte(
    page: Page, broker: RunningBroker, name: str
) -> None:
    """By the form, and by the command that it gives."""
    page.goto(f"/topics/odd?tab=produce&from=0:{list(ODD).index(name)}")
    expect(page.get_by_text("Produce again: odd-0 @")).to_be_visible()
    page.get_by_role("button", name="Copy as command").click()
    expect(page.get_by_text("Copied:")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-c", copied], check=True, env=environment, timeout=60)
    page.get_by_role("button", name="Produce", exact=True).click()
    expect(page.get_by_text("Stored at odd-0 @")).to_be_visible()
    original, *_, by_command, by_form = broker.read("odd")[list(ODD).index(name) :]
    for again in (by_command, by_form):
        assert (again.key, again.value) == (original.key, original.value)
        assert tuple(again.headers) == tuple(original.headers)


def test_a_deletion_of_a_key_is_produced(page: Page, broker: RunningBroker) -> None:
    broker.create_topic("keys")
    page.goto("/topics/keys?tab=produce")
    page.get_by_label("Key", exact=True).fill("gone")
    page.get_by_label("Encoding of the value").select_option("null")
    expect(page.get_by_label("Value", exact=True)).to_be_disabled()
    page.get_by_role("button", name="Produce", exact=True).click()
    expect(page.get_by_text("Stored at keys-0 @ 0")).to_be_visible()
    (found,) = broker.read("keys")
    assert (found.key, found.value) == (b"gone", None)


def test_a_partition_that_is_no_number_is_refused(page: Page) -> None:
    page.goto("/topics/numbers?tab=produce")
    page.get_by_label("Partition", exact=True).fill("first")
    page.get_by_role("button", name="Produce", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("partition=first is no number")


def test_numbers_of_64_bits_keep_their_digits(page: Page) -> None:
    page.goto("/topics/numbers?open=0:0&f=value.id = 9223372036854775807")
    expect(page.get_by_text("1 record. That is all.")).to_be_visible()
    text = page.get_by_label("The value", exact=True)
    expect(text).to_contain_text("9223372036854775807")
    expect(text).to_contain_text("1.10")
    page.get_by_label("Form of the value").select_option("tree")
    tree = page.get_by_label("The value as a tree")
    for number in ("9223372036854775807", "1.10", "1234567890123456789"):
        expect(tree.get_by_text(number, exact=True)).to_have_count(1)


@pytest.mark.parametrize(
    "path", ["/groups", "/topics/spoofed?open=0:0", "/topics/spoofed?tab=tail"]
)
def test_characters_that_cannot_be_seen_are_named(
    page: Page, broker: RunningBroker, path: str
) -> None:
    """One that turns the text around it would make a name look like another."""
    page.goto(path)
    if "tail" in path:
        expect(page.get_by_text("Following 1 partition")).to_be_visible()
        broker.write("spoofed", Seed("x", key=SPOOFED))
    expect(page.get_by_text("pay\\u202egnp.exe").first).to_be_visible()
    texts = page.locator("main").inner_text()
    assert not {OVERRIDE, "\u200b", "\ufeff"} & set(texts)
    if "open" in path:
        assert "a\\u200bb\\u202ec" in texts
        page.locator(".inspector").get_by_role("button", name="Copy", exact=True).first.click()
        assert page.evaluate("navigator.clipboard.readText()") == SPOOFED


def test_a_huge_value_is_cut_and_downloaded_whole(page: Page) -> None:
    page.goto("/topics/huge?open=0:0")
    expect(page.get_by_text("Only the first 256 KiB are shown")).to_be_visible()
    expect(page.get_by_text("and 200 more")).to_be_visible()
    assert len(page.get_by_label("The value", exact=True).inner_text()) == 256 * 1024
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    with page.expect_download() as started:
        page.get_by_role("link", name="Download").last.click()
    assert Path(started.value.path()).read_bytes() == HUGE

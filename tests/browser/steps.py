"""What a person does on several pages."""

import re

from playwright.sync_api import Page, expect

HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg onload=alert(1)>",
    "javascript:alert(1)",
    "'\"><iframe srcdoc='<script>alert(1)</script>'>",
    "{{constructor.constructor('alert(1)')()}}",
    "<style>*{display:none}</style>",
    "</pre></textarea></title><script>alert(1)</script>",
]


def drag_on_the_timeline(
    page: Page, start: float, end: float, wanted: str = "That is all."
) -> tuple[int, int]:
    """Select from one share of the width to another, and wait for its records; the span in ms."""
    box = page.locator("canvas[role=img]").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * start, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * end, box["y"] + 100, steps=4)
    page.mouse.up()
    expect(page.get_by_role("heading", name=re.compile("Records from"))).to_be_visible()
    expect(page.get_by_text(wanted)).to_be_visible()
    found = re.search(r"sel=(\d+)\.\.(\d+)", page.url)
    assert found is not None
    return int(found[1]), int(found[2])


def set_retention(page: Page, topic: str) -> None:
    """Change retention.ms of a topic to an hour on its page."""
    page.goto(f"/topics/{topic}?tab=settings")
    page.get_by_label("Change retention.ms").click()
    page.get_by_role("textbox", name="retention.ms").fill("3600000")
    page.get_by_role("button", name="Preview").click()
    page.get_by_role("button", name="Change it").click()
    expect(page.get_by_text(f"Changed retention.ms of {topic}.")).to_be_visible()
    expect(page.get_by_role("row", name=re.compile("^retention.ms"))).to_contain_text("topic")


def delete_before(page: Page, topic: str, when: str, plan: str) -> None:
    """Preview a deletion on the page of partitions, read its sentence, carry it out."""
    page.goto(f"/topics/{topic}?tab=partitions")
    box = page.get_by_label("Older than", exact=True)
    box.fill(when)
    box.press("Enter")
    expect(page.get_by_text(plan)).to_be_visible()
    page.evaluate("window.confirm = () => true")
    page.get_by_role("button", name="Delete these records…").click()
    expect(page.get_by_text(re.compile(f"Deleted .* of {topic}"))).to_be_visible()

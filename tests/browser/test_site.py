"""The documentation, opened from a folder: its pages load nothing, and its search finds.

Needs the site (`make site`); without it these are skipped.
"""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

SITE = Path(__file__).parents[2] / "build" / "site"

pytestmark = [
    pytest.mark.core,
    pytest.mark.skipif(not (SITE / "index.html").exists(), reason="no site is built: make site"),
]


@pytest.mark.parametrize("name", ["index.html", "how-to/keep-a-year.html", "api/client.html"])
def test_search_works_in_a_folder_and_no_page_asks_another_host(
    chromium: Browser, name: str
) -> None:
    context = chromium.new_context()
    asked: list[str] = []
    context.on("request", lambda request: asked.append(request.url))
    errors: list[str] = []
    page = context.new_page()
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto((SITE / name).as_uri())
    page.keyboard.press("/")
    page.keyboard.type("retention forecast")
    results = page.locator(".md-search-result__link")
    expect(results.first).to_be_visible()
    results.first.click()
    expect(page).to_have_url(re.compile(re.escape(SITE.as_uri()) + r"/.+\.html\?h=retention"))
    expect(page.locator("mark").first).to_be_visible()
    context.close()
    assert errors == []
    assert [url for url in asked if not url.startswith("file://")] == []

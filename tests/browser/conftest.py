"""A real Chromium, a real console process, a real broker: what a person sees.

The browser is the system's (Debian's package, installed if it is missing and you are root), driven
by Playwright; `CHROMIUM` names another one.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Dialog, Page, expect, sync_playwright

from tidelog.testing import RunningBroker, running_broker
from tidelog.testing.topics import run

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
WIDTH, HEIGHT = 1400, 900

# A busy machine is slow, and what is awaited here comes or does not.
expect.set_options(timeout=20_000)


def find_browser() -> str:
    """The path of a Chromium; a failure says how to get one."""
    given = os.environ.get("CHROMIUM")
    found = given or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "update", "-q"], check=True, timeout=300)
        install = ["apt-get", "install", "-q", "-y", "--no-install-recommends", "chromium"]
        subprocess.run(install, check=True, timeout=600)
        found = shutil.which("chromium")
    if found is None:
        pytest.fail("no Chromium: install Debian's chromium, or give CHROMIUM=/path/to/it")
    return found


@contextmanager
def running_console(bootstrap: str, *options: str) -> Iterator[str]:
    """The URL of a console process, without the last slash."""
    words = ["console", "-b", bootstrap, "--listen", "127.0.0.1:0", *options]
    with subprocess.Popen(
        [sys.executable, "-m", "tidelog", *words], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert url.startswith("http://127.0.0.1:"), url
            yield url.rstrip("/")
        finally:
            process.terminate()


@contextmanager
def filled_broker(
    now_ms: int, fill: Callable[[RunningBroker], Coroutine[Any, Any, None]]
) -> Iterator[RunningBroker]:
    """A broker with an authorizer, so that there are rules, whose clock stands at `now_ms`."""
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with running_broker(clock="settable", settings=settings) as running:
        running.clock.freeze(now_ms)
        run(lambda: fill(running))
        yield running


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_browser(), args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker(clock="settable") as running:
        yield running


@pytest.fixture(scope="module")
def console(broker: RunningBroker) -> Iterator[str]:
    with running_console(broker.bootstrap) as url:
        yield url


class Errors(list[str]):
    """What a page complained about: exceptions, refused policies, requests to other origins."""


@pytest.fixture
def errors() -> Errors:
    return Errors()


@pytest.fixture
def page(chromium: Browser, console: str, errors: Errors, tmp_path: Path) -> Iterator[Page]:
    """A page in UTC whose errors fail the test."""
    context = chromium.new_context(
        viewport={"width": WIDTH, "height": HEIGHT}, base_url=console, timezone_id="Asia/Tokyo"
    )
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("dialog", lambda dialog: _dismiss(errors, dialog))
    page.on("console", lambda message: _note(errors, message.type, message.text))
    page.on("request", lambda request: _foreign(errors, console, request.url))
    page.set_default_timeout(20_000)
    yield page
    context.close()
    assert errors == []


def _dismiss(errors: Errors, dialog: Dialog) -> None:
    errors.append(f"dialog {dialog.message}")
    dialog.dismiss()


def _note(errors: Errors, kind: str, text: str) -> None:
    if kind == "error" and "status of" not in text:
        errors.append(text)


def _foreign(errors: Errors, console: str, url: str) -> None:
    if not url.startswith(console) and not url.startswith(("data:", "blob:")):
        errors.append(f"request to {url}")

"""What the console sends to browsers: text is never markup, and nothing is fetched elsewhere."""

import re
from pathlib import Path

import pytest

from tests.tidy.tree import source, tracked_files

SCRIPTS = [
    path
    for path in tracked_files()
    if path.parts[:2] == ("console", "static") and path.suffix == ".js"
]
PAGES = [path for path in tracked_files() if path.parts[:2] == ("console", "templates")]
LINES_MAX = 300
MARKUP = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|srcdoc|DOMParser|createContextualFragment"
    r"|\beval\b|new Function|setAttribute\(\s*['\"](?:on|style|href=.javascript)"
)
ELSEWHERE = re.compile(r"https?://(?!www\.w3\.org/)|import\s+.*from\s+['\"](?!\./)")


def test_there_are_scripts_to_check() -> None:
    assert len(SCRIPTS) > 10
    assert PAGES


@pytest.mark.parametrize("path", SCRIPTS, ids=str)
def test_text_from_brokers_is_never_markup(path: Path) -> None:
    assert MARKUP.findall(source(path)) == []


@pytest.mark.parametrize("path", [*SCRIPTS, *PAGES], ids=str)
def test_nothing_comes_from_elsewhere(path: Path) -> None:
    assert ELSEWHERE.findall(source(path)) == []


@pytest.mark.parametrize("path", PAGES, ids=str)
def test_pages_hold_no_script_or_style_of_their_own(path: Path) -> None:
    text = source(path)
    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=|\|\s*safe", text) == []


@pytest.mark.parametrize("path", SCRIPTS, ids=str)
def test_scripts_fit_in_a_sitting(path: Path) -> None:
    lines = source(path).splitlines()
    assert len(lines) <= LINES_MAX
    assert lines[0].startswith("// ")

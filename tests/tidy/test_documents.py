"""Documents stay in step with the code: links resolve, commands exist, generated tables are
current.
"""

import re
from pathlib import Path

import pytest

from tests.tidy import generate_docs
from tests.tidy.tree import ROOT, source, tracked_files

_PAGES = [path for path in tracked_files() if path.suffix == ".md"]
_LINK = re.compile(r"\[[^\]]+\]\((?!https?://|mailto:|#)([^)#]+)(#[^)]*)?\)")
_PATH = re.compile(r"`((?:[\w-]+/)*[\w-]+\.py|[a-z]+(?:/[\w-]+)+)/?`")
_MADE_BY_RUNS = frozenset({"benchmarks/results"})
_MAKE = re.compile(r"\bmake ([a-z][a-z0-9-]*)")


@pytest.mark.parametrize("page", _PAGES, ids=str)
def test_links_lead_somewhere(page: Path) -> None:
    broken = [
        target
        for target, _ in _LINK.findall(source(page))
        if not (ROOT / page.parent / target).exists()
    ]
    assert broken == []


@pytest.mark.parametrize("page", _PAGES, ids=str)
def test_named_modules_exist(page: Path) -> None:
    """A path from the root, or the end of one; other paths than the project's are not judged."""
    files = [f"/{path}" for path in tracked_files()]
    tops = {path.parts[0] for path in tracked_files()}
    assert [
        name
        for name in _PATH.findall(source(page))
        if (name.endswith(".py") or name.split("/")[0] in tops)
        and name not in _MADE_BY_RUNS
        and not any(file.endswith(f"/{name}") or f"/{name}/" in file for file in files)
    ] == []


def test_make_words_in_documents_exist() -> None:
    words = set(re.findall(r"^([a-z0-9-]+):", source(Path("Makefile")), re.M))
    used = {
        (str(page), word)
        for page in _PAGES
        for block in re.findall(r"`([^`\n]+)`|^(?: {4}|\t)?(make [^\n]+)$", source(page), re.M)
        for word in _MAKE.findall(" ".join(block))
    }
    assert {(page, word) for page, word in used if word not in words} == set()


@pytest.mark.parametrize("page", sorted(generate_docs.PAGES))
def test_generated_parts_are_current(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert text == generate_docs.regenerate(page), "run `make docs`"

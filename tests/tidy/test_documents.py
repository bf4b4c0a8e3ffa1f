"""Documents stay in step with the code: links resolve, commands exist, generated tables are
current.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy import generate_docs
from tests.tidy.tree import ROOT, source, tracked_files

_PAGES = [path for path in tracked_files() if path.suffix == ".md"]
_LINK = re.compile(r"\[[^\]]+\]\((?!https?://|mailto:|#)([^)#]+)(#[^)]*)?\)")
_PATH = re.compile(r"`((?:[\w-]+/)*[\w-]+\.py|[a-z]+(?:/[\w-]+)+)/?`")
_NAMES_AFTER = re.compile(r"`((?:[\w-]+/)*\w+\.py)`(?: \(|: (?=`))([^);]*)")
_NAME = re.compile(r"`(_?[A-Za-z]\w*(?:\.\w+)*)`")
_NAME_BEFORE = re.compile(r"`(_?[A-Za-z]\w*(?:\.\w+)*)` \(`((?:[\w-]+/)*\w+\.py)`\)")
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


def pointers(page: str) -> Iterator[tuple[str, str]]:
    """The modules of a page, each with the names that the page says are in it.

    They follow it in parentheses or after a colon, or stand before it: `module.py` (`name`),
    `module.py`: `name`, `name` (`module.py`). A module is a path or the end of one.
    """
    for module, names in _NAMES_AFTER.findall(page):
        yield from ((module, name) for name in _NAME.findall(names))
    for name, module in _NAME_BEFORE.findall(page):
        yield module, name


def wrong_pointers(page: str) -> list[tuple[str, str]]:
    """The pointers at a module that does not define the name."""
    texts = {f"/{path}": source(path) for path in tracked_files() if path.suffix == ".py"}
    wrong = []
    for module, name in pointers(page):
        last = re.escape(name.rpartition(".")[2])
        defines = re.compile(
            rf"\b(?:def|class) {last}\b|^\s*(?:self\.)?{last}(?:: [^=\n]+)? = ", re.M
        )
        if not any(defines.search(text) for at, text in texts.items() if at.endswith(f"/{module}")):
            wrong.append((module, name))
    return wrong


def test_architecture_points_at_the_modules_that_define_the_names() -> None:
    page = source(Path("ARCHITECTURE.md"))
    assert len(list(pointers(page))) > 12
    assert wrong_pointers(page) == []


def test_a_pointer_at_the_wrong_module_is_found() -> None:
    page = (
        "`storage/log/log.py` (`_stamp_ms`), `log/log.py` (`_cut`, `Log.append`), `open_log` "
        "(`storage/recovery/recovery.py`), `log/log.py`: `recover_segments`"
    )
    assert len(list(pointers(page))) == 5
    assert wrong_pointers(page) == [("log/log.py", "_cut"), ("log/log.py", "recover_segments")]


def test_twenty_behaviours_are_found_from_one_row_in_two_files() -> None:
    _, _, listed = source(Path("docs/code-in-figures.md")).partition("## Where is X")
    rows = re.findall(
        r"^\| (?!behaviour|---)([^|]+) \| ([^|]+) \|$", listed.partition("\n## ")[0], re.M
    )
    files = {behaviour: re.findall(r"`([^`]+)`", cell) for behaviour, cell in rows}
    assert len(files) == 20
    assert {name for name, named in files.items() if not 1 <= len(named) <= 2} == set()
    architecture = source(Path("ARCHITECTURE.md")).splitlines()
    lost = {
        name
        for name, named in files.items()
        if not all(Path(ROOT, file).is_file() for file in named)
        or not any(all(f"`{file}`" in line for file in named) for line in architecture)
    }
    assert lost == set()


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

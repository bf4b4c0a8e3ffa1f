"""The blocks of the documents run as they are written; only ports are exchanged.

Each page runs in a directory of its own. A block that serves (``tidelog serve``, ``tidelog
console``) runs until the page ends, as in a terminal of its own; the next block begins when it is
ready. A page without such a block gets a broker of this module. Every other block ends by itself,
with exit code 0, and by the shell's ``-e`` so does each of its commands.
"""

import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

from protocol.error_codes import ErrorCode
from tests.integration.documents.blocks import (
    CLASSES,
    RUN_PAGES,
    blocks,
    commands,
    verdict,
    wrong_test,
)
from tests.integration.documents.terminal import SERVING, Terminal, terminal
from tests.support.cli import ROOT

COMING = "docs/coming-from.md"


def test_every_block_has_a_class(capsys: pytest.CaptureFixture[str]) -> None:
    """A new block runs on one of the pages that run, or says why it does not."""
    assert [f"{block.page}:{block.line}" for block in blocks() if not verdict(block)] == []
    counts = Counter(verdict(block).partition(":")[0] for block in blocks())
    with capsys.disabled():
        print(f"\n{counts.total()} blocks: {dict(counts)}")


def test_every_class_is_of_a_block_that_exists() -> None:
    found = blocks()
    unused = [
        (page, start)
        for page, starts in CLASSES.items()
        for start in starts
        if not any(block.page == page and block.text.startswith(start) for block in found)
    ]
    assert unused == []


def test_the_tests_that_classes_name_exist() -> None:
    reasons = {reason for starts in CLASSES.values() for reason in starts.values()}
    kinds = {"test", "similar", "not run", "shown"}
    assert {reason.partition(":")[0] for reason in reasons} == kinds
    named = [one for one in reasons if one.startswith(("test: ", "similar: "))]
    assert [wrong for one in named if (wrong := wrong_test(one))] == []


@pytest.mark.parametrize("page", RUN_PAGES)
@pytest.mark.timeout(900)
def test_the_blocks_of_the_page_run(page: str, tmp_path: Path) -> None:
    given = [block for block in blocks() if block.page == page and verdict(block) == "run"]
    serves = any(block.text.startswith(SERVING) for block in given)
    with terminal(tmp_path, has_broker=serves) as here:
        for block in given:
            here.run(block)
    assert given != []


def _failures(here: Terminal, lines: list[str]) -> list[str]:
    wrong = []
    for line in lines:
        done = here.shell(line)
        if done.returncode != 0 or "Traceback" in done.stderr:
            wrong.append(f"{line} ({done.returncode})\n{done.stdout}{done.stderr}")
    return wrong


@pytest.mark.timeout(900)
def test_the_commands_of_the_tables_run(tmp_path: Path) -> None:
    """Those of `tidelog`, and of kcat where it is installed, in the order of the page."""
    ours, theirs = (commands(COMING, column) for column in (1, 2))
    assert len(ours) > 30
    assert len(theirs) > 15
    with terminal(tmp_path, has_broker=False) as here:
        assert _failures(here, ["tidelog topic create flights"]) == []
        assert _failures(here, [line for line in ours if "doctor" not in line]) == []
        if shutil.which("kcat"):
            assert _failures(here, theirs) == []


def test_the_codes_of_the_page_are_those_of_the_protocol() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (-?\d+) \| ([A-Z_]+) \|", page, re.M)
    assert len(rows) > 45
    assert [row for row in rows if ErrorCode[row[1]] != int(row[0])] == []

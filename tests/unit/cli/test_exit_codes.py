"""The exit codes are a promise, so the page about them lists each one."""

import re
from pathlib import Path

from cli.exit_codes import ExitCode

PAGE = Path(__file__).resolve().parents[3] / "docs" / "cli.md"


def test_the_page_lists_exactly_these_codes() -> None:
    listed = re.findall(r"^\| (\d+) \|", PAGE.read_text(), flags=re.MULTILINE)
    assert sorted(map(int, listed)) == sorted(ExitCode)

"""The examples of docs/testing.md run as they are written."""

import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.support.cli import ROOT, environment

PAGE = ROOT / "docs" / "testing.md"
EXAMPLES = re.findall(
    r"<!-- executed: \S+ -->\n```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL
)


def pytest_in(directory: Path, *files: str) -> "subprocess.CompletedProcess[str]":
    """pytest as a user runs it, in a directory without settings."""
    # In a checkout that was installed before there was a plugin, it is named here.
    known = any(point.name == "tidelog" for point in entry_points(group="pytest11"))
    plugin = [] if known else ["-p", "tidelog.testing.plugin"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-o", "asyncio_mode=auto", *plugin, *files],
        cwd=directory,
        env=environment(None),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_the_example_passes(number: int, tmp_path: Path) -> None:
    (tmp_path / "test_example.py").write_text(EXAMPLES[number])
    done = pytest_in(tmp_path)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_the_first_example_is_twenty_lines_at_most() -> None:
    assert len(EXAMPLES) == 2
    assert len(EXAMPLES[0].split("def test", 1)[1].splitlines()) <= 20

"""The examples of docs/testing.md run as they are written."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.support.cli import ROOT, environment

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PAGE = ROOT / "docs" / "testing.md"
EXAMPLES = re.findall(
    r"<!-- executed: \S+ -->\n```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL
)


def pytest_in(directory: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    """pytest as a user runs it, in a directory without settings.

    The plugin is found by the entry point in pyproject.toml, also in a checkout that was installed
    before there was one.
    """
    variables = environment(None)
    if not any(point.name == "tidelog" for point in entry_points(group="pytest11")):
        site = directory / "site"
        facts = site / "tidelog_plugin-1.dist-info"
        facts.mkdir(parents=True)
        (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: tidelog-plugin\nVersion: 1\n")
        ((name, module),) = PROJECT["entry-points"]["pytest11"].items()
        (facts / "entry_points.txt").write_text(f"[pytest11]\n{name} = {module}\n")
        variables["PYTHONPATH"] += f":{site}"
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-o", "asyncio_mode=auto", *options],
        cwd=directory,
        env=variables,
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
    assert len(EXAMPLES) == 3
    assert len(EXAMPLES[0].split("def test", 1)[1].splitlines()) <= 20

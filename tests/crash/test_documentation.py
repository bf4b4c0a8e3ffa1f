"""The campaigns of the pages run with their words, but small: a few states, not thousands."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.loop_disk import why_unavailable
from tests.integration.documents.blocks import blocks
from tests.support.cli import ROOT, environment

SMALL = {"states": 30, "lookups": 2000, "cycles": 1}
LINES = [
    line.partition("  #")[0].strip()
    for block in blocks()
    if block.page in ("docs/crash-safety.md", "docs/tiered-storage.md")
    for line in block.text.splitlines()
]
CAMPAIGNS = [line for line in LINES if line.startswith("python -m tests.")]
TESTS = [line for line in LINES if " pytest " in line]


def test_there_are_campaigns_of_both_kinds() -> None:
    assert len(CAMPAIGNS) >= 4
    assert len(TESTS) >= 5


@pytest.mark.parametrize("line", CAMPAIGNS)
def test_a_campaign_runs_small(line: str, tmp_path: Path) -> None:
    if "power_cut" in line and (why := why_unavailable()):
        pytest.skip(why)
    small, count = re.subn(
        r"--(states|lookups|cycles) \d+", lambda found: f"--{found[1]} {SMALL[found[1]]}", line
    )
    assert count == 1
    done = subprocess.run(
        [sys.executable, *small.split()[1:]],
        cwd=ROOT, env=environment(None) | {"TMPDIR": str(tmp_path)}, capture_output=True,
        text=True, timeout=250, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout


@pytest.mark.parametrize("line", TESTS)
def test_a_test_takes_the_number_of_its_page(line: str) -> None:
    """The tests themselves run anyway; here, that the variable and the file are those they read."""
    found = re.fullmatch(r"(\w+)=\d+ pytest (?:-s )?(\S+)", line)
    assert found is not None
    assert f'"{found[1]}"' in (ROOT / found[2]).read_text(encoding="utf-8")

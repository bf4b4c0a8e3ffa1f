"""The manual page has every command and every exit code, and roff accepts it."""

import re
import shutil
import subprocess

import pytest

from cli.exit_codes import ExitCode
from cli.main import COMMANDS, run
from cli.shell.man import EXIT_CODES


@pytest.fixture
def page(capsys: pytest.CaptureFixture[str]) -> str:
    assert run(["man"]) == ExitCode.OK
    return capsys.readouterr().out


def test_the_page_has_every_command_and_option(page: str) -> None:
    sections = re.findall(r"^\.SS tidelog (\S+)", page, re.M)
    assert {name.replace("\\-", "-") for name in sections} == set(COMMANDS)
    assert r"\-\-timestamp\-field FIELD" in page
    assert set(EXIT_CODES) == set(ExitCode)


def test_no_line_of_text_is_a_request_of_roff(page: str) -> None:
    known = {".TH", ".SH", ".SS", ".PP", ".TP", ".B", ".nf", ".fi", ".ad"}
    assert {line.split()[0] for line in page.splitlines() if line[:1] in (".", "'")} == known


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_roff_reads_it(page: str) -> None:
    done = subprocess.run(
        ["groff", "-man", "-ww", "-Tutf8", "-z"],
        input=page,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""

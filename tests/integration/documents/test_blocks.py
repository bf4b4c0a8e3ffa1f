"""The blocks of the documents run as they are written; only ports are exchanged.

Each page runs in a directory of its own. A block that serves (``tidelog serve``, ``tidelog
console``) runs until the page ends, as in a terminal of its own; the next block begins when it is
ready. A page without such a block gets a broker of this module. Every other block ends by itself,
with exit code 0, and by the shell's ``-e`` so does each of its commands.
"""

import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from protocol.error_codes import ErrorCode
from tests.integration.documents.blocks import (
    CLASSES,
    PYTHON,
    RUN_PAGES,
    Block,
    blocks,
    commands,
    verdict,
    wrong_test,
)
from tests.support.cli import ROOT, environment
from tests.support.kafka_peer import free_ports
from tidelog.testing import running_broker

COMING = "docs/coming-from.md"
SERVING = ("tidelog serve", "tidelog console")
SETTINGS = {"time.windows.enable": "true", "log.retention.ms": "-1"}
LIMIT_S = 300
"""Only so that a hanging command ends; nothing here is measured."""


class Terminal:
    """A directory, its broker's address, and what runs there until the page ends."""

    def __init__(self, place: Path, bootstrap: str) -> None:
        self.place = place
        self._bootstrap = bootstrap
        self._serving: list[subprocess.Popen[str]] = []
        scripts = place / ".venv" / "bin"
        scripts.mkdir(parents=True)
        (scripts / "activate").write_text("")  # the environment is active already
        (place / "notes.txt").write_text("two\nlines\n")

    def _command(self, text: str) -> tuple[list[str], dict[str, str]]:
        for written in ("127.0.0.1:9092", "localhost:9092"):
            text = text.replace(written, self._bootstrap)
        text = text.replace("console --bootstrap", "console --listen 127.0.0.1:0 --bootstrap")
        variables = environment(None) | {
            "PATH": f"{Path(sys.executable).parent}:{environment(None)['PATH']}",
            "KAFKA_BOOTSTRAP_SERVERS": self._bootstrap,
            "TIDELOG_METRICS_LISTENER": "127.0.0.1:0",
            "B": self._bootstrap,
        }
        return ["bash", "-e", "-o", "pipefail", "-c", text], variables

    def run(self, block: Block) -> None:
        """Run one block to its end, or until it serves."""
        if block.mark == "stop":
            self.stop()
        if block.text.startswith(SERVING):
            self._serve(block.text)
            return
        text = block.text
        if block.language == PYTHON:
            (self.place / "block.py").write_text(text.replace("127.0.0.1:9092", self._bootstrap))
            text = "python block.py"
        done = self.shell(text)
        assert done.returncode == 0, f"{block.page}:{block.line}\n{done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr, f"{block.page}:{block.line}\n{done.stderr}"

    def shell(self, text: str) -> "subprocess.CompletedProcess[str]":
        command, variables = self._command(text)
        return subprocess.run(
            command, cwd=self.place, env=variables, capture_output=True, text=True,
            timeout=LIMIT_S, check=False,
        )  # fmt: skip

    def _serve(self, text: str) -> None:
        command, variables = self._command("exec " + text)
        process = subprocess.Popen(
            command, cwd=self.place, env=variables, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._serving.append(process)
        assert process.stdout is not None
        assert any("ready" in line or "http://" in line for line in process.stdout), text

    def stop(self) -> None:
        """Stop what serves, the last first; each stops in order."""
        for process in reversed(self._serving):
            process.send_signal(signal.SIGTERM)
            code = process.wait(timeout=LIMIT_S)
            assert process.stdout is not None
            process.stdout.close()
            assert code in (0, -signal.SIGTERM), process.args
        self._serving.clear()

    def end(self) -> None:
        """After a failure, too, nothing runs on."""
        for process in self._serving:
            process.kill()
            process.wait()


@contextmanager
def terminal(place: Path, *, has_broker: bool) -> Iterator[Terminal]:
    """A terminal with a broker, or with the port of the one that its page starts."""
    if has_broker:
        (port,) = free_ports(1)
        given = Terminal(place, f"127.0.0.1:{port}")
        try:
            yield given
            given.stop()
        finally:
            given.end()
        return
    with running_broker(settings=SETTINGS) as broker:
        yield Terminal(place, broker.bootstrap)


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

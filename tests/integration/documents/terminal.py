"""A terminal in which the blocks of a page run, in a directory of its own, with other ports."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.integration.documents.blocks import PYTHON, Block
from tests.support.cli import environment
from tests.support.kafka_peer import free_ports
from tidelog.testing import running_broker

SERVING = ("tidelog serve", "tidelog console")
SETTINGS = {"time.windows.enable": "true", "log.retention.ms": "-1"}
LIMIT_S = 300
"""Only so that a hanging command ends; nothing here is measured."""


class Terminal:
    """A directory, its broker's address, and what runs there until the page ends.

    Attributes:
        place: the directory.
        exchanged: what is written otherwise here than on the page, such as a bucket.
        ready: what the last one that serves has said when it was ready.
    """

    def __init__(self, place: Path, bootstrap: str) -> None:
        self.place = place
        self.exchanged: dict[str, str] = {}
        self.ready = ""
        self._bootstrap = bootstrap
        self._serving: list[subprocess.Popen[str]] = []
        scripts = place / ".venv" / "bin"
        scripts.mkdir(parents=True)
        (scripts / "activate").write_text("")  # the environment is active already
        (place / "notes.txt").write_text("two\nlines\n")

    def command(self, text: str) -> tuple[list[str], dict[str, str]]:
        """The words that run `text`, and their environment."""
        for written in ("127.0.0.1:9092", "localhost:9092"):
            text = text.replace(written, self._bootstrap)
        text = text.replace("console --bootstrap", "console --listen 127.0.0.1:0 --bootstrap")
        for written, own in self.exchanged.items():
            text = text.replace(written, own)
        variables = environment(None) | {
            "PATH": f"{Path(sys.executable).parent}:{environment(None)['PATH']}",
            "KAFKA_BOOTSTRAP_SERVERS": self._bootstrap,
            "TIDELOG_METRICS_LISTENER": "127.0.0.1:0",
            "TIDELOG_LISTENERS": f"PLAINTEXT://{self._bootstrap}",
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

    def lines(self, text: str) -> str:
        """Run the lines of a block one by one, those that serve in terminals of their own.

        `pip install` is left out: the packages are here. Returns what the other lines print.
        """
        shown = ""
        for line in text.splitlines():
            if line.startswith(SERVING):
                self._serve(line)
            elif not line.startswith("pip install "):
                done = self.shell(line)
                assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
                shown += done.stdout
        return shown

    def shell(self, text: str) -> "subprocess.CompletedProcess[str]":
        command, variables = self.command(text)
        return subprocess.run(
            command, cwd=self.place, env=variables, capture_output=True, text=True,
            timeout=LIMIT_S, check=False,
        )  # fmt: skip

    def _serve(self, text: str) -> None:
        command, variables = self.command("exec " + text)
        process = subprocess.Popen(
            command, cwd=self.place, env=variables, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._serving.append(process)
        assert process.stdout is not None
        said = (line for line in process.stdout if "ready" in line or "http://" in line)
        self.ready = next(said, "")
        assert self.ready, text

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

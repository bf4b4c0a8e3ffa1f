"""The commands and snippets of README.md, docs/cli.md and docs/client.md run as they are written.

The commands run in the order of the page: first those that ask a broker, then those for a stopped
directory. A line that cannot run here stands in `ONLY_PARSED` with the reason; its options and
arguments are still those of the command.
"""

import ast
import asyncio
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from cli.failures import CommandFailed
from cli.main import command
from tests.support.cli import ROOT, environment
from tests.support.schema_registry import fake_registry
from tidelog.testing import RunningBroker, running_broker

PAGE = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
CLIENT = (ROOT / "docs" / "client.md").read_text(encoding="utf-8")

SETTINGS = {
    "num.partitions": "2",
    "log.retention.ms": "-1",
    "metrics.listener": "127.0.0.1:0",
    "time.windows.enable": "true",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}

ONLY_PARSED = {
    "kafka:9094": "another host",
    "--profile lab": "another host",
    "tidelog serve": "runs until it is stopped; every other command here needs one",
    "s3://": "an object store: tests/integration/remote/test_documentation.py",
    "tidelog token": "needs a user: tests/integration/cli/test_tokens.py",
    "certs reload": "needs a broker with TLS: tests/integration/cli/test_secure.py",
    "certs show": "needs certificates: tests/unit/cli/server/test_certs.py",
    "tidelog clock": "needs a broker for tests: tests/integration/cli/test_clock.py",
    "tidelog promote": "needs a standby: tests/integration/remote/test_standby.py",
    "tidelog doctor": "judges this machine",
    "--accept-loss": "nothing is damaged: tests/crash",
    "window flights --from 2026-11-01": "tests/integration/cli/test_window.py has its output",
}
"""A part of a line, and why the line does not run here."""

FOLLOWS = ("--from -15m", "--group billing --format", "--where", "share consume")
"""Parts of lines that run until Ctrl-C, which they get after a while."""

STOPPED = ("user", "dump-segment", "fsck", "tier", "export-kraft", "import", "certs", "config")
"""Commands for a directory that no broker has open, or for files alone."""

BEFORE = {
    "tidelog group describe billing": "tidelog consume flights --group billing -f earliest -e",
    "tidelog share reset workers": "tidelog topic create orders",
}
"""What a user has done before a line that begins so."""


def lines() -> list[str]:
    """Every command on the page, in its order."""
    found = re.findall(r"^ {4}((?:\S.* (?:\||&&) )?(?:tidelog|echo 'eval) .*)$", PAGE, re.M)
    assert len(found) > 70
    return found


def words_of(line: str) -> list[str]:
    """The words of the line's own tidelog command, without comment and redirection."""
    words = shlex.split(line.replace('"$(', "X ").replace(')"', ""), comments=True)
    words = words[words.index("tidelog") + 1 :]
    ends = [words.index(mark) for mark in (">", ">>", "|") if mark in words]
    return words[: min(ends, default=len(words))]


def is_run(line: str) -> bool:
    return not any(part in line for part in ONLY_PARSED)


def is_for_files(line: str) -> bool:
    return words_of(line)[0] in STOPPED if "eval" not in line else False


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, RunningBroker]]:
    """A directory with the files that the page names, and a broker whose data is in ``data``."""
    place = tmp_path_factory.mktemp("page")
    (place / "log.jsonl").write_text('{"event":{"time":"2013-07-04T12:00Z"},"user":"ann"}\n')
    (place / "picture.png").write_bytes(bytes(range(256)))
    (place / "ann.txt").write_text("s3cret-enough\n")
    (place / "server.properties").write_text("num.partitions=4\n")
    with running_broker(data_dir=place / "data", settings=SETTINGS) as server:
        yield place, server


def run_line(line: str, place: Path, server: RunningBroker | None) -> str:
    """What is wrong with a line, "" if it does its work; a person would answer its question."""
    line = line.replace("topic delete ", "topic delete --yes ")
    is_following = any(part in line for part in FOLLOWS)
    if is_following:
        line = line.replace("tidelog", "timeout --preserve-status -s INT 5 tidelog")
    done = subprocess.run(
        [
            "bash",
            "-c",
            f"PATH={Path(sys.executable).parent}:$PATH; {line}",
        ],
        cwd=place,
        env=environment(server) | {"HOME": str(place), "XDG_CONFIG_HOME": str(place / ".config")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode in ((0, 130) if is_following else (0,)) and "Traceback" not in done.stderr:
        return ""
    return f"{line} ({done.returncode})\n{done.stdout}{done.stderr}"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_command_on_the_page_runs(world: tuple[Path, RunningBroker]) -> None:
    place, server = world
    wrong = [run_line("tidelog topic create harbour", place, server)]
    for line in lines():
        if is_run(line) and not is_for_files(line):
            before = [done for start, done in BEFORE.items() if line.startswith(start)]
            wrong += [run_line(done, place, server) for done in before]
            wrong.append(run_line(line, place, server))
    server.stop()
    wrong += [
        run_line(line, place, None) for line in lines() if is_run(line) and is_for_files(line)
    ]
    assert len(wrong) > 50
    assert [one for one in wrong if one] == []


@pytest.mark.parametrize("line", [line for line in lines() if not is_run(line)])
def test_the_others_have_the_options_that_they_show(line: str) -> None:
    parent: click.Context = command.make_context("tidelog", words_of(line))
    rest = words_of(line)
    group: click.Command = command
    while isinstance(group, click.Group):
        name, member, rest = group.resolve_command(parent, rest)
        assert member is not None
        group = member
        try:
            parent = member.make_context(name, list(rest), parent=parent)
        except CommandFailed:
            return  # a file that is not here; click has understood the line
        rest = [*parent._protected_args, *parent.args]


def test_each_exception_is_about_a_line_of_the_page() -> None:
    assert [part for part in ONLY_PARSED if not any(part in line for line in lines())] == []
    assert [part for part in FOLLOWS if not any(part in line for line in lines())] == []
    assert [start for start in BEFORE if not any(x.startswith(start) for x in lines())] == []


SNIPPETS = re.findall(r"^ *```python\n(.*?)^ *```", CLIENT, re.M | re.S)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_snippet_of_the_clients_page_passes_mypy_strict(tmp_path: Path) -> None:
    """As a user's program would; the names that the page does not import are given."""
    given = "from tidelog import Admin, Consumer, Producer, ShareConsumer, TopicPartition\n"
    given += "def handle(value: bytes | None) -> None: ...\n"
    given += "class Later(Exception): ...\nclass Hopeless(Exception): ...\n"
    programs = []
    for number, snippet in enumerate(SNIPPETS):
        body = textwrap.indent(textwrap.dedent(snippet), "    ")
        programs.append(tmp_path / f"snippet_{number}.py")
        programs[-1].write_text(f"{given}async def main() -> None:\n{body}", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", *programs],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
async def test_every_snippet_of_the_clients_page_runs(number: int) -> None:
    """A snippet that reads for ever is ended; the names that it needs are imported."""
    snippet = textwrap.dedent(SNIPPETS[number])
    if "kafka:9094" in snippet:
        ast.parse(snippet)
        return
    with running_broker() as server, fake_registry() as registry:
        given = {
            "localhost:9092": server.bootstrap,
            "http://127.0.0.1:8081": registry.url,
            "Producer(trans": f'Producer("{server.bootstrap}", trans',
            'Consumer("flights")': f'Consumer("flights", bootstrap="{server.bootstrap}")',
            'Consumer("orders", ': f'Consumer("orders", bootstrap="{server.bootstrap}", ',
        }
        text = snippet
        for written, meant in given.items():
            text = text.replace(written, meant)
        names: dict[str, object] = {"handle": print, "Later": OSError, "Hopeless": ValueError}
        exec("from tidelog import Admin, Consumer, Producer, ShareConsumer, TopicPartition", names)
        async with names["Producer"](server.bootstrap) as producer:  # type: ignore[operator]
            is_created = "create_topic" in text
            for topic in ("calls",) if is_created else ("flights", "calls", "bills", "orders"):
                await producer.send(topic, b"x", timestamp_ms=1_372_953_600_000)
        code = compile(text, "docs/client.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        running = eval(code, names)
        is_endless = "async for record in consumer:" in text
        if running is not None:
            try:
                await asyncio.wait_for(running, 5 if is_endless else 30)
            except TimeoutError:
                assert is_endless

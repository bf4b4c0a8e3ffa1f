"""The entry: overview, unknown commands, errors to exit codes, and what is imported when."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from cli import main
from cli.exit_codes import ExitCode

ROOT = Path(__file__).resolve().parents[3]


def test_the_overview_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in main.COMMANDS)


def test_the_page_of_the_command_line_has_a_row_for_every_command() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert [name for name in main.COMMANDS if f"| `{name}" not in page] == []


@pytest.mark.parametrize("name", main.COMMANDS)
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([name, "--help"]) == 0
    assert capsys.readouterr().out.casefold().startswith(f"Usage: tidelog {name}".casefold())


def commands_below(name: str) -> Iterator[tuple[str, click.Command]]:
    """A command of the table and the commands that it has, by what is typed."""
    context = click.Context(main.command)
    command = main.command.get_command(context, name)
    assert command is not None
    yield name, command
    if isinstance(command, click.Group):
        yield from ((f"{name} {word}", below) for word, below in command.commands.items())


@pytest.mark.parametrize("name", main.COMMANDS)
def test_no_line_of_an_overview_is_cut_off(name: str) -> None:
    below = list(commands_below(name))[1:]
    room = 80 - 2 - 6 - max((len(words) for words, _ in below), default=0) + len(name) + 1
    lines = {words: command.get_short_help_str(room) for words, command in below}
    assert {words: line for words, line in lines.items() if line.endswith("...")} == {}
    assert {words: line for words, line in lines.items() if len(line) > room} == {}


@pytest.mark.parametrize("name", main.COMMANDS)
def test_no_help_points_at_a_file_of_a_checkout(name: str) -> None:
    """An installation has the pages as `tidelog docs NAME` (tests/unit/cli/test_docs.py)."""
    helps = {words: command.help or "" for words, command in commands_below(name)}
    assert [words for words, text in helps.items() if re.search(r"docs/\w", text)] == []


def test_nothing_given_shows_the_overview_as_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([]) == ExitCode.USAGE
    assert capsys.readouterr().err.startswith("Usage: tidelog")


def test_an_unknown_command_is_answered_with_the_nearest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main.run(["sevre"]) == ExitCode.USAGE
    assert "there is no command 'sevre'; did you mean 'serve'?" in capsys.readouterr().err


def test_a_wrong_option_points_to_the_commands_own_help(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main.run(["topic", "list", "--nope"]) == ExitCode.USAGE
    assert "(see tidelog topic list --help)" in capsys.readouterr().err


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["version"]) == 0
    assert capsys.readouterr().out.startswith("tidelog ")


@pytest.mark.parametrize(
    ("words", "forbidden"),
    [
        (["--help"], {"rich", "asyncio", "construct", "uvloop", "client", "broker", "storage"}),
        (["serve", "--set", "a=b"], {"rich", "client.producer", "client.consumer"}),
    ],
)
def test_what_a_command_does_not_need_is_not_imported(
    words: list[str], forbidden: set[str]
) -> None:
    script = (
        "import sys; from cli.main import run; run(sys.argv[1:]); "
        "print('LOADED', *sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *words],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    loaded = set(done.stderr.rpartition("LOADED")[2].split())
    assert not loaded & forbidden

"""Options that several commands share, also those that reach no broker."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from cli.exit_codes import ExitCode
from cli.failures import CommandFailed

_Command = Callable[..., Any]


def json_option(function: _Command) -> _Command:
    """``--json``: an answer for programs."""
    return click.option("--json", "as_json", is_flag=True, help="JSON for programs.")(function)


class WholeNumber(click.IntRange):
    """A whole number within bounds; click's own type names them only to a number outside."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number; raises BadParameter."""
        try:
            int(value)
        except ValueError:
            bounds = self._describe_range()
            self.fail(f"{value!r} is not a whole number; the range is {bounds}.", param, ctx)
        number: int = super().convert(value, param, ctx)
        return number


class DirectoryType(click.ParamType[Path]):
    """A directory that must exist; click's own type calls a missing one a usage error."""

    name = "DIRECTORY"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """The path; raises CommandFailed if it does not exist, BadParameter if it is a file."""
        path = Path(value)
        if not path.exists():
            raise CommandFailed(f"{path} does not exist", ExitCode.NOT_FOUND)
        if not path.is_dir():
            self.fail(f"{path} is not a directory", param, ctx)
        return path


def check_contradiction(**given: bool) -> None:
    """Refuse options of which at most one can be meant; the names are theirs, with underscores.

    Raises:
        click.UsageError: several are given.
    """
    names = [f"--{name.replace('_', '-')}" for name, is_given in given.items() if is_given]
    if len(names) > 1:
        raise click.UsageError(f"{' and '.join(names)} contradict each other: give one of them")


def now_ms() -> int:
    """The present in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def confirm(question: str, *, is_confirmed: bool) -> None:
    """Ask before something is deleted, unless ``--yes`` was given.

    Raises:
        click.UsageError: standard input is not a terminal, so the question has no answer.
        CommandFailed: the answer is no. Ctrl-C ends the command as everywhere.
    """
    if not is_confirmed:
        if not sys.stdin.isatty():
            raise click.UsageError("deleting needs --yes when standard input is not a terminal")
        if not click.confirm(question):
            raise CommandFailed("nothing was deleted")


def parse_pairs(pairs: tuple[str, ...], option: str) -> dict[str, str]:
    """``KEY=VALUE`` texts as a mapping.

    Raises:
        click.UsageError: a text without ``=``, or two values for one key.
    """
    parsed: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise click.UsageError(f"{option} {pair}: write KEY=VALUE")
        if parsed.setdefault(name.strip(), value.strip()) != value.strip():
            raise click.UsageError(f"{option} gives {name.strip()} two values: give it once")
    return parsed

"""The output of commands: tables and sentences for people, JSON for programs.

stdout carries only the answer; progress and notes go to stderr. Colours and progress bars appear on
terminals only. rich is imported when a table or a bar is drawn.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import click

_WIDE_COLUMNS = 1000
"""The width of a line without a terminal: piped output is never cut or wrapped."""


def print_json(document: object) -> None:
    """One JSON document, indented on a terminal."""
    indent = 2 if sys.stdout.isatty() else None
    lines = json.dumps(document, indent=indent, ensure_ascii=False).split("\n")
    click.echo("\n".join(map(_printable_json, lines)))


def json_line(document: object) -> str:
    """One JSON document on one line, without the line's end."""
    return _printable_json(json.dumps(document, ensure_ascii=False, separators=(",", ":")))


def _printable_json(text: str) -> str:
    """`text`, which is JSON, with its own escapes for what a terminal acts on."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)


def print_table(headings: str, rows: Iterable[Sequence[object]]) -> None:
    """Rows under bold headings; numbers are given as such and get digit groups.

    The headings have commas between them; one that starts with > is set to the right.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    is_terminal = sys.stdout.isatty()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in headings.split(","):
        is_number = heading.startswith(">")
        table.add_column(
            heading.removeprefix(">"),
            justify="right" if is_number else "left",
            no_wrap=is_number or not is_terminal,
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row))
    console = Console(
        file=sys.stdout, width=None if is_terminal else _WIDE_COLUMNS, highlight=False
    )
    # Not printed by rich itself: it ends the process with code 1 when the reader has closed the
    # pipe.
    with console.capture() as drawn:
        console.print(table)
    # Columns are padded for people; the padding at the ends of lines is for none.
    click.echo("\n".join(line.rstrip() for line in drawn.get().splitlines()))


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else printable(str(value))


def printable(text: str) -> str:
    """`text` with escapes (`\\x1b`) for what moves, hides or colours a terminal's text.

    Clients choose the names of groups and their own ids, and an operator's terminal shows them.
    """
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def say(sentence: str) -> None:
    """A line of the answer, with names that clients have chosen."""
    click.echo(printable(sentence))


def note(sentence: str) -> None:
    """A remark on stderr, which leaves stdout to the answer."""
    click.echo("\n".join(map(printable, sentence.split("\n"))), err=True)


def time_fields(timestamp_ms: int) -> dict[str, Any]:
    """A timestamp for programs: the number, and ISO 8601; both null where there is none."""
    if timestamp_ms < 0:
        return {"timestamp_ms": None, "time": None}
    from client.times import format_time  # only commands that show times pay for it

    return {"timestamp_ms": timestamp_ms, "time": format_time(timestamp_ms)}


def format_size(size_bytes: int) -> str:
    """Bytes in the unit that leaves one to four digits, such as ``12.3 MiB``."""
    if size_bytes < 1024:
        return f"{size_bytes} B"
    size, unit = size_bytes / 1024, "KiB"
    for larger in ("MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.1f} {unit}"


class Progress(AbstractContextManager["Progress"]):
    """A bar on stderr during a long operation; silent where stderr is not a terminal."""

    def __init__(self, what: str, total: int | None, *, is_quiet: bool = False) -> None:
        """`total` is the sum of all `advance` calls, None if unknown."""
        self._what = what
        self._total = total
        self._bar: Any = None
        self._task: Any = None
        self._is_shown = sys.stderr.isatty() and not is_quiet

    def __enter__(self) -> "Progress":
        """Draw the bar."""
        if self._is_shown:
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            self._bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:>3.0f}%"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._bar.add_task(self._what, total=self._total)
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()

    def advance(self, amount: int, what: str | None = None) -> None:
        """`amount` more is done; `what` replaces the text next to the bar."""
        if self._bar is not None:
            self._bar.update(self._task, advance=amount, description=what or self._what)

    def reach(self, done: int, total: int) -> None:
        """`done` of `total` are done, for callers that pass both each time."""
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total)

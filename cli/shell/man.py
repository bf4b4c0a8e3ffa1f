"""``tidelog man``: the manual page, written from what the commands say of themselves."""

import re
from collections.abc import Iterator
from inspect import cleandoc

import click

from cli.exit_codes import ExitCode
from values.version import VERSION

EXIT_CODES = {
    ExitCode.OK: "Done.",
    ExitCode.FAILED: "The broker, the disk, the input or a missing package failed it; see stderr.",
    ExitCode.USAGE: "The command line is wrong.",
    ExitCode.UNREACHABLE: "No broker answered.",
    ExitCode.NOT_FOUND: "Something that was named does not exist.",
    ExitCode.CONFIG: "The configuration has problems; all of them are listed.",
    ExitCode.DAMAGED: "An inspected file or directory has defects, or a job found data loss.",
    ExitCode.NOTHING_TO_DO: "A job found nothing to do.",
    ExitCode.FENCED: "Another run of the same job has taken over.",
    ExitCode.INTERRUPTED: "Ended by Ctrl-C.",
    ExitCode.BROKEN_PIPE: "The reader closed the output.",
}


@click.command()
def command() -> None:
    """Print the manual page.

    \b
    Examples:
      tidelog man | man -l -
      tidelog man > ~/.local/share/man/man1/tidelog.1
    """
    root = click.get_current_context().find_root()
    click.echo("\n".join(page(root)))


def page(root: click.Context) -> Iterator[str]:
    """The lines of the page, in the macros of man(7)."""
    yield f'.TH TIDELOG 1 "" "tidelog {VERSION}"'
    # Long lists of choices cannot be stretched to the margin.
    yield ".ad l"
    yield from (".SH NAME", r"tidelog \- a broker that speaks Kafka's protocol", ".SH SYNOPSIS")
    yield from (r".B tidelog", r"COMMAND [OPTIONS] [ARGS]...", ".SH COMMANDS")
    for context in _commands(root):
        yield from _section(context)
    yield ".SH EXIT STATUS"
    for code, meaning in EXIT_CODES.items():
        yield from (".TP", f".B {code.value}", _plain(meaning))


def _commands(parent: click.Context) -> Iterator[click.Context]:
    """The contexts of all commands that do something by themselves."""
    group = parent.command
    assert isinstance(group, click.Group)
    for name in group.list_commands(parent):
        member = group.get_command(parent, name)
        assert member is not None
        context = click.Context(member, info_name=name, parent=parent)
        if isinstance(member, click.Group):
            yield from _commands(context)
        elif not member.hidden:
            yield context


def _section(context: click.Context) -> Iterator[str]:
    usage = " ".join(context.command.collect_usage_pieces(context))
    yield from (".SS " + _plain(f"{context.command_path} {usage}"), *_text(context.command.help))
    for parameter in context.command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None:
            yield from (".TP", f".B {_plain(record[0])}", _plain(record[1]))


def _text(text: str | None) -> Iterator[str]:
    """The paragraphs of a help text; what follows a line with a backspace keeps its lines."""
    for paragraph in re.split(r"\n\s*\n", cleandoc(text or "")):
        if paragraph.startswith("\b"):
            lines = paragraph.splitlines()[1:]
            yield from (".PP", ".nf", *map(_plain, lines), ".fi")
        else:
            yield from (".PP", _plain(" ".join(paragraph.split())))


def _plain(text: str) -> str:
    """A text without meaning for roff, on one line."""
    escaped = " ".join(text.splitlines()).replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{escaped}" if escaped.startswith((".", "'")) else escaped

"""From an exception to one sentence on stderr and an exit code.

The only module that maps the packages' errors to exit codes. It imports the packages of the errors
only when there is an error, so that a successful run pays nothing.
"""

import os
import sys

import click

from cli.exit_codes import ExitCode


class CommandFailed(Exception):
    """A command ends with a sentence and a code of its own."""

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILED) -> None:
        """Keep the sentence and the code."""
        super().__init__(message)
        self.code = code


def exit_code_of(error: Exception) -> ExitCode | None:
    """The exit code of an error that a user can cause, None for a defect of ours."""
    if isinstance(error, CommandFailed):
        return error.code
    from client.errors import (
        AddressUnusable,
        BrokerRefused,
        BrokerUnreachable,
        ClientError,
        InvalidUse,
        NotThere,
    )
    from config import ConfigErrors
    from protocol.error_codes import ErrorCode
    from protocol.errors import ProtocolError
    from storage.errors import ForeignDataDir, StorageError

    missing = (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.RESOURCE_NOT_FOUND,
    )
    if isinstance(error, BrokerRefused) and error.code in missing:
        return ExitCode.NOT_FOUND
    if isinstance(error, BrokerRefused) and error.code == ErrorCode.INVALID_TOPIC_EXCEPTION:
        return ExitCode.USAGE
    table: tuple[tuple[type[Exception], ExitCode], ...] = (
        (BrokerUnreachable, ExitCode.UNREACHABLE),
        (AddressUnusable, ExitCode.UNREACHABLE),
        (NotThere, ExitCode.NOT_FOUND),
        (InvalidUse, ExitCode.USAGE),
        (ClientError, ExitCode.FAILED),
        (ConfigErrors, ExitCode.CONFIG),
        (FileNotFoundError, ExitCode.NOT_FOUND),
        (IsADirectoryError, ExitCode.USAGE),
        (ForeignDataDir, ExitCode.USAGE),
        (StorageError, ExitCode.FAILED),
        (ProtocolError, ExitCode.FAILED),
        (OSError, ExitCode.FAILED),
    )
    return next((code for kind, code in table if isinstance(error, kind)), None)


def sentence_of(error: Exception) -> str:
    """The text to print for `error`: its own message, or the system's with the file's name."""
    from config import ConfigErrors

    if isinstance(error, ConfigErrors) and len(error.problems) > 1:
        return f"the configuration has {len(error.problems)} problems:\n{error}"
    if isinstance(error, OSError) and error.strerror:
        name = f"{error.filename}: " if error.filename else ""
        return f"{name}{error.strerror}"
    return str(error)


def complain(sentence: str) -> None:
    """Write ``tidelog: sentence`` to stderr, in red on a terminal; further lines are indented."""
    from cli.output import printable  # a run without complaints is faster

    first, *rest = sentence.splitlines() or ["failed"]
    click.echo(click.style("tidelog: ", fg="red", bold=True) + printable(first), err=True)
    for line in rest:
        click.echo(f"  {printable(line)}", err=True)


def open_standard_streams() -> bool:
    """Give each closed standard stream /dev/null; whether standard output was open.

    Without that the next file or socket would get the free number, and output for the reader would
    go into it.
    """
    was_open = sys.stdout is not None
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)
            if descriptor != number:
                os.dup2(descriptor, number)
                os.close(descriptor)
            stream = open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115 - stays
            setattr(sys, name, stream)
    return was_open


def leave_broken_pipe() -> ExitCode:
    """Make the interpreter's own flush at exit silent, after the reader has closed the pipe."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    return ExitCode.BROKEN_PIPE

"""The entry of the console script: finds the command, runs it, turns errors into exit codes.

A command's module is imported when the command is used, so that ``tidelog --help`` and
``tidelog serve`` do not pay for tables, progress bars or the client.
"""

import gc
import os
import sys
from importlib import import_module

import click

from cli.exit_codes import ExitCode
from cli.failures import (
    complain,
    exit_code_of,
    leave_broken_pipe,
    open_standard_streams,
    sentence_of,
)
from cli.shell import COMPLETION_VARIABLE

COMMANDS: dict[str, tuple[str, str]] = {
    "serve": ("server.serve", "Run the broker."),
    "topic": ("topics.topic", "Create, list, describe, alter and delete topics."),
    "produce": ("records.produce", "Write lines or JSON records to a topic."),
    "consume": ("records.consume", "Read records, from an offset or a time, once or following."),
    "offsets": ("topics.offsets", "Find offsets by time, or the ends of partitions."),
    "group": ("topics.group", "List, describe, delete consumer groups; move them in time."),
    "share": ("topics.share", "Read as a share group; list, describe, move, delete share groups."),
    "cluster": ("topics.cluster", "Show brokers and their settings, and change these."),
    "histogram": ("time.histogram", "Count the records of a topic by time."),
    "retention": ("time.retention", "Forecast what retention deletes, and name what keeps it."),
    "skew": ("time.skew", "Audit the times of a topic: disorder, producers that are off."),
    "window": ("time.window", "Print the name under which clients read a span of time."),
    "clock": ("time.clock", "Set the clock of a broker for tests."),
    "console": ("server.console", "Show topics, records, time and groups in a browser."),
    "user": ("security.user", "Add, list, remove and copy users, change passwords."),
    "token": ("security.tokens", "Make, list, renew and expire delegation tokens."),
    "acl": ("security.acl", "Give, list, take and explain rights."),
    "quota": ("security.quota", "Limit what clients may use: bytes, time, connections."),
    "certs": ("server.certs", "Show, make and reload the certificates of TLS listeners."),
    "dump-segment": (
        "directory.dump_segment",
        "Show and check what a segment or index file holds.",
    ),
    "fsck": ("directory.fsck", "Audit a data directory that no broker has open."),
    "tier": ("remote.tier", "Show what is in the object store, delete what nothing names."),
    "restore": ("remote.restore", "Make a data directory from what a bucket has."),
    "promote": ("remote.promote", "Let a standby take its bucket over."),
    "export-kraft": ("directory.export_kraft", "Make a directory that Apache Kafka starts on."),
    "import": ("directory.import_kafka", "Take over a directory that Apache Kafka wrote."),
    "spark": ("spark", "Jobs between topics and lakes on Spark."),
    "config": ("server.config", "Check a configuration file, list all settings."),
    "profile": ("security.profile", "Name ways to connect, for --profile."),
    "completion": ("shell.completion", "Print what completes commands in bash, zsh or fish."),
    "man": ("shell.man", "Print the manual page."),
    "docs": ("docs", "Show a page of the documentation, or list all."),
    "doctor": ("server.doctor", "Say what on this machine would trouble a broker."),
    "version": ("version", "Print the version."),
}
"""Command name -> (module, one line for the overview)."""


class LazyCommands(click.Group):
    """A click group whose members are imported by name, one at a time."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All command names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command itself, imported now; None if there is none of this name."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"{__package__}.{COMMANDS[cmd_name][0]}")
        command = module.command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click, but an unknown name is answered with the nearest known one."""
        name = args[0] if args else ""
        if name and name not in COMMANDS and not name.startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(name, COMMANDS, n=1)
            hint = f"did you mean '{near[0]}'?" if near else "see tidelog --help"
            ctx.fail(f"there is no command '{name}'; {hint}")
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click, but an option before the command is answered with its place."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            ctx.fail(
                f"there is no option {error.option_name} before the command; options follow it, "
                "as in: tidelog topic list -b HOST:PORT"
            )

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The overview, from the table alone: it needs no import."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(
    cls=LazyCommands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=(
        "Times are ISO 8601 (2013-07-04T12:00Z), epoch milliseconds, or relative (-15m, today). "
        "Options follow the command. Exit codes: tidelog man."
    ),
)
@click.version_option(package_name="tidelog", prog_name="tidelog")
def command() -> None:
    """Tidelog: a broker that speaks Kafka's protocol and knows what time it was."""


def run(arguments: list[str] | None = None) -> int:
    """Run one command line (None: the process's own) and return its exit code.

    Only defects of ours escape as exceptions, with their traceback.
    """
    try:
        # Not command.main: that one turns a broken pipe into exit code 1.
        words = sys.argv[1:] if arguments is None else arguments
        with command.make_context("tidelog", list(words)) as context:
            result = command.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except (click.Abort, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return ExitCode.USAGE
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx else "tidelog"
        # The choices of a missing argument come in lines that begin with a tab.
        sentence = error.format_message().replace("\n\t", " ")
        complain(f"{sentence}\n(see {where} --help)")
        return ExitCode.USAGE
    except click.ClickException as error:
        complain(error.format_message())
        return error.exit_code
    except BrokenPipeError:
        return leave_broken_pipe()
    except Exception as error:
        code = exit_code_of(error)
        if code is None:
            raise
        complain(sentence_of(error))
        return code
    return result if isinstance(result, int) else ExitCode.OK


def main() -> None:
    """The console script."""
    if shell := os.environ.get(COMPLETION_VARIABLE):
        from click.shell_completion import shell_complete

        sys.exit(shell_complete(command, {}, "tidelog", COMPLETION_VARIABLE, shell))
    if not open_standard_streams() and sys.argv[1:2] != ["serve"]:
        complain("standard output is closed: let it go somewhere, such as >/dev/null")
        sys.exit(ExitCode.FAILED)
    code = run()
    gc.freeze()  # The last collections would walk all that was imported, for 20 ms.
    sys.exit(code)

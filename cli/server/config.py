"""``tidelog config``: check a configuration file without starting, list every setting there is."""

import sys
from pathlib import Path

import click

from cli.exit_codes import ExitCode
from cli.failures import CommandFailed
from cli.options import json_option
from cli.output import note, print_json, print_table
from config.broker_keys import BROKER_KEYS
from config.topic_keys import TOPIC_KEYS
from config.values import Key


@click.group()
def command() -> None:
    """Check a configuration file, list all settings."""


@command.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--set", "pairs", metavar="KEY=VALUE", multiple=True, help="As for serve.")
@json_option
def check(*, file: Path, pairs: tuple[str, ...], as_json: bool) -> int:
    """Say everything that is wrong with FILE, or that nothing is.

    The environment (TIDELOG_...) counts too, as it does for serve.
    """
    from cli.server.settings import command_line_settings, load_settings
    from config import ConfigErrors

    try:
        config = load_settings(str(file), command_line_settings(None, None, pairs))
    except ConfigErrors as error:
        if not as_json:
            raise
        names = ("key", "value", "origin", "reason", "cure")
        problems = [{name: getattr(p, name) for name in names} for p in error.problems]
        print_json({"file": str(file), "valid": False, "problems": problems, "notices": []})
        return ExitCode.CONFIG
    if as_json:
        print_json(
            {"file": str(file), "valid": True, "problems": [], "notices": list(config.notices)}
        )
        return ExitCode.OK
    for notice in config.notices:
        note(f"note: {notice}")
    click.echo(f"{file}: nothing is wrong with it")
    return ExitCode.OK


@command.command("list", short_help="List settings, their defaults and meanings.")
@click.argument("word", required=False)
@click.option("--topic", "of_topics", is_flag=True, help="Settings of topics, not of the broker.")
@json_option
def list_settings(*, word: str | None, of_topics: bool, as_json: bool) -> None:
    """List the settings (only those with WORD in name or text), their defaults and meanings."""
    table = TOPIC_KEYS if of_topics else BROKER_KEYS
    keys = [key for key in table.values() if not word or word in key.name or word in key.doc]
    if not keys:
        raise CommandFailed(f"no setting has '{word}' in it", ExitCode.NOT_FOUND)
    if as_json:
        print_json([_document(key) for key in keys])
        return
    if not sys.stdout.isatty():
        # A table as wide as the longest meaning helps neither people nor programs.
        for key in keys:
            click.echo(f"{key.name}\t{_default(key)}\t{key.doc}")
        return
    print_table("SETTING,DEFAULT,MEANING", [(key.name, _default(key), key.doc) for key in keys])


def _default(key: Key) -> str:
    """A default as it would be written in a file."""
    value = key.default
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple | list | frozenset):
        return ",".join(str(item) for item in value)
    return str(value)


def _document(key: Key) -> dict[str, object]:
    return {
        "name": key.name,
        "type": key.type.name.lower(),
        "default": _default(key),
        "allowed": key.allowed(),
        "dynamic": key.dynamic,
        "doc": key.doc,
    }

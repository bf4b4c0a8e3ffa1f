"""``tidelog profile``: ways to connect, by name; a profile is a client.properties file."""

import io
import os

import click

from cli.client_properties import (
    PROFILE_SUFFIX,
    keys_without_effect,
    load_properties,
    parse_client_properties,
    profile_file,
    profiles_directory,
)
from cli.options import json_option, parse_pairs
from cli.output import note, print_json, print_table


@click.group()
def command() -> None:
    """Name ways to connect, for --profile."""


@command.command("list")
@json_option
def list_profiles(*, as_json: bool) -> None:
    """List the profiles; passwords are not shown."""
    rows = []
    for path in sorted(profiles_directory().glob(f"*{PROFILE_SUFFIX}")):
        found = parse_client_properties(str(path), load_properties(str(path)))
        rows.append(
            {
                "profile": path.name.removesuffix(PROFILE_SUFFIX),
                "bootstrap": found.bootstrap or None,
                "tls": found.tls,
                "user": found.username or None,
                "mechanism": found.mechanism or None,
            }
        )
    if as_json:
        print_json(rows)
    elif rows:
        print_table("PROFILE,BOOTSTRAP,TLS,USER,MECHANISM", [tuple(row.values()) for row in rows])
    else:
        note("there are no profiles yet; make one: tidelog profile set NAME KEY=VALUE...")


@command.command("set")
@click.argument("name")
@click.argument("pairs", metavar="KEY=VALUE...", nargs=-1, required=True)
def set_profile(*, name: str, pairs: tuple[str, ...]) -> None:
    """Store or change a profile; an empty value removes its key.

    The keys are those of a client.properties file of Kafka's tools. Only the owner can read the
    file. A password need not be given here: write it into the file.

    \b
    Examples:
      tidelog profile set lab bootstrap.servers=lab:9092
      tidelog topic list --profile lab
    """
    import javaproperties  # most commands need none

    path = profile_file(name, must_exist=False)
    kept = load_properties(str(path)) if path.is_file() else {}
    given = parse_pairs(pairs, "profile set")
    found = {key: value for key, value in (kept | given).items() if value}
    parse_client_properties(str(path), found)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = io.StringIO()
    javaproperties.dump(found, text, timestamp=False)
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
        stream.write(text.getvalue())
    fresh.replace(path)
    click.echo(f"Stored {name} in {path}.")
    if unused := keys_without_effect(given):
        note(f"without effect here, other clients may know it: {', '.join(unused)}")


@command.command()
@click.argument("name")
def remove(*, name: str) -> None:
    """Remove a profile."""
    profile_file(name).unlink()
    click.echo(f"Removed {name}.")

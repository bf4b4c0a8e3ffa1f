"""``tidelog version``: the installed versions, for bug reports and for scripts."""

import json
import platform

import click

from values.version import DISTRIBUTION, VERSION


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(*, as_json: bool) -> None:
    """Print the version."""
    if as_json:
        click.echo(json.dumps({"version": VERSION, "python": platform.python_version()}))
    else:
        click.echo(f"{DISTRIBUTION} {VERSION} (Python {platform.python_version()})")

"""``tidelog version``: the installed versions, for bug reports and for scripts."""

import json
import platform

import click

from values.version import DISTRIBUTION, installed_version


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(*, as_json: bool) -> None:
    """Print the version."""
    number = installed_version()
    if as_json:
        click.echo(json.dumps({"version": number, "python": platform.python_version()}))
    else:
        click.echo(f"{DISTRIBUTION} {number} (Python {platform.python_version()})")

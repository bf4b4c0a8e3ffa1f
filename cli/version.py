"""``tidelog version``: the installed versions, for bug reports and for scripts."""

import json
import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version

import click

DISTRIBUTION = "tidelog"


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(*, as_json: bool) -> None:
    """Print the version."""
    number = version_of_package()
    if as_json:
        click.echo(json.dumps({"version": number, "python": platform.python_version()}))
    else:
        click.echo(f"{DISTRIBUTION} {number} (Python {platform.python_version()})")


def version_of_package() -> str:
    """The version that is installed."""
    try:
        return installed_version(DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown (not installed)"

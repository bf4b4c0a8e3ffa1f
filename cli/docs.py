"""``tidelog docs``: the pages of the documentation, which an installation has with it.

Messages name a page where a sentence is not enough, and the machine that shows them may have no
network. A wheel has the pages below the package (`setup.py`), a checkout where they are written.
"""

from pathlib import Path
from typing import Final

import click

from cli.exit_codes import ExitCode
from cli.failures import CommandFailed
from cli.output import print_table
from config.errors import nearest

FOLDER: Final = "docs"
HOME: Final = Path(__file__).parents[1] / FOLDER
"""Beside the packages, in a wheel and in a checkout."""


@click.command()
@click.argument(
    "page",
    required=False,
    shell_complete=lambda _, __, begun: sorted(one for one in pages() if one.startswith(begun)),
)
def command(page: str | None) -> None:
    """Show a page of the documentation, or list all.

    \b
    Examples:
      tidelog docs
      tidelog docs security
      tidelog docs how-to/keep-a-year
    """
    found = pages()
    if page is None:
        print_table("PAGE,ABOUT", [[name, title_of(path)] for name, path in found.items()])
        return
    name = page.removeprefix(f"{FOLDER}/").partition("#")[0].removesuffix(".md")
    if name not in found:
        cure = nearest(name, found, "tidelog docs lists all")
        raise CommandFailed(f"there is no page {page}; {cure}", ExitCode.NOT_FOUND)
    click.echo_via_pager(found[name].read_text(encoding="utf-8"))


def pages() -> dict[str, Path]:
    """Every page by its name, such as ``security`` and ``how-to/keep-a-year``."""
    paths = sorted([*HOME.glob("*.md"), *HOME.glob("how-to/*.md")])
    return {path.relative_to(HOME).with_suffix("").as_posix(): path for path in paths}


def title_of(page: Path) -> str:
    """The first heading of a page."""
    with page.open(encoding="utf-8") as lines:
        return next((line[2:].strip() for line in lines if line.startswith("# ")), "")

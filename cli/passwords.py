"""The question for a password, at the terminal of the command."""

import sys

import click

from broker.terminal import has_terminal


def ask_password(name: str, instead: str) -> str:
    """The password of the user `name`, typed twice.

    Raises:
        click.UsageError: there is no terminal to type it at; `instead` says what to do then.
    """
    if not (sys.stdin.isatty() or has_terminal()):
        raise click.UsageError(f"there is no terminal to type the password of {name} at: {instead}")
    return str(click.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True))

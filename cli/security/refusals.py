"""What ``tidelog user`` refuses alike, whether it asks a broker or changes a directory."""

from collections.abc import Collection

from cli.failures import CommandFailed


def check_is_new(name: str, mechanism: str, known: Collection[str]) -> None:
    """Check that a user who is to be added has no password for `mechanism` yet.

    `known` are the mechanisms that the user has a password for.

    Raises:
        CommandFailed: there is one, which only ``tidelog user passwd`` replaces.
    """
    if mechanism in known:
        raise CommandFailed(
            f"{name} has a password for {mechanism} already, and it stays; to change it: "
            f"tidelog user passwd {name}"
        )

"""What ``tidelog user`` refuses alike, whether it asks a broker or changes a directory."""

from collections.abc import Collection

from broker.principal import ANONYMOUS
from cli.exit_codes import ExitCode
from cli.failures import CommandFailed
from protocol.acl import WILDCARD


def check_is_distinct(name: str) -> None:
    """Check that rules can tell a user who is to be added from all others.

    Raises:
        CommandFailed: they cannot.
    """
    means = {
        WILDCARD: "every user in rules",
        ANONYMOUS.name: "clients that do not log in",
    }.get(name)
    if means is not None:
        raise CommandFailed(
            f"the name {name} stands for {means}, so no user may have it; choose another one",
            ExitCode.USAGE,
        )


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

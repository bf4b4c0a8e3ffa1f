"""``--set`` and ``--unset`` of the commands that change settings of topics, groups and brokers."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from typing import Any

import click

from cli.exit_codes import ExitCode
from cli.failures import CommandFailed
from cli.options import parse_pairs
from client.errors import BrokerRefused, ClientError
from protocol.error_codes import ErrorCode

OF_TOPICS = ("topics", "tidelog config list --topic")
"""`owners` and `overview` of `check_known` for settings of topics."""
_REFUSALS = (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST)
"""What brokers answer to a setting that they do not know, and to a wrong value of one they do."""
_OF_ONE_LISTENER = "listener.name."
"""How settings begin that count for one listener. Brokers list them only where they are set."""


def change_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--set`` and ``--unset``; the command gets them as `pairs` and `names`."""
    unset = click.option(
        "--unset", "names", metavar="KEY", multiple=True, help="Back to the default."
    )
    return click.option(
        "--set", "pairs", metavar="KEY=VALUE", multiple=True, help="Change a setting."
    )(unset(function))


def changes_of(pairs: tuple[str, ...], names: tuple[str, ...]) -> dict[str, str | None]:
    """The changes that ``--set`` and ``--unset`` ask for; None is back to the default.

    Raises:
        click.UsageError: there are none, or both for one setting.
    """
    given = parse_pairs(pairs, "--set")
    if both := given.keys() & set(names):
        raise click.UsageError(f"--set and --unset of {min(both)} contradict each other")
    changes: dict[str, str | None] = {**given, **dict.fromkeys(names)}
    if not changes:
        raise click.UsageError("nothing to change: give --set KEY=VALUE or --unset KEY")
    return changes


async def change_settings(
    ask: Callable[[], Awaitable[Mapping[str, object]]],
    change: Callable[[], Awaitable[None]],
    unset: tuple[str, ...],
    changes: Iterable[str],
    owners: str,
    overview: str,
) -> None:
    """Make all `changes`, of which `unset` are back to the default; `ask` says what is known.

    Brokers answer that ``--unset`` of an unknown setting is done: so it is looked up before.

    Raises:
        CommandFailed: a setting does not exist.
        BrokerRefused: a value is wrong, or the broker refuses for another reason.
    """
    if unset:
        check_known(unset, await ask(), owners, overview)
    try:
        await change()
    except BrokerRefused as error:
        if error.code in _REFUSALS:
            # Where the settings may not be read, the broker's own sentence is all there is.
            with suppress(ClientError):
                check_known(changes, await ask(), owners, overview)
        raise


def check_known(
    names: Iterable[str], known: Mapping[str, object], owners: str, overview: str
) -> None:
    """Refuse settings that do not exist.

    Raises:
        CommandFailed: names the nearest setting, or the command that lists them.
    """
    for name in names:
        if name not in known and not _is_known_for_one_listener(name, known):
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"see {overview}"
            raise CommandFailed(
                f"{owners} have no setting {name}; {hint} (nothing was changed)",
                ExitCode.NOT_FOUND,
            )


def _is_known_for_one_listener(name: str, known: Mapping[str, object]) -> bool:
    """Whether it is `listener.name.X.KEY` of a known key, or one of a mechanism there."""
    if not name.startswith(_OF_ONE_LISTENER):
        return False
    from config.security.keys import scoped_key  # seldom needed

    key = name.removeprefix(_OF_ONE_LISTENER).partition(".")[2]
    return key in known or scoped_key(name) is not None


def check_topic_settings(names: Iterable[str]) -> None:
    """Refuse settings that no topic has, where there is no topic to ask for those that it knows.

    Raises:
        CommandFailed: as `check_known`.
    """
    from config.topic_keys import TOPIC_KEYS  # only when there is an error to explain

    check_known(names, TOPIC_KEYS, *OF_TOPICS)

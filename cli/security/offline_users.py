"""Users of a data directory that no broker has open: the work of ``tidelog user --data-dir``."""

import secrets
from collections.abc import Iterable

from broker.security.credentials import (
    KIND_SCRAM,
    Credentials,
    Deletion,
    Upsertion,
)
from broker.security.scram import SALT_BYTES, SCRAM_BY_NAME, salted
from cli.exit_codes import ExitCode
from cli.failures import CommandFailed
from config import BrokerConfig, load
from storage.directory.offline import open_journal
from storage.disk.files import RealFiles

_ANY_SECRET = bytes(32)
"""No login happens here, so no answer depends on it."""


def set_user(data_dir: str, name: str, password: str, mechanism_name: str, iterations: int) -> None:
    """Create a user, or change a password, durably.

    Raises:
        CommandFailed: the name or the number of iterations is not acceptable.
        DataDirError: the directory cannot be used.
    """
    mechanism = SCRAM_BY_NAME[mechanism_name]
    salt = secrets.token_bytes(SALT_BYTES)
    change = Upsertion(
        name=name,
        mechanism=mechanism,
        iterations=iterations,
        salt=salt,
        salted_password=salted(mechanism, password, salt, iterations),
    )
    _alter(data_dir, [], [change])


def remove_user(data_dir: str, name: str) -> None:
    """Remove every credential of a user.

    Raises:
        CommandFailed: there is no such user.
    """
    known = users(data_dir).get(name)
    if not known:
        raise CommandFailed(f"there is no user {name!r} in {data_dir}", ExitCode.NOT_FOUND)
    for mechanism, _ in known:
        _alter(data_dir, [Deletion(name=name, mechanism=SCRAM_BY_NAME[mechanism])], [])


def users(data_dir: str) -> dict[str, list[tuple[str, int]]]:
    """The mechanisms and iterations of every user."""
    with open_journal(
        _config(data_dir), files=RealFiles(), random_bytes=secrets.token_bytes
    ) as journal:
        credentials = Credentials(journal.documents(KIND_SCRAM), secret=_ANY_SECRET)
    return {
        name: [(mechanism.sasl_name, iterations) for mechanism, iterations in known]
        for name, known in credentials.users().items()
    }


def _alter(data_dir: str, deletions: Iterable[Deletion], upsertions: Iterable[Upsertion]) -> None:
    with open_journal(
        _config(data_dir), files=RealFiles(), random_bytes=secrets.token_bytes
    ) as journal:
        credentials = Credentials(journal.documents(KIND_SCRAM), secret=_ANY_SECRET)
        plan = credentials.plan_alterations(deletions, upsertions)
        if plan.documents:
            journal.put_all(KIND_SCRAM, dict(plan.documents), erase_former=True)
    for outcome in plan.outcomes:
        if outcome.code:
            raise CommandFailed(f"user {outcome.name!r}: {outcome.message}")


def _config(data_dir: str) -> BrokerConfig:
    return load(command_line={"log.dirs": data_dir})

"""Users of a data directory that no broker has open: the work of ``tidelog user --data-dir``.

Reading alone, for an export, may happen while a broker runs.
"""

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from broker.security.credentials import (
    KIND_SCRAM,
    KIND_SECURITY,
    Credentials,
    UnreadableCredential,
    Upsertion,
    document_key,
    format_credential,
    parse_credential,
    problem_with,
)
from broker.security.scram import (
    SALT_BYTES,
    SCRAM_BY_NAME,
    ScramMechanism,
    salted,
)
from cli.exit_codes import ExitCode
from cli.failures import CommandFailed
from cli.security.refusals import check_is_new
from config import load
from storage.directory.metadata import KIND_PRODUCER_IDS, Json
from storage.directory.metadata_journal import JOURNAL_FILE, MetadataJournal, read_documents
from storage.directory.offline import open_journal
from storage.disk.files import RealFiles
from storage.errors import ForeignDataDir

PROPERTIES = "client.properties"
"""The file that ``serve --secure`` makes in a directory, with the password of its user."""

_FIRST_USERS = "first-users"
"""The document that says that the first users of a directory have been made."""

_ADMINISTRATOR = "administrator"
"""The document that says that ``serve --secure`` has made its user in a directory."""

_ANY_SECRET = bytes(32)
"""No login happens here, so no answer depends on it."""


def add_user(
    data_dir: str, name: str, password: str, mechanism_name: str, iterations: int
) -> list[str]:
    """Give a user a password for one more mechanism, durably; the mechanisms there were before.

    Raises:
        CommandFailed: the user has a password for this mechanism, or the name or the number of
            iterations is not acceptable.
        DataDirError: the directory cannot be used.
    """
    with _users_of(data_dir) as (journal, credentials):
        known = [mechanism.sasl_name for mechanism, _ in credentials.users().get(name, [])]
        check_is_new(name, mechanism_name, known)
        _put(journal, _planned(credentials, _upsertion(name, password, mechanism_name, iterations)))
    return known


def add_administrator(
    data_dir: str, name: str, mechanism_name: str, iterations: int, password: Callable[[], str]
) -> bool:
    """Add a user, unless this was done before; whether there is such a user now.

    Durable, and done once for a directory: a user who is removed later is not made again. The
    password is asked for when the user is made, before it is stored.

    Raises:
        CommandFailed: the name is not acceptable, or whatever `password` refuses.
        DataDirError: the directory cannot be used.
    """
    with _users_of(data_dir) as (journal, credentials):
        is_there = name in credentials.users()
        was_done = _ADMINISTRATOR in journal.documents(KIND_SECURITY)
        is_missing = not is_there and not was_done
        if is_missing:
            change = _upsertion(name, password(), mechanism_name, iterations)
            _put(journal, _planned(credentials, change))
        if not was_done:
            # A crash before this line leaves a user, so none is made a second time.
            journal.put(KIND_SECURITY, _ADMINISTRATOR, document=True)
    return is_there or is_missing


def change_password(data_dir: str, name: str, password: str, iterations: int) -> list[str]:
    """Change a user's password for every mechanism that the user has, durably, all or none.

    Returns these mechanisms.

    Raises:
        CommandFailed: there is no such user, or the number of iterations is not acceptable.
        DataDirError: the directory cannot be used.
    """
    with _users_of(data_dir) as (journal, credentials):
        mechanisms = _mechanisms_of(credentials, name, data_dir)
        changes = [
            _upsertion(name, password, mechanism.sasl_name, iterations) for mechanism in mechanisms
        ]
        _put(journal, _planned(credentials, *changes))
    return [mechanism.sasl_name for mechanism in mechanisms]


def _mechanisms_of(credentials: Credentials, name: str, data_dir: str) -> list[ScramMechanism]:
    known = credentials.users().get(name)
    if not known:
        raise CommandFailed(f"there is no user {name!r} in {data_dir}", ExitCode.NOT_FOUND)
    return [mechanism for mechanism, _ in known]


def _upsertion(name: str, password: str, mechanism_name: str, iterations: int) -> Upsertion:
    mechanism = SCRAM_BY_NAME[mechanism_name]
    salt = secrets.token_bytes(SALT_BYTES)
    return Upsertion(
        name=name,
        mechanism=mechanism,
        iterations=iterations,
        salt=salt,
        salted_password=salted(mechanism, password, salt, iterations),
    )


def make_first_users(
    data_dir: str, passwords: Mapping[str, str], mechanism_names: Iterable[str], iterations: int
) -> bool:
    """Create users by their passwords in a directory that nothing is in yet; whether that was so.

    All or none are made, so a crash leaves a directory that the next call completes.

    Raises:
        CommandFailed: a name is not acceptable.
        DataDirError: the directory cannot be used.
    """
    credentials = Credentials({}, secret=_ANY_SECRET)
    documents: dict[str, Json] = {}
    for mechanism_name in mechanism_names:
        documents |= _planned(
            credentials,
            *(
                _upsertion(name, password, mechanism_name, iterations)
                for name, password in passwords.items()
            ),
        )
    try:
        with _journal(data_dir) as journal:
            if any(kind != KIND_PRODUCER_IDS for kind, _ in journal.everything()):
                return False
            journal.put_all(KIND_SCRAM, documents)
            # Without it, users that are removed later would be made again.
            journal.put(KIND_SECURITY, _FIRST_USERS, document=True)
            return True
    except ForeignDataDir:
        return False  # a start takes it over, or says what is wrong with it


def remove_user(data_dir: str, name: str) -> None:
    """Remove every credential of a user, all or none.

    Raises:
        CommandFailed: there is no such user.
        DataDirError: the directory cannot be used.
    """
    with _users_of(data_dir) as (journal, credentials):
        known = _mechanisms_of(credentials, name, data_dir)
        _put(journal, {document_key(mechanism, name): None for mechanism in known})


def users(data_dir: str) -> dict[str, list[tuple[str, int]]]:
    """The mechanisms and iterations of every user."""
    with _users_of(data_dir) as (_, credentials):
        found = credentials.users()
    return {
        name: [(mechanism.sasl_name, iterations) for mechanism, iterations in known]
        for name, known in found.items()
    }


def export_users(data_dir: str) -> list[dict[str, Json]]:
    """The credentials of every user, with the keys that prove passwords; a broker may be running.

    Raises:
        UnreadableCredential: a document of the journal is no credential.
    """
    content = Path(data_dir, JOURNAL_FILE).read_bytes()
    exported: list[dict[str, Json]] = []
    for key, document in sorted(read_documents(content, KIND_SCRAM).items()):
        mechanism, name, _ = parse_credential(key, document)
        assert isinstance(document, dict)
        exported.append({"user": name, "mechanism": mechanism.sasl_name, **document})
    return exported


def import_users(data_dir: str, exported: Iterable[object], *, replace: bool) -> list[str]:
    """Take over credentials as `export_users` gives them, all or none; their names.

    Raises:
        CommandFailed: an entry is no credential, is there twice, or its user exists already.
        DataDirError: the directory cannot be used.
    """
    documents: dict[str, Json] = {}
    for number, entry in enumerate(exported, 1):
        key, document = _imported(number, entry)
        if key in documents:
            raise CommandFailed(f"entry {number}: {key!r} is there twice; remove one")
        documents[key] = document
    with _journal(data_dir) as journal:
        known = journal.documents(KIND_SCRAM)
        if not replace and (there := sorted(known.keys() & documents.keys())):
            raise CommandFailed(
                f"{', '.join(there)}: there already; --replace gives them the imported passwords"
            )
        if documents:
            _put(journal, documents)
    return sorted({key.partition("/")[2] for key in documents})


def _imported(number: int, entry: object) -> tuple[str, Json]:
    """The key and the document of one credential; no error shows more than a name."""
    match entry:
        case {"user": str(name), "mechanism": str(mechanism_name), **document}:
            key = f"{mechanism_name}/{name}"
        case _:
            raise CommandFailed(f"entry {number}: it lacks user or mechanism")
    try:
        mechanism, _, credential = parse_credential(key, document)
    except UnreadableCredential:
        raise CommandFailed(
            f"entry {number} ({key!r}): write a mechanism of {', '.join(SCRAM_BY_NAME)}, and "
            "salt, stored and server in base64 beside iterations"
        ) from None
    if set(document) != {"salt", "stored", "server", "iterations"}:
        raise CommandFailed(f"entry {number} ({key!r}): it has an unknown field; remove it")
    if problem := problem_with(mechanism, credential):
        raise CommandFailed(f"entry {number} ({key!r}): {problem}")
    return key, format_credential(credential)


def _planned(credentials: Credentials, *upsertions: Upsertion) -> dict[str, Json]:
    """The documents that these changes put; each is of another mechanism or user."""
    documents: dict[str, Json] = {}
    for upsertion in upsertions:
        plan = credentials.plan_alterations([], [upsertion])
        for outcome in plan.outcomes:
            if outcome.code:
                raise CommandFailed(f"user {outcome.name!r}: {outcome.message}")
        documents |= plan.documents
    return documents


def _put(journal: MetadataJournal, documents: Mapping[str, Json]) -> None:
    journal.put_all(KIND_SCRAM, documents, erase_former=True)


@contextmanager
def _users_of(data_dir: str) -> Iterator[tuple[MetadataJournal, Credentials]]:
    with _journal(data_dir) as journal:
        yield journal, Credentials(journal.documents(KIND_SCRAM), secret=_ANY_SECRET)


def _journal(data_dir: str) -> AbstractContextManager[MetadataJournal]:
    config = load(command_line={"log.dirs": data_dir})
    return open_journal(config, files=RealFiles(), random_bytes=secrets.token_bytes)

"""``tidelog user``: who may log in, on a running broker or in a directory that none has open.

With ``--data-dir`` a command changes the directory itself. So there is a way to make the first user
before the first start. Passwords come from a file, a prompt or are generated, never from the
command line, which every user of the machine sees.
"""

import json
import secrets
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click

from cli.broker_options import BrokerOptions, ask_admin, login_options, read_password
from cli.client_properties import profile_file, read_client_properties
from cli.exit_codes import ExitCode
from cli.failures import CommandFailed
from cli.options import WholeNumber, json_option
from cli.output import note, print_json, print_table
from cli.passwords import ask_password
from cli.security.refusals import check_is_distinct, check_is_new
from client.admin import Admin
from client.core.security import ITERATIONS, SCRAM_MECHANISMS
from client.errors import BrokerRefused
from protocol.acl import AclFilter
from protocol.error_codes import ErrorCode

_T = TypeVar("_T")

_GENERATED_BYTES = 18
_EXPORT, _EXPORT_VERSION = "tidelog-users", 1

_data_dir = click.option(
    "--data-dir",
    metavar="DIRECTORY",
    help="Change this directory, which no broker may have open, and ask no broker.",
)
_stopped_data_dir = click.option(
    "--data-dir", metavar="DIRECTORY", required=True, help="The data directory."
)
_mechanism = click.option(
    "--mechanism",
    type=click.Choice(list(SCRAM_MECHANISMS)),
    default="SCRAM-SHA-512",
    show_default=True,
    help="How the password is kept and proved.",
)
_iterations = click.option(
    "--iterations",
    type=WholeNumber(4096, 16384),
    default=ITERATIONS,
    show_default=True,
    help="More make guessing from a stolen directory slower, and logging in too.",
)
_password_file = click.option(
    "--password-file",
    metavar="FILE",
    help="The user's new password is its only line; without it you are asked.",
)
_generate = click.option("--generate", is_flag=True, help="Make a password and print it once.")


@click.group()
def command() -> None:
    """Add, list, remove and copy users, change passwords."""


def _credential_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (login_options, _data_dir, _generate, _password_file, _iterations):
        function = option(function)
    return click.argument("name")(function)


@command.command(short_help="Add a user, or one more mechanism for a user.")
@_credential_options
@_mechanism
def add(
    *,
    name: str,
    mechanism: str,
    iterations: int,
    password_file: str | None,
    generate: bool,
    data_dir: str | None,
    broker: BrokerOptions,
) -> None:
    """Add a user, or a further mechanism for one; never changes a password."""
    check_is_distinct(name)
    password = _password(name, password_file, generate=generate)
    if data_dir is not None:
        from cli.security.offline_users import add_user

        is_new = not Path(data_dir).exists()
        others = add_user(data_dir, name, password, mechanism, iterations)
        if is_new:
            note(f"{data_dir} is a new data directory")
    else:

        async def work(admin: Admin) -> list[str]:
            known = await admin.mechanisms_of(name)
            check_is_new(name, mechanism, known)
            await admin.set_user(name, password, mechanism=mechanism, iterations=iterations)
            return known

        others = ask_admin(broker, work)
    if generate:
        _show(name, password)
    _say_what_changed("added", name, [mechanism], iterations)
    if others:
        note(
            f"{name} logs in with {', '.join(others)} too, by the password that was set for it; "
            f"one password for all: tidelog user passwd {name}"
        )


@command.command()
@_credential_options
def passwd(
    *,
    name: str,
    iterations: int,
    password_file: str | None,
    generate: bool,
    data_dir: str | None,
    broker: BrokerOptions,
) -> None:
    """Change a user's password for every mechanism that the user has.

    Connections that are open stay.
    """
    password = _password(name, password_file, generate=generate)
    if data_dir is not None:
        from cli.security.offline_users import change_password

        _check_exists(data_dir)
        changed = change_password(data_dir, name, password, iterations)
    else:
        changed = _ask_about(
            name, broker, lambda admin: admin.change_password(name, password, iterations=iterations)
        )
    if generate:
        _show(name, password)
    _say_what_changed("changed the password of", name, changed, iterations)
    for file in _files_of_logins(data_dir):
        if _logs_in(file, name):
            note(f"{file} still has the former password of {name}: write the new one there")


def _files_of_logins(data_dir: str | None) -> Iterator[str]:
    """The file that ``serve --secure`` makes in a directory, and that of this command's login."""
    if data_dir is not None:
        from cli.security.offline_users import PROPERTIES

        yield str(Path(data_dir, PROPERTIES))
    given = click.get_current_context().params
    if given["command_config"] is not None:
        yield given["command_config"]
    if given["profile"] is not None:
        yield str(profile_file(given["profile"]))


def _logs_in(file: str, name: str) -> bool:
    """Whether a client.properties file has a login of this user."""
    try:
        return read_client_properties(file).username == name
    except (CommandFailed, OSError):
        return False


def _ask_about(
    name: str, broker: BrokerOptions, ask: Callable[[Admin], Coroutine[Any, Any, _T]]
) -> _T:
    """The answer of the broker to what is about one user, who must exist."""
    try:
        return ask_admin(broker, ask)
    except BrokerRefused as error:
        if error.code is not ErrorCode.RESOURCE_NOT_FOUND:
            raise
        raise CommandFailed(
            f"there is no user {name!r} with a password (broker {error.broker}); see tidelog user "
            "list",
            ExitCode.NOT_FOUND,
        ) from None


def _show(name: str, password: str) -> None:
    """Print a generated password."""
    click.echo(password)
    note(f"this is the password of {name}; it is stored nowhere in clear")


def _say_what_changed(done: str, name: str, mechanisms: list[str], iterations: int) -> None:
    if not name.isascii():
        note("Apache Kafka refuses names that are not ASCII; this broker accepts them")
    note(f"{done} {name} ({', '.join(mechanisms)}, {iterations} iterations)")


@command.command("list")
@_data_dir
@login_options
@json_option
def list_users(*, data_dir: str | None, broker: BrokerOptions, as_json: bool) -> None:
    """List users and how they log in."""
    if data_dir is not None:
        from cli.security.offline_users import users

        _check_exists(data_dir)
        found = users(data_dir)
    else:
        found = ask_admin(broker, lambda admin: admin.users())
    rows = [(name, *credential) for name, known in sorted(found.items()) for credential in known]
    if as_json:
        keys = ("name", "mechanism", "iterations")
        print_json([dict(zip(keys, row, strict=True)) for row in rows])
    elif rows:
        print_table("USER,MECHANISM,ITERATIONS", [tuple(map(str, row)) for row in rows])
    else:
        note("there are no users yet; add one: tidelog user add NAME")


@command.command()
@click.argument("name")
@_data_dir
@login_options
def remove(*, name: str, data_dir: str | None, broker: BrokerOptions) -> None:
    """Remove a user; connections that are open stay."""
    if data_dir is not None:
        from cli.security.offline_users import remove_user

        _check_exists(data_dir)
        remove_user(data_dir, name)
        rules = 0
    else:

        async def work(admin: Admin) -> int:
            await admin.remove_user(name)
            try:
                return len(await admin.rules(AclFilter(principal=f"User:{name}")))
            except BrokerRefused:  # without an authorizer, or without the right to see rules
                return 0

        rules = _ask_about(name, broker, work)
    note(f"removed {name}")
    if rules:
        note(
            f"rules that name {name}: {rules}; they stay, for tokens and for the next user of this "
            f"name; to take them too: tidelog acl remove --user {name} --all"
        )


@command.command("export", short_help="Write users and the keys of their passwords to a file.")
@click.argument("file")
@_stopped_data_dir
def export(*, file: str, data_dir: str) -> None:
    """Write users and the keys that prove their passwords to FILE, which only you can read.

    Passwords are not in it, yet guesses can be tried on it: keep it as secret as the data
    directory. A broker may have the directory open.
    """
    from cli.security.offline_users import export_users
    from storage.disk.files import RealFiles

    _check_exists(data_dir)
    if Path(file).exists():
        raise CommandFailed(f"{file} exists; name another file", ExitCode.USAGE)
    found = export_users(data_dir)
    if not found:
        raise CommandFailed(f"{data_dir} has no users", ExitCode.NOT_FOUND)
    text = json.dumps({_EXPORT: _EXPORT_VERSION, "credentials": found}, indent=1)
    RealFiles().replace_atomically(str(Path(file).absolute()), f"{text}\n".encode())
    note(f"wrote {len(found)} credentials to {file}")


@command.command("import", short_help="Take over all users of a file, or none of them.")
@click.argument("file")
@_stopped_data_dir
@click.option("--replace", is_flag=True, help="Give users that are there the imported passwords.")
def import_(*, file: str, data_dir: str, replace: bool) -> None:
    """Take over the users of FILE, which 'user export' wrote, all or none of them.

    No broker may have the directory open: Kafka's protocol does not carry these keys.
    """
    from cli.security.offline_users import import_users

    try:
        document = json.loads(Path(file).read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        document = None
    match document:
        case {"tidelog-users": 1, "credentials": list(exported)}:
            names = import_users(data_dir, exported, replace=replace)
        case _:
            raise CommandFailed(
                f"{file} is no export of users of this version; write one with 'tidelog user "
                "export'",
                ExitCode.USAGE,
            )
    note(f"took over {', '.join(names) if names else 'nothing'}")


def _check_exists(data_dir: str) -> None:
    """Only `add` makes a directory."""
    if not Path(data_dir).is_dir():
        raise CommandFailed(f"there is no directory {data_dir}", ExitCode.NOT_FOUND)


def _password(name: str, file: str | None, *, generate: bool) -> str:
    if generate:
        if file is not None:
            raise click.UsageError("--generate and a file with the password: give one of them")
        return secrets.token_urlsafe(_GENERATED_BYTES)
    if file is None:
        return ask_password(name, "give --password-file FILE, or --generate")
    return read_password(file)

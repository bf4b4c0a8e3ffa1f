"""Options of commands that reach a broker, and the bridge from them to the asyncio client."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping
from difflib import get_close_matches
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import click
from click.shell_completion import CompletionItem

from cli.client_properties import ClientProperties, profile_file, read_client_properties
from cli.exit_codes import ExitCode
from cli.failures import CommandFailed
from cli.options import now_ms
from client.core.options import (
    BOOTSTRAP_VARIABLE,
    DEFAULT_BOOTSTRAP,
    NOT_SECURED,
    PASSWORD_MECHANISMS,
    TOKEN_MECHANISM,
    Security,
)
from client.core.tls import tls_context
from client.errors import BadFile, BrokerRefused, ClientError, InvalidTime
from client.times import parse_duration, parse_time
from protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from client.admin import Admin

_T = TypeVar("_T")
_Command = Callable[..., Any]

USER_VARIABLE = "TIDELOG_USER"
PASSWORD_VARIABLE = "TIDELOG_PASSWORD_FILE"
TOKEN_VARIABLE = "TIDELOG_TOKEN_FILE"
CONFIG_VARIABLE = "TIDELOG_COMMAND_CONFIG"
PROFILE_VARIABLE = "TIDELOG_PROFILE"

DEFAULT_MECHANISM = "SCRAM-SHA-512"


class BrokerOptions(TypedDict):
    """How to reach the broker, as keywords of the client's classes."""

    bootstrap: str
    security: Security


_FILE_OPTIONS = {
    "ca_file": ("--tls-ca", "Trust these authorities (PEM), not the system's; implies --tls."),
    "certificate_file": ("--tls-cert", "This client's own certificate (PEM); implies --tls."),
    "key_file": ("--tls-key", "The certificate's key (PEM), if it is not in its file."),
}
"""Fields of `Security` that are files, with their options."""

_GIVEN = (
    "bootstrap", "profile", "command_config", "tls", "login", "login_file", "token_file",
    "sasl_mechanism", *_FILE_OPTIONS,
)  # fmt: skip
"""The names under which click gives the options of `broker_options`."""


def broker_options(function: _Command) -> _Command:
    """``-b HOST:PORT``, TLS and the user; the command gets them as `broker`."""
    return _broker_options(function, "")


def login_options(function: _Command) -> _Command:
    """As `broker_options`, for commands about users: ``--login-user`` is who gives the command."""
    return _broker_options(function, "login-")


def _broker_options(function: _Command, prefix: str) -> _Command:
    @wraps(function)
    def command(**options: Any) -> Any:
        given = {name: options.pop(name) for name in _GIVEN}
        broker = broker_of(given, prefix)
        try:
            return function(broker=broker, **options)
        except BrokerRefused as error:
            near = nearest_name(broker, error, options)
            if near is None:
                raise
            raise CommandFailed(f"{error}; did you mean {near}?", ExitCode.NOT_FOUND) from None

    with_options: _Command = command
    for decorator in reversed(_decorators(prefix)):
        with_options = decorator(with_options)
    return with_options


def broker_of(given: Mapping[str, Any], prefix: str = "") -> BrokerOptions:
    """Where the broker is, by the values of the options that `broker_options` adds.

    Raises:
        click.UsageError: options that contradict each other or need each other.
        CommandFailed: a profile or a file of properties is missing or wrong.
    """
    rest = {name: given[name] for name in _GIVEN}
    bootstrap, path = rest.pop("bootstrap"), rest.pop("command_config")
    if bootstrap is not None and not bootstrap.strip():
        raise click.UsageError(
            "-b is empty: write -b HOST:PORT, or leave it out for "
            f"${BOOTSTRAP_VARIABLE}, else {DEFAULT_BOOTSTRAP}"
        )
    profile = rest.pop("profile")
    if path is not None and profile is not None:
        raise click.UsageError(
            f"--profile and --command-config (or ${PROFILE_VARIABLE} and ${CONFIG_VARIABLE}) "
            "contradict each other: give one of them"
        )
    if profile is not None:
        path = str(profile_file(profile))
    file = ClientProperties() if path is None else read_client_properties(path)
    return BrokerOptions(
        # The variable last: a profile that is named says which cluster is meant.
        bootstrap=bootstrap
        or file.bootstrap
        or os.environ.get(BOOTSTRAP_VARIABLE)
        or DEFAULT_BOOTSTRAP,
        security=_security(**rest, prefix=prefix, file=file),
    )


def none_to_see(what: str, broker: BrokerOptions) -> str:
    """The sentence for an empty list of `what`, of which a user sees those with DESCRIBE alone."""
    if broker["security"] == NOT_SECURED:
        return f"there are no {what} yet"
    return f"there are no {what} yet, or none that this user may see (DESCRIBE; tidelog acl)"


def nearest_name(
    broker: BrokerOptions, error: BrokerRefused, options: Mapping[str, Any]
) -> str | None:
    """The topic or group that was meant, if `error` says that the one in `options` is not there."""
    if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        kind, names = "topic", TOPIC.names
        named = [options.get("topic"), options.get("name"), *(options.get("names") or ())]
    elif error.code is ErrorCode.GROUP_ID_NOT_FOUND:
        kind, names, named = "group", GROUP.names, [options.get("group_id")]
    else:
        return None
    try:
        known = list(ask_admin(broker, names))
    except ClientError:
        return None
    for name in named:
        if name and name not in known:
            near = get_close_matches(name, known, n=1)
            return f"the {kind} {near[0]}" if near else None
    return None


def _decorators(prefix: str) -> list[Callable[[_Command], _Command]]:
    """The options, in the order of the help."""
    mechanisms = click.Choice(PASSWORD_MECHANISMS)
    return [
        click.option(
            "-b",
            "--bootstrap",
            metavar="HOST:PORT",
            help=f"Where the broker is; else ${BOOTSTRAP_VARIABLE}, else {DEFAULT_BOOTSTRAP}.",
        ),
        click.option(
            "--profile",
            metavar="NAME",
            envvar=PROFILE_VARIABLE,
            help="How to connect, as tidelog profile set has stored it; other options "
            f"override it. Also ${PROFILE_VARIABLE}.",
        ),
        click.option(
            "--command-config",
            metavar="FILE",
            envvar=CONFIG_VARIABLE,
            help="A client.properties file of Kafka's tools, which says how to connect; other "
            f"options override it. Also ${CONFIG_VARIABLE}.",
        ),
        click.option("--tls", is_flag=True, help="Encrypt, and check the broker's certificate."),
        *(
            click.option(option, field, metavar="FILE", default="", help=text)
            for field, (option, text) in _FILE_OPTIONS.items()
        ),
        click.option(
            f"--{prefix}user",
            "login",
            metavar="NAME",
            default="",
            envvar=USER_VARIABLE,
            help=f"Authenticate as this user; also ${USER_VARIABLE}.",
        ),
        click.option(
            f"--{prefix}password-file",
            "login_file",
            metavar="FILE",
            envvar=PASSWORD_VARIABLE,
            help=f"The password of that user is its only line; also ${PASSWORD_VARIABLE}.",
        ),
        click.option(
            f"--{prefix}token-file",
            "token_file",
            metavar="FILE",
            envvar=TOKEN_VARIABLE,
            help="Authenticate by the token in this file (OAUTHBEARER), instead of a user and a "
            f"password; also ${TOKEN_VARIABLE}.",
        ),
        click.option(
            "--sasl-mechanism",
            type=mechanisms,
            default=None,
            show_default=DEFAULT_MECHANISM,
            help="How the user is authenticated; PLAIN hides the password only with TLS.",
        ),
    ]


def _security(
    *,
    tls: bool,
    login: str,
    login_file: str | None,
    token_file: str | None,
    sasl_mechanism: str | None,
    prefix: str,
    file: ClientProperties,
    **files: str,
) -> Security:
    """The security that the options describe, and where they are silent the file.

    Raises:
        click.UsageError: options that need each other, or a file that is no PEM.
        OSError: a file cannot be read.
    """
    if files["key_file"] and not files["certificate_file"]:
        raise click.UsageError("--tls-key needs --tls-cert: the certificate that the key is of")
    if bool(login) != (login_file is not None):
        raise click.UsageError(
            f"--{prefix}user and --{prefix}password-file need each other: give both"
        )
    if not login:
        token_file = token_file or file.token_file
    if token_file and (login or sasl_mechanism):
        raise click.UsageError(
            f"--{prefix}token-file names the user and the mechanism: leave --{prefix}user and "
            "--sasl-mechanism out"
        )
    tls = tls or any(files.values()) or file.tls
    key_password = ""
    if not files["certificate_file"]:
        key_password = file.key_password
    files = {name: path or file.files.get(name, "") for name, path in files.items()}
    username = "" if token_file else login or file.username
    if not tls and not username and not token_file:
        return NOT_SECURED
    password = file.password if username else ""
    if login_file is not None:
        password = read_password(login_file)
    for path in filter(None, (*files.values(), token_file)):
        # Here, because missing files have an exit code of their own.
        Path(path).open("rb").close()
    security = Security(
        tls=tls,
        ca_file=files["ca_file"],
        certificate_file=files["certificate_file"],
        key_file=files["key_file"],
        key_password=key_password,
        check_hostname=file.check_hostname,
        mechanism=_mechanism(sasl_mechanism or file.mechanism, username, token_file),
        username=username,
        password=password,
        token_file=token_file or "",
    )
    try:
        tls_context(security)
    except BadFile as error:
        option = _FILE_OPTIONS[error.field][0]
        raise click.UsageError(f"{option} {error.path}: {error.problem}; give a PEM file") from None
    return security


def read_password(file: str) -> str:
    """The password in a file, which is its only line.

    Raises:
        CommandFailed: the line is empty, there is another one, or the file is not text.
        OSError: it cannot be read.
    """
    try:
        first, _, rest = Path(file).read_text(encoding="utf-8").partition("\n")
    except UnicodeDecodeError as error:
        raise CommandFailed(
            f"{file} is not UTF-8 text (byte {error.start}); write the password into it as one "
            "line",
            ExitCode.USAGE,
        ) from None
    password = first.removesuffix("\r")
    if not password:
        raise CommandFailed(
            f"{file}: its first line is empty; write the password there", ExitCode.USAGE
        )
    if rest.strip():
        raise CommandFailed(
            f"{file}: it has more than one line; the password has to be the only one",
            ExitCode.USAGE,
        )
    return password


def _mechanism(chosen: str, username: str, token_file: str | None) -> str:
    if token_file:
        return TOKEN_MECHANISM
    if not username:
        return ""
    return chosen if chosen in PASSWORD_MECHANISMS else DEFAULT_MECHANISM


class TimeType(click.ParamType[_T]):
    """A time or a span of time, as `parse` reads it from text."""

    def __init__(self, name: str, parse: Callable[[str], _T]) -> None:
        """`name` stands in the help; `parse` raises InvalidTime."""
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> _T:
        """The parsed text; what is not a time, or in a wrong unit, is a usage error."""
        try:
            return self._parse(value)
        except InvalidTime as error:
            self.fail(str(error), param, ctx)


TIME = TimeType("TIME", lambda text: parse_time(text, now_ms=now_ms()))
"""A time, given as milliseconds since the epoch to the command."""

DURATION = TimeType("DURATION", parse_duration)
"""A length of time, given as milliseconds to the command."""


class NameType(click.ParamType[str]):
    """A name that the broker knows: shells complete it; a new one is accepted as well."""

    name = "text"

    def __init__(self, names: "Callable[[Admin], Coroutine[Any, Any, Iterable[str]]]") -> None:
        """`names` asks for what there is."""
        self.names = names

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The names that begin so; none if the broker does not answer at once."""
        from client.admin import Admin

        async def ask(broker: BrokerOptions) -> list[str]:
            wait_ms = _COMPLETION_MS
            async with Admin(**broker, request_timeout_ms=wait_ms, timeout_ms=wait_ms) as admin:
                return [name for name in await self.names(admin) if name.startswith(incomplete)]

        try:
            found = run_async(ask(broker_of({name: ctx.params.get(name) for name in _GIVEN})))
        except (ClientError, CommandFailed, click.ClickException, OSError):
            return []
        return [CompletionItem(name) for name in sorted(found)]


async def _group_names(admin: "Admin") -> list[str]:
    return [group.group_id for group in await admin.groups()]


TOPIC = NameType(lambda admin: admin.topics())
GROUP = NameType(_group_names)
_COMPLETION_MS = 2000
"""How long a shell waits for names at most."""


def run_async(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a command's work to its end; Ctrl-C cancels it, and its clean-up still runs."""
    return asyncio.run(work)


def ask_admin(broker: BrokerOptions, ask: "Callable[[Admin], Coroutine[Any, Any, _T]]") -> _T:
    """The answer of an admin client that is connected for this one question."""
    from client.admin import Admin  # only commands that reach a broker pay for it

    async def work() -> _T:
        async with Admin(**broker) as admin:
            return await ask(admin)

    return run_async(work())

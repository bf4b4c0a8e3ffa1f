"""``tidelog console``: the web console, a process of its own beside the brokers."""

import logging
import re
from pathlib import Path

import click

from cli.broker_options import BrokerOptions, broker_options
from cli.exit_codes import ExitCode
from cli.failures import CommandFailed
from cli.passwords import ask_password
from cli.server.logs import set_up
from client.aio.explain import parse_metrics_url
from client.core.options import parse_bootstrap
from client.errors import InvalidUse

_DEFAULT_LISTEN = "127.0.0.1:8090"


@click.command()
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default=_DEFAULT_LISTEN,
    show_default=True,
    help="Where browsers connect; port 0 picks one.",
)
@click.option(
    "--broker-http",
    metavar="HOST:PORT",
    help="A Tidelog's metrics port, if it is not found by itself.",
)
@click.option("--schema-registry", metavar="URL", help="A registry with Confluent's interface.")
@click.option("--read-only", is_flag=True, help="Nothing can be changed.")
@click.option("--no-export", is_flag=True, help="Records cannot be downloaded in bulk.")
@click.option(
    "--auth",
    type=click.Choice(("none", "basic")),
    default="none",
    show_default=True,
    help="basic: a user of the file of --users, by name and password.",
)
@click.option("--users", "users_file", metavar="FILE", help="The console's own users.")
@click.option("--add-user", metavar="NAME", help="Write a user into that file, and end.")
@click.option(
    "--allowed-hosts",
    metavar="HOST:PORT",
    multiple=True,
    help="What browsers may call this console, as in the address bar; repeatable.",
)
@click.option(
    "--allow-anonymous",
    is_flag=True,
    help="Let other machines in without a login: only in a trusted network.",
)
@broker_options
def command(
    *,
    listen: str,
    broker_http: str | None,
    schema_registry: str | None,
    read_only: bool,
    no_export: bool,
    auth: str,
    users_file: str | None,
    add_user: str | None,
    allowed_hosts: tuple[str, ...],
    allow_anonymous: bool,
    broker: BrokerOptions,
) -> int:
    """Show topics, records, time and groups of a cluster in a browser.

    Works with any Kafka broker, and shows more of a Tidelog. Prints its URL and runs until Ctrl-C.

    Example: tidelog console --bootstrap 127.0.0.1:9092 --listen 127.0.0.1:0
    """
    if auth == "basic" and users_file is None:
        raise click.UsageError("--auth basic needs --users FILE: the users who may log in")
    if add_user is not None:
        return _add_user(add_user, users_file)
    parse_bootstrap(broker["bootstrap"])
    if broker_http is not None:
        parse_metrics_url(broker_http)
    host, port = _address(listen)
    try:
        from console.options import ConsoleOptions
        from console.serve import bind, is_local, serve
    except ImportError as error:
        raise CommandFailed(
            f"the console needs {error.name}: pip install 'tidelog[console]'", ExitCode.FAILED
        ) from None
    if not is_local(host) and auth == "none" and not allow_anonymous:
        raise click.UsageError(
            f"--listen {listen} can be reached by other machines: give --auth basic and --users, "
            "or --allow-anonymous in a trusted network"
        )
    options = ConsoleOptions(
        **broker,
        broker_http=broker_http,
        schema_registry=_url(schema_registry),
        is_read_only=read_only,
        may_export=not no_export,
        users=_users(users_file) if auth == "basic" else None,
        allowed_hosts=frozenset(host.lower() for host in allowed_hosts),
    )
    set_up(level="warning", form="text", file=None)
    logging.getLogger("tidelog.audit").setLevel(logging.INFO)
    try:
        bound = bind(host, port)
    except OSError as error:
        # Python adds the address in parentheses.
        why = (error.strerror or str(error)).partition(" (")[0]
        raise CommandFailed(
            f"--listen {listen} is not possible: {why}; give an address of this machine with "
            "another port, or port 0 for any that is free",
            ExitCode.FAILED,
        ) from None
    serve(options, bound, click.echo)
    return ExitCode.OK


def _address(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    if not host or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65_535:
        raise click.UsageError(f"--listen {listen}: write HOST:PORT, such as {_DEFAULT_LISTEN}")
    return host.strip("[]"), int(port)


def _url(url: str | None) -> str | None:
    if url is not None and not url.startswith(("http://", "https://")):
        raise click.UsageError(f"--schema-registry {url}: write http://HOST:PORT")
    return url


def _users(path: str | None) -> dict[str, str]:
    from console.web.users import read_users

    assert path is not None
    try:
        users = read_users(Path(path))
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if not users:
        raise click.UsageError(f"--users {path} names no user: add one with --add-user NAME")
    return users


def _add_user(name: str, path: str | None) -> int:
    if path is None:
        raise click.UsageError("--add-user needs --users FILE: where the user is written")
    from console.web.users import add_user

    password = ask_password(name, "run this command at one")
    try:
        add_user(Path(path), name, password)
    except ValueError as error:
        raise InvalidUse(str(error)) from None
    click.echo(f"Wrote the user {name} into {path}.")
    return ExitCode.OK

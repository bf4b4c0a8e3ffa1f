"""``tidelog serve``: read the configuration, run the broker, report when and where it is ready.

Composes `config.load` and `broker.server.run` and decides nothing itself. Order of sources:
defaults, then ``--config FILE``, then the environment (``TIDELOG_...``), then ``--data-dir``,
``--listen`` and ``--set``. It imports no tables and no client, so that a start stays quick.
"""

import gc
import logging
import os
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click

from cli.exit_codes import ExitCode
from cli.failures import CommandFailed, exit_code_of, sentence_of
from cli.server import announcement
from cli.server.logs import set_up

if TYPE_CHECKING:
    from broker.clocks.clock import Clock
    from broker.net.addresses import ReadyInfo
    from config import BrokerConfig

logger = logging.getLogger("tidelog.cli.server.serve")

LOG_LEVELS = ("debug", "info", "warning", "error")


@click.command()
@click.option("--data-dir", metavar="DIR", help="Where records are kept (default ./data).")
@click.option("--listen", metavar="HOST:PORT", help="Where clients connect; port 0 picks one.")
@click.option("--config", "config_file", metavar="FILE", help="A .properties or .toml file.")
@click.option("--set", "pairs", metavar="KEY=VALUE", multiple=True, help="One setting; repeatable.")
@click.option(
    "--standby",
    "standby_url",
    metavar="URL",
    help="Follow the bucket of another broker, read-only, until 'tidelog promote'.",
)
@click.option(
    "--insecure",
    is_flag=True,
    help="Let other machines reach listeners without TLS and users: only in a trusted network.",
)
@click.option(
    "--secure",
    is_flag=True,
    help="TLS, a user and rights, all set up in the data directory; prints how to connect.",
)
@click.option(
    "--tls-self-signed",
    is_flag=True,
    help="TLS with a certificate of an own authority, and no users; for this machine alone.",
)
@click.option(
    "--clock",
    "clock_kind",
    type=click.Choice(("system", "settable")),
    default="system",
    show_default=True,
    help="For tests, a clock that 'tidelog clock' sets; needs a data directory of its own.",
)
@click.option(
    "--clock-sessions",
    type=click.Choice(("real", "settable")),
    default="real",
    show_default=True,
    help="With --clock settable: what the sessions of group members follow.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the ready line as JSON.")
@click.option(
    "--log-level",
    type=click.Choice(LOG_LEVELS),
    default="warning",
    show_default=True,
    help="What is logged.",
)
@click.option(
    "--log-format",
    type=click.Choice(("text", "json")),
    default="text",
    show_default=True,
    help="How a log line looks.",
)
@click.option(
    "--log-file", metavar="FILE", help="Where the log goes (default stderr); reopened when moved."
)
def command(
    *,
    data_dir: str | None,
    listen: str | None,
    config_file: str | None,
    pairs: tuple[str, ...],
    standby_url: str | None,
    insecure: bool,
    secure: bool,
    tls_self_signed: bool,
    clock_kind: str,
    clock_sessions: str,
    as_json: bool,
    log_level: str,
    log_format: str,
    log_file: str | None,
) -> int:
    """Run the broker until Ctrl-C or SIGTERM; SIGHUP reads its settings again.

    Settings are Apache Kafka's; 'tidelog config list' shows and explains all.
    """
    gc.disable()  # imports make hardly any garbage, and looking for it takes a tenth of their time
    try:
        from cli.server.settings import command_line_settings
    finally:
        gc.enable()

    _check_together(
        secure=secure,
        insecure=insecure,
        tls_self_signed=tls_self_signed,
        settable=(clock_kind == "settable", clock_sessions == "settable"),
    )
    set_up(level=log_level, form=log_format, file=log_file)
    protocol = "SASL_SSL" if secure else "SSL" if tls_self_signed else "PLAINTEXT"
    settings = command_line_settings(data_dir, listen, pairs, protocol)
    if standby_url is not None:
        settings |= {"remote.storage.url": standby_url, "remote.standby.enable": "true"}
    settings |= {"insecure.allow": "true"} if insecure else {}
    clock = _clock(clock_kind, clock_sessions)
    try:
        return _serve(config_file, settings, protocol=protocol, clock=clock, as_json=as_json)
    except Exception as error:
        code = exit_code_of(error)
        if code is not None and (log_file is not None or log_format == "json"):
            logger.critical("%s", "; ".join(sentence_of(error).splitlines()))
            if log_file is None:  # who collects JSON lines finds no other text
                raise click.exceptions.Exit(code) from error
        raise


def _serve(
    config_file: str | None,
    settings: dict[str, str],
    *,
    protocol: str,
    clock: "Clock | None",
    as_json: bool,
) -> int:
    """Run the broker with `settings` of the command line; its exit code."""
    gc.disable()  # as in `command`
    try:
        from broker.errors import StartError
        from broker.server import run
        from cli.server.settings import load_settings, settings_given
        from config import ConfigErrors
        from storage.errors import ForeignDataDir
    finally:
        gc.enable()
    is_secure = protocol == "SASL_SSL"

    def read() -> "BrokerConfig":
        return load_settings(config_file, settings)

    def reread() -> "BrokerConfig | None":
        try:
            return read()
        except (ConfigErrors, CommandFailed) as error:
            # One line, as every entry of the log is; several problems have a line each.
            problems = "; ".join(str(error).splitlines())
            logger.error("the configuration is not reloaded: %s", problems)
            return None

    if protocol != "PLAINTEXT":
        from cli.server.secure import settings_of

        settings |= settings_of(protocol, settings_given(config_file, settings))
    _make_first_users(read, is_secure=is_secure)
    secured = _set_up(protocol, read()) if protocol != "PLAINTEXT" else None
    config = read()

    def announce(ready: "ReadyInfo") -> None:
        warn_if_slow()
        commands = _connecting(config, ready) if secured is None else secured(ready)
        announcement.show(ready, config, commands, as_json=as_json)

    try:
        return run(config, announce=announce, reread=reread, clock=clock)
    except StartError as error:
        is_foreign = isinstance(error.__cause__, ForeignDataDir)
        code = ExitCode.USAGE if is_foreign else ExitCode.FAILED
        raise CommandFailed(str(error), code) from None


def warn_if_slow() -> None:
    """Log which work is slower here, if modules are not compiled: an installer shows no build."""
    from cli.server.loops import SLOWER, how_to_compile, missing_loops

    if missing := missing_loops():
        logger.warning(
            "modules not compiled, so that they run as plain Python: %d; %s; %s",
            len(missing),
            SLOWER,
            how_to_compile(),
        )


def _clock(kind: str, sessions: str) -> "Clock | None":
    if kind == "system":
        return None
    from broker.clocks.settable_clock import SettableClock

    return SettableClock(moves_sessions=sessions == "settable")


def _check_together(
    *, secure: bool, insecure: bool, tls_self_signed: bool, settable: tuple[bool, bool]
) -> None:
    """Refuse options that contradict each other; `settable` is of the clock and of sessions."""
    if secure and insecure:
        raise click.UsageError("--secure and --insecure contradict each other: give one of them")
    if secure and tls_self_signed:
        raise click.UsageError("--secure has TLS already: leave out --tls-self-signed")
    if settable == (False, True):
        raise click.UsageError("--clock-sessions settable needs --clock settable")


def _make_first_users(read: "Callable[[], BrokerConfig]", *, is_secure: bool) -> None:
    """Make the users that the environment names, in a directory that nothing is in yet."""
    if not any(name.startswith("TIDELOG_BOOTSTRAP_USER") for name in os.environ):
        return
    from cli.server import first_users
    from cli.server.secure import ADMIN

    passwords = first_users.first_passwords(os.environ)
    if is_secure and ADMIN in passwords:
        raise CommandFailed(
            f"--secure makes the user {ADMIN} itself; give the first user another name, or leave "
            f"out {first_users.VARIABLE}",
            ExitCode.CONFIG,
        )
    first_users.make(passwords, read())


def _set_up(protocol: str, config: "BrokerConfig") -> "Callable[[ReadyInfo], Iterable[str]]":
    """Make what is missing in the data directory; what tells how clients connect."""
    from cli.server.secure import ADMIN, how_to_connect, prepare
    from storage.disk.files import RealFiles

    secured = prepare(protocol, config, RealFiles())
    if secured.password is not None:
        if sys.stderr.isatty():
            text = f"Made the user {ADMIN} with the password {secured.password}\nIt is shown this "
            text += f"once; {secured.properties} has it too."
        else:  # a log keeps what it gets
            text = f"Made the user {ADMIN}; the password is in {secured.properties}, which only "
            text += "you can read."
        click.echo(text, err=True)
    return lambda ready: how_to_connect(secured, config, ready)


def _connecting(config: "BrokerConfig", ready: "ReadyInfo") -> Iterable[str]:
    """How clients connect to a broker that was not set up here; nothing where the address does."""
    if config.listeners[0].protocol == "PLAINTEXT":
        return ()
    from cli.server.secure import how_to_connect_with_own_files

    return (how_to_connect_with_own_files(config, ready),)

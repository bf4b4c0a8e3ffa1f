"""``tidelog serve``: read the configuration, run the broker, report when and where it is ready.

Composes `config.load` and `broker.server.run` and decides nothing itself. Order of sources:
defaults, then ``--config FILE``, then the environment (``TIDELOG_...``), then ``--data-dir``,
``--listen`` and ``--set``. It imports no tables and no client, so that a start stays quick.
"""

import gc
import json
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.exit_codes import ExitCode
from cli.failures import CommandFailed
from cli.server.logs import set_up

if TYPE_CHECKING:
    from broker.clocks.clock import Clock
    from broker.net.addresses import ReadyInfo
    from cli.server.secure import Secured
    from config import BrokerConfig

logger = logging.getLogger("tidelog.cli.server.serve")

LOG_LEVELS = ("debug", "info", "warning", "error")

NEXT_STEPS = """\
Try, in another terminal:
  seq 3 | tidelog produce hello{bootstrap}
  tidelog consume hello --from earliest{bootstrap}
  tidelog offsets hello --at -5m{bootstrap}
Stop with Ctrl-C."""

SECURED_STEPS = """\
Clients connect with:
  tidelog topic list -b {address} --command-config {properties}
  kafka-topics.sh --list --bootstrap-server {address} --command-config {properties}"""


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
    clock_kind: str,
    clock_sessions: str,
    as_json: bool,
    log_level: str,
    log_format: str,
    log_file: str | None,
) -> int:
    """Run the broker until Ctrl-C or SIGTERM; SIGHUP reads its settings again.

    Settings are Apache Kafka's; 'tidelog config list' shows them all, and
    tidelog config list explains them.
    """
    gc.disable()  # imports make hardly any garbage, and looking for it takes a tenth of their time
    try:
        from broker.errors import StartError
        from broker.server import run
        from config import ConfigErrors, load
    finally:
        gc.enable()

    if secure and insecure:
        raise click.UsageError("--secure and --insecure contradict each other: give one of them")
    if clock_sessions == "settable" and clock_kind != "settable":
        raise click.UsageError("--clock-sessions settable needs --clock settable")
    set_up(level=log_level, form=log_format, file=log_file)
    settings = command_line_settings(data_dir, listen, pairs)
    if standby_url is not None:
        settings |= {"remote.storage.url": standby_url, "remote.standby.enable": "true"}
    if insecure:
        settings["insecure.allow"] = "true"

    def read() -> "BrokerConfig":
        return load(
            file_text=read_config(config_file),
            file_name=config_file or "",
            environment=os.environ,
            command_line=settings,
        )

    def reread() -> "BrokerConfig | None":
        try:
            return read()
        except (ConfigErrors, CommandFailed) as error:
            logger.error("the configuration is not reloaded: %s", error)
            return None

    secured = _secure(settings, read) if secure else None

    def announce(ready: "ReadyInfo") -> None:
        warn_if_slow()
        _announce(ready, as_json, None if secured is None else secured.properties)

    try:
        return run(
            read(), announce=announce, reread=reread, clock=_clock(clock_kind, clock_sessions)
        )
    except StartError as error:
        raise CommandFailed(str(error)) from None


def warn_if_slow() -> None:
    """Log which work is slower here, if modules are not compiled: an installer shows no build."""
    from cli.server.loops import SLOWER, missing_loops

    if missing := missing_loops():
        logger.warning(
            "modules not compiled, so that they run as plain Python: %d; %s; install a C compiler "
            "and then tidelog again",
            len(missing),
            SLOWER,
        )


def _clock(kind: str, sessions: str) -> "Clock | None":
    if kind == "system":
        return None
    from broker.clocks.settable_clock import SettableClock

    return SettableClock(moves_sessions=sessions == "settable")


def _secure(settings: dict[str, str], read: "Callable[[], BrokerConfig]") -> "Secured":
    """Set up the data directory, and change `settings` to those of a secured broker."""
    from cli.server.secure import ADMIN, prepare, secure_settings
    from storage.disk.files import RealFiles

    given = dict(settings)
    # Only to learn the directory: the listeners are secured right below.
    settings |= {"insecure.allow": "true", "metrics.listener.security": "none"}
    data_dir = read().data_dir
    settings.clear()
    settings.update(secure_settings(data_dir, given))
    secured = prepare(read(), RealFiles())
    if secured.password is not None:
        click.echo(
            f"Made the user {ADMIN} with the password {secured.password}\n"
            f"It is shown this once; {secured.properties} has it too.",
            err=True,
        )
    return secured


def command_line_settings(
    data_dir: str | None, listen: str | None, pairs: tuple[str, ...]
) -> dict[str, str]:
    """The options as settings by name; ``--set`` wins over the shortcuts.

    Raises:
        click.UsageError: a pair without ``=``, or an address without a port.
    """
    settings: dict[str, str] = {}
    if data_dir is not None:
        settings["log.dirs"] = data_dir
    if listen is not None:
        host, colon, port = listen.rpartition(":")
        if not colon or not port.isdigit():
            raise click.UsageError(
                f"--listen {listen}: write HOST:PORT, for example 127.0.0.1:9092 or 0.0.0.0:0"
            )
        settings["listeners"] = f"PLAINTEXT://{host}:{port}"
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise click.UsageError(f"--set {pair}: write KEY=VALUE, for example num.partitions=4")
        settings[name.strip()] = value.strip()
    return settings


def read_config(config_file: str | None) -> str | None:
    """The text of a configuration file, None for no file.

    Raises:
        CommandFailed: it does not exist, cannot be read, or is not text.
    """
    if config_file is None:
        return None
    try:
        return Path(config_file).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise CommandFailed(
            f"{config_file} is not UTF-8 text (byte {error.start})", ExitCode.CONFIG
        ) from None
    except OSError as error:
        is_missing = isinstance(error, FileNotFoundError)
        raise CommandFailed(
            f"cannot read the configuration {config_file}: {error.strerror}",
            ExitCode.NOT_FOUND if is_missing else ExitCode.FAILED,
        ) from None


def _announce(ready: "ReadyInfo", as_json: bool, properties: str | None) -> None:
    """One line when clients are accepted; then how to connect, or hints for the next step.

    `properties` is the file with which clients connect to a broker that ``--secure`` set up.
    """
    if as_json:
        facts: dict[str, object] = {"event": "ready", **_facts(ready)}
        if ready.workers:
            facts["workers"] = [_facts(worker) for worker in ready.workers]
        click.echo(json.dumps(facts))
    else:
        address = _address(ready)
        click.echo(f"Tidelog is ready at {address} (data in {ready.data_dir})")
        for number, worker in enumerate(ready.workers, start=2):
            metrics = f", metrics on port {worker.metrics_port}" if worker.metrics_port else ""
            click.echo(f"  worker {number}: {_address(worker)}{metrics}")
        if properties is not None:
            click.echo(SECURED_STEPS.format(address=address, properties=properties))
        elif sys.stdout.isatty():
            bootstrap = "" if ready.port == 9092 else f" -b {address}"
            click.echo(NEXT_STEPS.format(bootstrap=bootstrap))
    sys.stdout.flush()


def _facts(ready: "ReadyInfo") -> dict[str, object]:
    return {
        "host": ready.host,
        "port": ready.port,
        "metrics_port": ready.metrics_port,
        "node_id": ready.node_id,
        "cluster_id": ready.cluster_id,
        "data_dir": ready.data_dir,
    }


def _address(ready: "ReadyInfo") -> str:
    host = f"[{ready.host}]" if ":" in ready.host else ready.host
    return f"{host}:{ready.port}"

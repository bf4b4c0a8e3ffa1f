"""``tidelog certs``: the certificates of a broker: show them, make one, have them read again."""

import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from broker.security.secret_files import reveal
from broker.security.tls.contexts import TlsUnusable, build_context
from cli.broker_options import BrokerOptions, ask_admin, broker_options
from cli.exit_codes import ExitCode
from cli.failures import CommandFailed
from cli.options import json_option
from cli.output import note, print_json, print_table
from cli.server.authority import AUTHORITY, AUTHORITY_KEY, SERVER, ensure_server_certificate
from cli.server.checkup import in_force
from cli.server.secure import SECURE, settings_of
from cli.server.settings import command_line_settings, load_settings, settings_given
from client.descriptions import ConfigEntry, ConfigSource
from config.listeners import METRICS, parse_listeners, parse_protocol_map
from config.security.keys import listener_security, scoped_name
from config.values import InvalidValue
from storage.disk.files import RealFiles

if TYPE_CHECKING:
    from client.admin import Admin

_DAY_MS = 86_400_000
_HOST: Final = re.compile(r"[A-Za-z0-9*]([A-Za-z0-9.-]*[A-Za-z0-9])?|[0-9a-fA-F:.]+")
"""What may stand in a certificate: a comma would begin a further entry."""


@click.group()
def command() -> None:
    """Show, make and reload the certificates of TLS listeners."""


@command.command(short_help="Show each certificate, and when it expires.")
@click.option("--data-dir", metavar="DIR", help="As for serve.")
@click.option("--config", "config_file", metavar="FILE", help="As for serve.")
@click.option("--set", "pairs", metavar="KEY=VALUE", multiple=True, help="As for serve.")
@click.option("--secure", is_flag=True, help="As for serve, of a broker that was started once.")
@json_option
def show(
    *,
    data_dir: str | None,
    config_file: str | None,
    pairs: tuple[str, ...],
    secure: bool,
    as_json: bool,
) -> int:
    """Show whose each certificate is, where it serves and when it expires.

    Reads the files that the settings name, as the broker does when it starts; exit code 1 says
    that a listener has none that can be used.
    """
    given = command_line_settings(data_dir, None, pairs)
    if secure:
        given |= settings_of(SECURE, settings_given(config_file, given))
    config = in_force(load_settings(config_file, given))
    found: list[dict[str, Any]] = []
    for listener in config.listeners:
        settings = listener_security(config, listener).tls
        if settings is None:
            continue
        try:
            _, certificate = build_context(settings, reveal)
        except TlsUnusable as error:
            found.append({"listener": listener.name, "problem": str(error)})
            continue
        left_ms = certificate.not_after_ms - int(time.time() * 1000)
        found.append(
            {
                "listener": listener.name,
                "subject": certificate.subject,
                "names": list(certificate.names),
                "expires": datetime.fromtimestamp(certificate.not_after_ms / 1000, UTC).isoformat(),
                "days_left": left_ms // _DAY_MS,
                "fingerprint": certificate.fingerprint,
                "problem": "it has expired" if left_ms < 0 else "",
            }
        )
    if as_json:
        print_json(found)
    elif not found:
        note(
            "no listener of these settings has TLS; give those of the broker: --config, or --secure"
        )
    else:
        columns = ("listener", "subject", "names", "expires", "days_left", "fingerprint", "problem")
        rows = [tuple(_cell(one.get(column, "")) for column in columns) for one in found]
        print_table(",".join(columns).upper().replace("_", " "), rows)
    return ExitCode.FAILED if any(one["problem"] for one in found) else ExitCode.OK


@command.command(short_help="Make an authority and a server's certificate.")
@click.argument("directory")
@click.option(
    "--host",
    "hosts",
    metavar="NAME",
    multiple=True,
    help="A name or address that clients connect to; repeatable. Default localhost.",
)
def new(*, directory: str, hosts: tuple[str, ...]) -> None:
    """Make a certificate in DIRECTORY, and the authority that signs it if there is none yet.

    Files: ca.pem, which clients trust; ca.key; server.pem, the key and the certificate. Those that
    are there stay as long as server.pem serves all names for 30 days more.

    Example: tidelog certs new /etc/tidelog --host broker.example --host 10.0.0.7
    """
    names = hosts or ("localhost", "127.0.0.1", "::1")
    if odd := [name for name in names if not _HOST.fullmatch(name)]:
        raise click.UsageError(f"--host {odd[0]}: write a host's name or an IP address")
    path = Path(directory).absolute()
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    is_new = ensure_server_certificate(str(path), names, RealFiles())
    note("made a certificate" if is_new else "the certificate that is there serves these names")
    click.echo(f"ssl.keystore.location={path}/{SERVER}")
    note(f"clients trust {path}/{AUTHORITY}, for instance with --tls-ca; keep {AUTHORITY_KEY}")


@command.command(short_help="Have a broker read its keys and certificates again.")
@click.option("--listener", metavar="NAME", help="This listener alone; default all with TLS.")
@broker_options
def reload(*, listener: str | None, broker: BrokerOptions) -> None:
    """Have a broker read its keys, certificates and trust stores again, connections stay.

    A broker looks for changed files every 10 s by itself; this says at once whether it can use
    them. What it cannot use is refused with the reason, and the former certificate stays.
    """
    names = ask_admin(broker, lambda admin: _reload(admin, listener))
    note(f"the broker has read the certificates of {', '.join(names)} again")


async def _reload(admin: "Admin", listener: str | None) -> list[str]:
    """Alter each listener's store to what it is: the broker reads it again then, at once."""
    node = (await admin.cluster()).controller_id
    entries = await admin.broker_configs(node)
    names = _tls_listeners(entries)
    if listener is not None:
        names = [name for name in names if name == listener.upper()]
    if not names:
        which = "no listener" if listener is None else f"no listener {listener}"
        raise CommandFailed(f"the broker has {which} with TLS", ExitCode.NOT_FOUND)
    for name in names:
        key = scoped_name(name, "ssl.keystore.location")
        entry = entries.get(key)
        is_dynamic = entry is not None and entry.source is ConfigSource.DYNAMIC_BROKER
        await admin.alter_broker_configs(
            node, {key: entry.value if entry is not None and is_dynamic else None}
        )
    return names


def _tls_listeners(entries: Mapping[str, ConfigEntry]) -> list[str]:
    def text(name: str) -> str:
        return (entries[name].value if name in entries else None) or ""

    try:
        protocols = dict(parse_protocol_map(_words(text("listener.security.protocol.map"))))
        listeners = parse_listeners(_words(text("listeners")), protocols)
    except InvalidValue:  # references to a provider, whose values are not shown
        raise CommandFailed(
            "the broker does not show its listeners; send it SIGHUP, or write listeners and "
            "listener.security.protocol.map without a reference to a provider"
        ) from None
    found = [one.name for one in listeners if one.protocol.endswith("SSL")]
    if text("metrics.listener.security") == "tls" and text("metrics.listener"):
        found.append(METRICS)
    return found


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _cell(value: object) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value)

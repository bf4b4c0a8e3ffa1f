"""``tidelog certs``: the certificates that a broker with these settings shows its clients."""

import os
import time
from datetime import UTC, datetime
from typing import Any

import click

from broker.security.tls.contexts import TlsUnusable, build_context, reveal
from cli.exit_codes import ExitCode
from cli.options import json_option
from cli.output import print_json, print_table
from cli.server.checkup import in_force
from cli.server.serve import command_line_settings, read_config
from config import load
from config.security.keys import listener_security

_DAY_MS = 86_400_000


@click.group()
def command() -> None:
    """Show the certificates of TLS listeners."""


@command.command(short_help="Show each certificate, and when it expires.")
@click.option("--config", "config_file", metavar="FILE", help="As for serve.")
@click.option("--set", "pairs", metavar="KEY=VALUE", multiple=True, help="As for serve.")
@json_option
def show(*, config_file: str | None, pairs: tuple[str, ...], as_json: bool) -> int:
    """Show whose each certificate is, where it serves and when it expires.

    Reads the files that the settings name, as the broker does when it starts; exit code 1 says
    that a listener has none that can be used.
    """
    config = load(
        file_text=read_config(config_file),
        file_name=config_file or "",
        environment=os.environ,
        command_line=command_line_settings(None, None, pairs),
    )
    config = in_force(config)
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
    else:
        columns = ("listener", "subject", "names", "expires", "days_left", "fingerprint", "problem")
        rows = [tuple(_cell(one.get(column, "")) for column in columns) for one in found]
        print_table([column.upper().replace("_", " ") for column in columns], rows)
    return ExitCode.FAILED if any(one["problem"] for one in found) else ExitCode.OK


def _cell(value: object) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value)

"""``tidelog quota``: limits on what clients may use.

A limit is for a user, a client id, both, or an address. ``--default-user`` and its like stand for
every name without limits of its own.
"""

import contextlib
import re
from collections.abc import Callable, Mapping
from typing import Any

import click

from cli.broker_options import BrokerOptions, ask_admin, login_options
from cli.exit_codes import ExitCode
from cli.failures import CommandFailed
from cli.options import json_option
from cli.output import note, print_json, print_table, say
from client.admin import Admin
from config.listeners import canonical_address

_LIMITS = {
    "producer_byte_rate": "Bytes per second of Produce requests; 10MB is fine too.",
    "consumer_byte_rate": "Bytes per second of answers to Fetch.",
    "request_percentage": "Time of the broker's event loop; 100 is all of it.",
    "controller_mutation_rate": "Partitions created and deleted per second.",
    "connection_creation_rate": "New connections per second; only for --ip.",
}
_TYPES = ("user", "client-id", "ip")
_NUMBER = re.compile(r"([+-]?\d*\.?\d+(?:[eE][+-]?\d+)?) ?([A-Za-z]*|%)(/s)?")


class _LimitType(click.ParamType[float]):
    """A number with one of `units`, or with none."""

    name = "number"

    def __init__(self, units: Mapping[str, float], examples: str) -> None:
        self._units = {"": 1.0, **units}
        self._examples = examples

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        match = _NUMBER.fullmatch(value)
        if match is None or match[2] not in self._units:
            self.fail(
                f"{value!r} is no such number; write for instance {self._examples}", param, ctx
            )
        return float(match[1]) * self._units[match[2]]


_BYTES = _LimitType(
    {"B": 1, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30},
    "1000000, 10MB or 512KiB",
)
_PERCENT = _LimitType({"%": 1}, "50 or 12.5%")
_COUNT = _LimitType({}, "5")
_KINDS = {
    "producer_byte_rate": _BYTES,
    "consumer_byte_rate": _BYTES,
    "request_percentage": _PERCENT,
}


@click.group()
def command() -> None:
    """Limit what clients may use, list the limits, remove them."""


def _entity_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for kind in reversed(_TYPES):
        function = click.option(
            f"--default-{kind}", is_flag=True, help=f"Every {kind} without limits of its own."
        )(function)
        function = click.option(f"--{kind}", metavar="NAME", help=f"This {kind}.")(function)
    return function


def _limit_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for key, text in reversed(_LIMITS.items()):
        option = f"--{key.replace('_', '-')}"
        kind = _KINDS.get(key, _COUNT)
        function = click.option(option, key, type=kind, metavar="NUMBER", help=text)(function)
    return function


def _entity(options: Mapping[str, Any]) -> dict[str, str | None]:
    """The entity that the options name.

    Raises:
        click.UsageError: there is none, or a name is given twice.
    """
    entity: dict[str, str | None] = {}
    for kind in _TYPES:
        field = kind.replace("-", "_")
        name, is_default = options[field], options[f"default_{field}"]
        if name is not None and is_default:
            raise click.UsageError(f"name one {kind}, or give --default-{kind}")
        if name is not None or is_default:
            entity[kind] = _as_kept(kind, name)
    if not entity:
        raise click.UsageError(
            "say whose limit: --user, --client-id, --ip, or their --default- forms"
        )
    return entity


def _as_kept(kind: str, name: str | None) -> str | None:
    """A name as the broker keeps it; what is no address is the broker's to refuse."""
    if kind == "ip" and name is not None:
        with contextlib.suppress(ValueError):
            return canonical_address(name)
    return name


@command.command("set")
@_entity_options
@_limit_options
@login_options
def set_limits(*, broker: BrokerOptions, **options: Any) -> None:
    """Set limits; others that are set stay."""
    entity = _entity(options)
    limits = {key: options[key] for key in _LIMITS if options[key] is not None}
    if not limits:
        raise click.UsageError("give a limit, for instance --producer-byte-rate 1000000")

    ask_admin(broker, lambda admin: admin.alter_quotas(entity, limits))
    for key, value in limits.items():
        say(f"{_name(entity)}: {key} = {value:.15g}")


@command.command(short_help="Remove limits.")
@_entity_options
@click.option(
    "--limit", "keys", multiple=True, type=click.Choice(list(_LIMITS)), help="Only this one."
)
@login_options
def remove(*, keys: tuple[str, ...], broker: BrokerOptions, **options: Any) -> None:
    """Remove limits, by default all of a user, client id or address."""
    entity = _entity(options)

    async def work(admin: Admin) -> list[str]:
        found = [quota for quota in await admin.quotas() if quota.entity == entity]
        known = [key for quota in found for key in quota.limits if not keys or key in keys]
        if known:
            await admin.alter_quotas(entity, dict.fromkeys(known))
        return known

    removed = ask_admin(broker, work)
    if not removed:
        raise CommandFailed("there is no such limit; see tidelog quota list", ExitCode.NOT_FOUND)
    for key in removed:
        say(f"{_name(entity)}: {key} is removed")


@command.command("list")
@login_options
@json_option
def list_limits(*, broker: BrokerOptions, as_json: bool) -> None:
    """List all limits."""
    found = ask_admin(broker, lambda admin: admin.quotas())
    if as_json:
        print_json([{"entity": dict(q.entity), "limits": dict(q.limits)} for q in found])
    elif found:
        rows = [
            (_name(quota.entity), key, f"{value:.15g}")
            for quota in found
            for key, value in quota.limits.items()
        ]
        print_table("WHOSE,LIMIT,VALUE", sorted(rows))
    else:
        note("there are no limits; set one: tidelog quota set --user NAME --producer-byte-rate")


def _name(entity: Mapping[str, str | None]) -> str:
    return ", ".join(
        f"default {kind}" if name is None else f"{kind} {name}"
        for kind, name in sorted(entity.items(), reverse=True)
    )

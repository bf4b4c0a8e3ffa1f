"""``tidelog token``: delegation tokens, which let a process act as a user without the password.

The broker has to have `delegation.token.secret.key`, and the login may not be by a token itself.
"""

import base64
from dataclasses import asdict
from typing import Any

import click

from cli.broker_options import BrokerOptions, ask_admin, login_options
from cli.exit_codes import ExitCode
from cli.failures import CommandFailed
from cli.options import WholeNumber, json_option
from cli.output import note, print_json, print_table
from client.admin import Admin
from client.descriptions import DelegationToken
from client.times import format_time

_id = click.argument("token_id", metavar="ID")


@click.group()
def command() -> None:
    """Make, list, renew and expire delegation tokens."""


@command.command()
@click.option("--owner", metavar="USER", help="Whose token; by default yours.")
@click.option("--renewer", "renewers", metavar="USER", multiple=True, help="May renew it too.")
@click.option(
    "--lifetime-ms",
    type=WholeNumber(min=1),
    help="The longest lifetime; by default that of the broker.",
)
@login_options
@json_option
def create(
    *,
    owner: str | None,
    renewers: tuple[str, ...],
    lifetime_ms: int | None,
    broker: BrokerOptions,
    as_json: bool,
) -> None:
    """Make a token and print its id and its secret, once."""
    made = ask_admin(
        broker,
        lambda admin: admin.create_token(
            owner=owner, renewers=renewers, max_lifetime_ms=lifetime_ms
        ),
    )
    secret = base64.b64encode(made.secret).decode()
    if as_json:
        print_json({**_fields(made), "secret": secret})
        return
    click.echo(f"{made.id}\n{secret}")
    note(
        f"{made.owner} until {format_time(made.expires_ms)}: log in by SCRAM with the id as the "
        "name, the secret as the password and tokenauth=true"
    )


@command.command("list")
@click.option("--owner", "owners", metavar="USER", multiple=True, help="Only this user's.")
@login_options
@json_option
def list_tokens(*, owners: tuple[str, ...], broker: BrokerOptions, as_json: bool) -> None:
    """List the tokens that you may see, without their secrets."""
    found = ask_admin(broker, lambda admin: admin.tokens(owners or None))
    found.sort(key=lambda token: token.expires_ms)
    if as_json:
        print_json([_fields(token) for token in found])
    elif found:
        rows = [
            (
                token.id,
                token.owner,
                token.requester,
                ", ".join(token.renewers) or "-",
                format_time(token.expires_ms),
                format_time(token.max_ms),
            )
            for token in found
        ]
        print_table("ID,OWNER,REQUESTER,RENEWERS,EXPIRES,AT THE LATEST", rows)
    else:
        note("there are no tokens that you may see; make one: tidelog token create")


@command.command()
@_id
@click.option("--period-ms", type=WholeNumber(min=1), help="By default that of the broker.")
@login_options
def renew(*, token_id: str, period_ms: int | None, broker: BrokerOptions) -> None:
    """Let a token expire later."""

    async def work(admin: Admin) -> int:
        token = await _find(admin, token_id)
        return await admin.renew_token(token.secret, period_ms=period_ms)

    click.echo(f"{token_id} expires {format_time(ask_admin(broker, work))}")


@command.command()
@_id
@click.option("--period-ms", type=WholeNumber(min=0), help="By default it is removed at once.")
@login_options
def expire(*, token_id: str, period_ms: int | None, broker: BrokerOptions) -> None:
    """Remove a token, or let it expire earlier."""

    async def work(admin: Admin) -> int:
        token = await _find(admin, token_id)
        return await admin.expire_token(token.secret, period_ms=period_ms)

    expires_ms = ask_admin(broker, work)
    if period_ms is None:
        click.echo(f"{token_id} is removed")
    else:
        click.echo(f"{token_id} expires {format_time(expires_ms)}")


async def _find(admin: Admin, token_id: str) -> DelegationToken:
    for token in await admin.tokens():
        if token.id == token_id:
            return token
    raise CommandFailed(
        f"there is no token {token_id!r} that you may see; see tidelog token list",
        ExitCode.NOT_FOUND,
    )


def _fields(token: DelegationToken) -> dict[str, Any]:
    return {name: value for name, value in asdict(token).items() if name != "secret"}

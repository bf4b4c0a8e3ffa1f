"""``configs`` and ``alter`` of ``tidelog group`` and ``tidelog share``: the settings of one group.

And a group as JSON, and the sentence for a command that got the name of a group of the other kind.
"""

from typing import Any

import click

from cli.broker_options import GROUP, BrokerOptions, ask_admin, broker_options
from cli.changes import change_options, change_settings, changes_of
from cli.exit_codes import ExitCode
from cli.failures import CommandFailed
from cli.options import json_option
from cli.output import print_json, print_table
from client.admin import Admin
from client.core.sharing.admin import SHARE_TYPE
from client.descriptions import GroupInfo
from client.errors import BrokerRefused
from protocol.error_codes import ErrorCode


@click.command(short_help="Show the settings of a group.")
@click.argument("group_id", type=GROUP, metavar="GROUP")
@broker_options
@json_option
def configs(*, group_id: str, broker: BrokerOptions, as_json: bool) -> None:
    """Show every setting that a group may have of its own, and where its value is from.

    A group that does not exist yet may have settings, too.
    """
    entries = ask_admin(broker, lambda admin: admin.group_configs(group_id))
    shown = [(name, entry.value, entry.source) for name, entry in sorted(entries.items())]
    if as_json:
        print_json(
            [
                {"name": name, "value": value, "source": source.name.lower()}
                for name, value, source in shown
            ]
        )
        return
    rows = [(name, value, source.name.lower().replace("_", " ")) for name, value, source in shown]
    print_table("SETTING,VALUE,FROM", rows)


@click.command(short_help="Change the settings of a group.")
@click.argument("group_id", type=GROUP, metavar="GROUP")
@change_options
@broker_options
def alter(
    *, group_id: str, pairs: tuple[str, ...], names: tuple[str, ...], broker: BrokerOptions
) -> None:
    """Change the settings that a group has of its own, before it exists or while it works.

    All changes are made, or none if one is refused. Settings of share groups begin with share.

    \b
    Examples:
      tidelog share alter workers --set share.auto.offset.reset=earliest
      tidelog group alter billing --set consumer.session.timeout.ms=50000
    """
    changes = changes_of(pairs, names)

    async def work(admin: Admin) -> None:
        await change_settings(
            lambda: admin.group_configs(group_id),
            lambda: admin.alter_group_configs(group_id, changes),
            names,
            changes,
            "groups",
            f"tidelog group configs {group_id}",
        )

    ask_admin(broker, work)
    click.echo(f"Changed the group {group_id}.")


async def check_kind(admin: Admin, group_id: str, error: BrokerRefused, *, is_share: bool) -> None:
    """After `error`: the group may exist, and be of another kind than the command is for.

    Raises:
        CommandFailed: it is; names the commands for it.
    """
    if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
        return
    for group in await admin.groups():
        if group.group_id == group_id and (group.group_type.lower() == SHARE_TYPE) != is_share:
            kind, words = ("no share group", "group") if is_share else ("a share group", "share")
            raise CommandFailed(
                f"{group_id} is {kind}: use 'tidelog {words}'", ExitCode.NOT_FOUND
            ) from None


def document_of(info: GroupInfo, positions: list[dict[str, Any]]) -> dict[str, Any]:
    """A group of either kind as ``describe --json`` prints it."""
    members = [
        {
            "member_id": member.member_id,
            "instance_id": member.instance_id,
            "client_id": member.client_id,
            "host": member.client_host,
            "partitions": [tp._asdict() for tp in member.partitions],
        }
        for member in info.members
    ]
    return {
        "group": info.group_id,
        "state": info.state,
        "protocol_type": info.protocol_type,
        "assignor": info.assignor,
        "members": members,
        "positions": positions,
    }

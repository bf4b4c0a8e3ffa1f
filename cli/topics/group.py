"""``tidelog group``: the state and positions of consumer groups, and moving them in time."""

from contextlib import suppress
from typing import Any, Final

import click

from cli.broker_options import GROUP, BrokerOptions, ask_admin, broker_options, none_to_see
from cli.options import confirm, json_option
from cli.output import note, print_json, print_table, say
from cli.topics.group_settings import alter, check_kind, configs, document_of
from cli.topics.moving import Move, Moved, ends_of_existing, move_options
from client.admin import Admin
from client.aio.explain import GroupLag
from client.descriptions import GroupInfo
from client.errors import BrokerRefused, BrokerUnreachable, InvalidUse, UnsupportedByBroker
from client.times import format_duration
from client.types import TopicPartition
from values.words import format_count

_UNKNOWN_LAG: Final = GroupLag(None, None)
_STEADY: Final = 0.05
"""A slope (seconds per second) up to which a lag counts as steady."""


@click.group()
def command() -> None:
    """List, describe, delete consumer groups; move them in time; change their settings."""


command.add_command(configs)
command.add_command(alter)


@command.command("list")
@broker_options
@json_option
def list_groups(*, broker: BrokerOptions, as_json: bool) -> None:
    """List all groups."""
    groups = ask_admin(broker, lambda admin: admin.groups())
    if as_json:
        print_json(
            [
                {
                    "group": group.group_id,
                    "state": group.state,
                    "type": group.group_type,
                    "protocol_type": group.protocol_type,
                }
                for group in groups
            ]
        )
    elif groups:
        print_table("GROUP,STATE,TYPE", [(g.group_id, g.state, g.group_type) for g in groups])
    else:
        none = none_to_see("groups", broker)
        note(f"{none}; consume with one: tidelog consume TOPIC --group NAME")


@command.command(short_help="Show members, positions and lags of a group.")
@click.argument("group_id", type=GROUP, metavar="GROUP")
@broker_options
@json_option
def describe(*, group_id: str, broker: BrokerOptions, as_json: bool) -> None:
    """Show a group's members, positions and how far behind they are.

    TIME LAG is the age of the first record that is not committed, TREND how it changed in the last
    five minutes. A broker without a metrics port, and Apache Kafka, do not know them.
    """
    info, rows = ask_admin(broker, lambda admin: _describe(admin, group_id))
    if as_json:
        print_json(document_of(info, rows))
        return
    say(
        f"{info.group_id}: {info.state}, {format_count(len(info.members), 'member')}"
        + (f", assignor {info.assignor}" if info.assignor else "")
    )
    if rows:
        print_table(
            "TOPIC,>PARTITION,>POSITION,>END,>LAG,>TIME LAG,TREND,MEMBER",
            [
                (
                    r["topic"],
                    str(r["partition"]),
                    r["position"],
                    r["end"],
                    r["lag"],
                    _time_lag(r["lag_seconds"]),
                    _trend(r["lag_seconds_slope"]),
                    r["client_id"],
                )
                for r in rows
            ],
        )


async def _describe(admin: Admin, group_id: str) -> tuple[GroupInfo, list[dict[str, Any]]]:
    try:
        info = await admin.describe_group(group_id)
    except BrokerRefused as error:
        await check_kind(admin, group_id, error, is_share=False)
        raise
    committed = await admin.group_offsets(group_id)
    owners = {tp: member for member in info.members for tp in member.partitions}
    partitions = sorted({*committed, *owners})
    ends = await ends_of_existing(admin, partitions)
    lags: dict[TopicPartition, GroupLag] = {}
    if partitions:
        with suppress(BrokerUnreachable, InvalidUse, UnsupportedByBroker):
            lags = await admin.group_lags(group_id)
    rows = []
    for tp in partitions:
        position = committed[tp].offset if tp in committed else None
        end = ends.get(tp)
        owner = owners.get(tp)
        lag = lags.get(tp, _UNKNOWN_LAG)
        rows.append(
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "position": position,
                "end": end,
                "lag": None if position is None or end is None else max(0, end - position),
                "lag_seconds": lag.seconds,
                "lag_seconds_slope": lag.slope,
                "member_id": owner.member_id if owner else None,
                "client_id": owner.client_id if owner else None,
                "host": owner.client_host if owner else None,
            }
        )
    return info, rows


def _time_lag(seconds: float | None) -> str | None:
    return None if seconds is None else format_duration(round(seconds * 1000))


def _trend(slope: float | None) -> str | None:
    """A slope in words; 5 % of real time either way is none."""
    if slope is None:
        return None
    if abs(slope) <= _STEADY:
        return "steady"
    return f"{'grows' if slope > 0 else 'shrinks'} {abs(slope):.2f} s/s"


@command.command()
@click.argument("group_id", type=GROUP, metavar="GROUP")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@broker_options
def delete(*, group_id: str, yes: bool, broker: BrokerOptions) -> None:
    """Delete a group that has no members, with its positions."""
    confirm(f"Delete the group {group_id} and its positions?", is_confirmed=yes)

    ask_admin(broker, lambda admin: admin.delete_group(group_id))
    say(f"Deleted the group {group_id}.")


@command.command(short_help="Move the positions of a group, for example back in time.")
@move_options
@broker_options
@json_option
def reset(*, group_id: str, move: Move, broker: BrokerOptions, as_json: bool) -> None:
    """Move the positions of a group without members, for example back in time.

    Shows what would change; with --execute it is done. Positions beyond the ends of a partition
    become its ends.

    \b
    Examples:
      tidelog group reset billing --to-time -2h --execute
      tidelog group describe billing --json > positions.json
      tidelog group reset billing --from-file positions.json --execute
    """
    moves = ask_admin(broker, lambda admin: _reset(admin, group_id, move))
    move.show(group_id, moves, as_json=as_json)


async def _reset(admin: Admin, group_id: str, move: Move) -> list[Moved]:
    try:
        await admin.require_no_members(group_id)
    except BrokerRefused as error:
        await check_kind(admin, group_id, error, is_share=False)
        await move.check_absence(admin, error, group_id)
    stored = await admin.group_offsets(group_id)
    committed = {tp: position.offset for tp, position in stored.items()}
    new = await move.offsets(admin, group_id, committed)
    if move.execute:
        await admin.alter_group_offsets(group_id, new)
    return [(tp, committed.get(tp), offset) for tp, offset in new.items()]

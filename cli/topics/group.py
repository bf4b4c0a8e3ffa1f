"""``tidelog group``: the state and positions of consumer groups, and moving them in time."""

from contextlib import suppress
from typing import Any, Final

import click

from cli.exit_codes import ExitCode
from cli.failures import CommandFailed
from cli.options import (
    TIME,
    BrokerOptions,
    ask_admin,
    broker_options,
    check_contradiction,
    confirm,
    json_option,
)
from cli.output import RIGHT, note, print_json, print_table
from client.admin import Admin
from client.aio.explain import GroupLag
from client.core.offsets import EARLIEST, LATEST
from client.descriptions import GroupInfo
from client.errors import BrokerRefused, BrokerUnreachable, InvalidUse, UnsupportedByBroker
from client.times import format_duration, format_time
from client.types import TopicPartition
from protocol.error_codes import ErrorCode

_UNKNOWN_LAG: Final = GroupLag(None, None)
_STEADY: Final = 0.05
"""A slope (seconds per second) up to which a lag counts as steady."""


@click.group()
def command() -> None:
    """List, describe, delete consumer groups; move them in time."""


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
        print_table(
            ["GROUP", "STATE", "TYPE"], [(g.group_id, g.state, g.group_type) for g in groups]
        )
    else:
        note("there are no groups yet; consume with one: tidelog consume TOPIC --group NAME")


@command.command()
@click.argument("group_id", metavar="GROUP")
@broker_options
@json_option
def describe(*, group_id: str, broker: BrokerOptions, as_json: bool) -> None:
    """Show a group's members, positions and how far behind they are.

    TIME LAG is the age of the first record that is not committed, TREND how it changed in the last
    five minutes. A broker without a metrics port, and Apache Kafka, do not know them.
    """
    info, rows = ask_admin(broker, lambda admin: _describe(admin, group_id))
    if as_json:
        print_json(_document(info, rows))
        return
    click.echo(
        f"{info.group_id}: {info.state}, {len(info.members)} members"
        + (f", assignor {info.assignor}" if info.assignor else "")
    )
    if rows:
        headings = [
            "TOPIC",
            f"{RIGHT}PARTITION",
            f"{RIGHT}POSITION",
            f"{RIGHT}END",
            f"{RIGHT}LAG",
            f"{RIGHT}TIME LAG",
            "TREND",
            "MEMBER",
        ]
        print_table(
            headings,
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
    info = await admin.describe_group(group_id)
    committed = await admin.group_offsets(group_id)
    owners = {tp: member for member in info.members for tp in member.partitions}
    partitions = sorted({*committed, *owners})
    ends = await _ends_of_existing(admin, partitions)
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


async def _ends_of_existing(
    admin: Admin, partitions: list[TopicPartition]
) -> dict[TopicPartition, int]:
    """The ends of those partitions whose topic still exists: positions outlive topics."""
    topics = await admin.topics(internal=True)
    existing = [
        tp
        for tp in partitions
        if tp.topic in topics and tp.partition in topics[tp.topic].partitions
    ]
    found = await admin.list_offsets(dict.fromkeys(existing, LATEST))
    return {tp: hit.offset for tp, hit in found.items() if hit is not None}


def _document(info: GroupInfo, rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "group": info.group_id,
        "state": info.state,
        "protocol_type": info.protocol_type,
        "assignor": info.assignor,
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "host": member.client_host,
                "partitions": [
                    {"topic": tp.topic, "partition": tp.partition} for tp in member.partitions
                ],
            }
            for member in info.members
        ],
        "positions": rows,
    }


@command.command()
@click.argument("group_id", metavar="GROUP")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@broker_options
def delete(*, group_id: str, yes: bool, broker: BrokerOptions) -> None:
    """Delete a group that has no members, with its positions."""
    confirm(f"Delete the group {group_id} and its positions?", is_confirmed=yes)

    ask_admin(broker, lambda admin: admin.delete_group(group_id))
    click.echo(f"Deleted the group {group_id}.")


@command.command()
@click.argument("group_id", metavar="GROUP")
@click.option("--to-time", "to_ms", type=TIME, help="The first record at or after it.")
@click.option("--to-earliest", is_flag=True, help="The first record there is.")
@click.option("--to-latest", is_flag=True, help="After the last record.")
@click.option("-t", "--topic", "topics", multiple=True, help="Default: all the group has read.")
@click.option("--execute", is_flag=True, help="Move it; without this nothing is changed.")
@click.option("-n", "--dry-run", is_flag=True, help="Only show what would change (the default).")
@click.option("--new", "may_be_new", is_flag=True, help="Make the group if there is none.")
@broker_options
@json_option
def reset(
    *,
    group_id: str,
    to_ms: int | None,
    to_earliest: bool,
    to_latest: bool,
    topics: tuple[str, ...],
    execute: bool,
    dry_run: bool,
    may_be_new: bool,
    broker: BrokerOptions,
    as_json: bool,
) -> None:
    """Move the positions of a group without members, for example back in time.

    Shows what would change; with --execute it is done.

    Example: tidelog group reset billing --to-time -2h --execute
    """
    target = check_move(
        to_ms, topics, to_earliest=to_earliest, to_latest=to_latest, may_be_new=may_be_new
    )
    check_contradiction(execute=execute, dry_run=dry_run)
    moves = ask_admin(
        broker,
        lambda admin: _reset(
            admin, group_id, topics, target, execute=execute, may_be_new=may_be_new
        ),
    )
    show_moves(group_id, target, moves, was_done=execute, as_json=as_json)


Move = tuple[TopicPartition, int | None, int]
"""A partition, the position before, and the one after."""


def check_move(
    to_ms: int | None,
    topics: tuple[str, ...],
    *,
    to_earliest: bool,
    to_latest: bool,
    may_be_new: bool,
) -> int:
    """Where to move: a time in ms, or one of the special offsets.

    Raises:
        click.UsageError: options contradict each other, or one is missing.
    """
    check_contradiction(to_time=to_ms is not None, to_earliest=to_earliest, to_latest=to_latest)
    if may_be_new and not topics:
        raise click.UsageError("--new needs --topic: a new group has read nothing yet")
    target = EARLIEST if to_earliest else LATEST if to_latest else to_ms
    if target is None:
        raise click.UsageError("say where to: give one of --to-time, --to-earliest, --to-latest")
    return target


def show_moves(
    group_id: str, target: int, moves: list[Move], *, was_done: bool, as_json: bool
) -> None:
    """Print what was moved, or would be."""
    if as_json:
        names = ("topic", "partition", "from", "to")
        rows = [(tp.topic, tp.partition, old, new) for tp, old, new in moves]
        document: dict[str, Any] = {"group": group_id, "dry_run": not was_done}
        document["positions"] = [dict(zip(names, row, strict=True)) for row in rows]
        print_json(document)
        return
    places = {EARLIEST: "the beginning", LATEST: "its ends"}
    place = places.get(target) or format_time(target)
    click.echo(f"{'Moved' if was_done else 'Would move'} {group_id} to {place}:")
    headings = ["TOPIC", f"{RIGHT}PARTITION", f"{RIGHT}FROM", f"{RIGHT}TO"]
    print_table(headings, [(tp.topic, str(tp.partition), old, new) for tp, old, new in moves])
    if not was_done:
        note("Nothing was changed; add --execute to do it.")


async def _reset(
    admin: Admin,
    group_id: str,
    topics: tuple[str, ...],
    target: int,
    *,
    execute: bool,
    may_be_new: bool,
) -> list[Move]:
    try:
        await admin.require_no_members(group_id)
    except BrokerRefused as error:
        check_may_be_new(error, group_id, "group", may_be_new=may_be_new)
    committed = await admin.group_offsets(group_id)
    new = await targets_of(admin, group_id, list(committed), topics, target)
    if execute:
        await admin.alter_group_offsets(group_id, new)
    return [
        (tp, committed[tp].offset if tp in committed else None, offset)
        for tp, offset in new.items()
    ]


async def targets_of(
    admin: Admin,
    group_id: str,
    known: list[TopicPartition],
    topics: tuple[str, ...],
    target: int,
) -> dict[TopicPartition, int]:
    """The offset of the target in each partition that is meant: the known ones, or of `topics`.

    Raises:
        InvalidUse: there is none.
    """
    partitions = list(known)
    for topic in topics:
        numbers = (await admin.describe_topic(topic)).partitions
        partitions += [TopicPartition(topic, number) for number in numbers]
    if topics:
        partitions = sorted({tp for tp in partitions if tp.topic in topics})
    ends = await _ends_of_existing(admin, partitions)
    if not ends:
        raise InvalidUse(f"group {group_id} has no positions to move: name a topic with -t")
    gone = sorted({str(tp) for tp in partitions if tp not in ends})
    if gone:
        note(f"Left as they are, because they do not exist any more: {', '.join(gone)}")
    found = await admin.first_records(dict.fromkeys(ends, target))
    return {tp: hit.offset if (hit := found[tp]) else ends[tp] for tp in ends}


def check_may_be_new(
    error: BrokerRefused, group_id: str, command: str, *, may_be_new: bool
) -> None:
    """Pass over a group that does not exist if it may be made.

    Raises:
        BrokerRefused: `error` says something else.
        CommandFailed: there is no such group.
    """
    if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
        raise error
    if not may_be_new:
        raise CommandFailed(
            f"there is no {command} {group_id}: see tidelog group list, or give --new --topic NAME "
            "to make it",
            ExitCode.NOT_FOUND,
        ) from None

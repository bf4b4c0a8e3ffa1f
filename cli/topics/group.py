"""``tidelog group``: the state and positions of consumer groups, and moving them in time."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TextIO

import click

from cli.exit_codes import ExitCode
from cli.failures import CommandFailed
from cli.options import (
    GROUP,
    TIME,
    TOPIC,
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
from client.checks import check_number, check_offset
from client.core.offsets import EARLIEST, LATEST
from client.descriptions import GroupInfo
from client.errors import BrokerRefused, BrokerUnreachable, InvalidUse, UnsupportedByBroker
from client.times import format_duration, format_time
from client.types import TopicPartition
from protocol.error_codes import ErrorCode

_UNKNOWN_LAG: Final = GroupLag(None, None)
_STEADY: Final = 0.05
"""A slope (seconds per second) up to which a lag counts as steady."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """Where a group is moved, in one of four ways; `place` says it in words."""

    place: str
    timestamp: int | None = None
    offset: int | None = None
    shift: int | None = None
    positions: Mapping[TopicPartition, int] | None = None

    async def of(
        self,
        admin: Admin,
        committed: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        """The offset for each partition of `ends`, its new position; none lies outside of the log.

        Raises:
            InvalidUse: a shift of partitions in which the group has no position.
        """
        if self.timestamp is not None:
            hits = await admin.first_records(dict.fromkeys(ends, self.timestamp))
            return {tp: hit.offset if (hit := hits[tp]) else ends[tp] for tp in ends}
        if self.positions is not None:
            wanted = {tp: self.positions[tp] for tp in ends}
        elif self.shift is not None:
            wanted = {tp: committed[tp] + self.shift for tp in ends if tp in committed}
            if not wanted:
                raise InvalidUse("the group has no position there that could be shifted")
        else:
            assert self.offset is not None
            wanted = dict.fromkeys(ends, self.offset)
        first = await admin.list_offsets(dict.fromkeys(wanted, EARLIEST))
        bounds = {tp: (hit.offset if (hit := first[tp]) else 0, ends[tp]) for tp in wanted}
        return {tp: min(max(offset, bounds[tp][0]), bounds[tp][1]) for tp, offset in wanted.items()}


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
@click.argument("group_id", type=GROUP, metavar="GROUP")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@broker_options
def delete(*, group_id: str, yes: bool, broker: BrokerOptions) -> None:
    """Delete a group that has no members, with its positions."""
    confirm(f"Delete the group {group_id} and its positions?", is_confirmed=yes)

    ask_admin(broker, lambda admin: admin.delete_group(group_id))
    click.echo(f"Deleted the group {group_id}.")


@command.command(short_help="Move the positions of a group, for example back in time.")
@click.argument("group_id", type=GROUP, metavar="GROUP")
@click.option("--to-time", "to_ms", type=TIME, help="The first record at or after it.")
@click.option("--to-earliest", is_flag=True, help="The first record there is.")
@click.option("--to-latest", is_flag=True, help="After the last record.")
@click.option("--to-offset", type=click.IntRange(min=0), help="This offset in every partition.")
@click.option("--shift-by", type=int, metavar="N", help="N offsets on, or back if negative.")
@click.option(
    "--from-file",
    type=click.File(),
    help="What --json printed, of this command (its `to`) or of describe (its `position`).",
)
@click.option(
    "-t", "--topic", "topics", type=TOPIC, multiple=True, help="Default: all the group has read."
)
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
    to_offset: int | None,
    shift_by: int | None,
    from_file: TextIO | None,
    topics: tuple[str, ...],
    execute: bool,
    dry_run: bool,
    may_be_new: bool,
    broker: BrokerOptions,
    as_json: bool,
) -> None:
    """Move the positions of a group without members, for example back in time.

    Shows what would change; with --execute it is done. Positions beyond the ends of a partition
    become its ends.

    \b
    Examples:
      tidelog group reset billing --to-time -2h --execute
      tidelog group describe billing --json > positions.json
      tidelog group reset billing --from-file positions.json --execute
    """
    check_contradiction(execute=execute, dry_run=dry_run)
    if may_be_new and not topics and from_file is None:
        raise click.UsageError("--new needs --topic: a new group has read nothing yet")
    aim = _aim(
        to_time=to_ms,
        to_earliest=EARLIEST if to_earliest else None,
        to_latest=LATEST if to_latest else None,
        to_offset=to_offset,
        shift_by=shift_by,
        from_file=None if from_file is None else _positions_in(from_file),
    )
    moves = ask_admin(
        broker,
        lambda admin: _reset(admin, group_id, topics, aim, execute=execute, may_be_new=may_be_new),
    )
    if as_json:
        names = ("topic", "partition", "from", "to")
        rows = [(tp.topic, tp.partition, old, new) for tp, old, new in moves]
        document: dict[str, Any] = {"group": group_id, "dry_run": not execute}
        document["positions"] = [dict(zip(names, row, strict=True)) for row in rows]
        print_json(document)
        return
    click.echo(f"{'Moved' if execute else 'Would move'} {group_id} {aim.place}:")
    headings = ["TOPIC", f"{RIGHT}PARTITION", f"{RIGHT}FROM", f"{RIGHT}TO"]
    print_table(headings, [(tp.topic, str(tp.partition), old, new) for tp, old, new in moves])
    if not execute:
        note("Nothing was changed; add --execute to do it.")


def _aim(**given: Any) -> Aim:
    """Where to, by the one option of `given` that is set.

    Raises:
        click.UsageError: none is set, or several are.
    """
    check_contradiction(**{name: value is not None for name, value in given.items()})
    chosen = {name: value for name, value in given.items() if value is not None}
    if not chosen:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise click.UsageError(f"say where to: give one of {options}")
    ((name, value),) = chosen.items()
    if name == "from_file":
        return Aim(place="to the positions of the file", positions=value)
    if name == "to_offset":
        return Aim(place=f"to offset {value}", offset=value)
    if name == "shift_by":
        return Aim(place=f"by {value:+,} offsets", shift=value)
    places = {"to_earliest": "to the beginning", "to_latest": "to its ends"}
    return Aim(place=places.get(name) or f"to {format_time(value)}", timestamp=value)


def _positions_in(stream: TextIO) -> dict[TopicPartition, int]:
    """The positions in a document that ``describe --json`` or ``reset --json`` printed.

    Raises:
        click.UsageError: it is none of these.
    """
    try:
        rows = json.load(stream)["positions"]
        found = [
            (str(row["topic"]), row["partition"], row["to" if "to" in row else "position"])
            for row in rows
        ]
    except (ValueError, KeyError, TypeError):
        raise click.UsageError(
            f"--from-file {stream.name}: write what `tidelog group describe --json` prints: "
            '{"positions": [{"topic": "t", "partition": 0, "position": 5}]}'
        ) from None
    for topic, partition, offset in found:
        check_number(f"partition of {topic}", partition, 0)
        if offset is not None:
            check_offset(f"position in {topic}-{partition}", offset)
    return {TopicPartition(t, number): offset for t, number, offset in found if offset is not None}


async def _reset(
    admin: Admin,
    group_id: str,
    topics: tuple[str, ...],
    aim: Aim,
    *,
    execute: bool,
    may_be_new: bool,
) -> list[tuple[TopicPartition, int | None, int]]:
    await _check_empty(admin, group_id, may_be_new=may_be_new)
    stored = await admin.group_offsets(group_id)
    committed = {tp: position.offset for tp, position in stored.items()}
    partitions = list(committed)
    if aim.positions is not None:
        partitions = list(aim.positions)
    for topic in topics if aim.positions is None else ():
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
    new = await aim.of(admin, committed, ends)
    if execute:
        await admin.alter_group_offsets(group_id, new)
    return [(tp, committed.get(tp), offset) for tp, offset in new.items()]


async def _check_empty(admin: Admin, group_id: str, *, may_be_new: bool) -> None:
    """Refuse early and clearly a request that the broker would refuse anyway."""
    try:
        await admin.require_no_members(group_id)
    except BrokerRefused as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        if not may_be_new:
            raise CommandFailed(
                f"there is no group {group_id}: see tidelog group list, or give --new --topic NAME "
                "to make it",
                ExitCode.NOT_FOUND,
            ) from None

"""``tidelog share``: reading as a member of a share group, and share groups from outside.

``consume`` accepts each record after it has printed it: one that was printed by a run that died may
come again. Where it stops, by option: after ``--max`` records, when none has come for ``--idle``,
or at Ctrl-C.
"""

import time
from typing import Any

import click
from click.core import ParameterSource

from cli.broker_options import (
    DURATION,
    GROUP,
    TOPIC,
    BrokerOptions,
    ask_admin,
    broker_options,
    none_to_see,
    run_async,
)
from cli.options import WholeNumber, check_contradiction, confirm, json_option
from cli.output import note, print_json, print_table, say
from cli.record_format import DEFAULT_FORMAT, line_format, to_json
from cli.records.reading import POLL_MS
from cli.topics.group_settings import alter, check_kind, configs, document_of
from cli.topics.moving import Move, Moved, move_options
from client.admin import Admin
from client.core.sharing.admin import SHARE_TYPE
from client.core.sharing.options import ACKNOWLEDGEMENTS
from client.descriptions import GroupInfo, SharePosition
from client.errors import BrokerRefused
from client.share_consumer import ShareConsumer
from client.types import TopicPartition
from protocol.error_codes import ErrorCode
from values.words import format_count

_BATCH_RECORDS = 500


@click.group()
def command() -> None:
    """Read as a member of a share group; list, describe, move, change, delete share groups."""


command.add_command(configs)
command.add_command(alter)


@command.command(short_help="Show the records that a share group gives this member.")
@click.argument("topics", type=TOPIC, metavar="TOPIC...", nargs=-1, required=True)
@click.option("-g", "--group", type=GROUP, required=True, help="The share group.")
@click.option("-n", "--max", "limit", type=WholeNumber(min=1), help="Stop after so many.")
@click.option("--idle", "idle_ms", type=DURATION, help="Stop when no record came for so long.")
@click.option(
    "--then",
    type=click.Choice(list(ACKNOWLEDGEMENTS)),
    default="accept",
    show_default=True,
    help="What becomes of each record that was shown.",
)
@click.option("--format", "template", default=DEFAULT_FORMAT, show_default=True, metavar="TEXT")
@click.option("--json", "as_json", is_flag=True, help="One JSON record per line.")
@broker_options
def consume(
    *,
    topics: tuple[str, ...],
    group: str,
    limit: int | None,
    idle_ms: int | None,
    then: str,
    template: str,
    as_json: bool,
    broker: BrokerOptions,
) -> None:
    """Show the records that a share group gives this member, and acknowledge them.

    A new group begins at the end of its topics; "tidelog share reset" moves it. With --then release
    the records come again, until the group's share.delivery.count.limit is reached.

    Fields of --format: those of "tidelog consume", and deliveries (how often it was delivered).

    \b
    Examples:
      tidelog share consume orders -g workers
      tidelog share consume orders -g workers --max 1 --then reject --format '{value}'
    """
    is_formatted = (
        click.get_current_context().get_parameter_source("template") is ParameterSource.COMMANDLINE
    )
    check_contradiction(json=as_json, format=is_formatted)
    if idle_ms is not None and idle_ms <= 0:
        raise click.UsageError(f"--idle is {idle_ms} ms: give more than 0, such as 5s")
    render = line_format(template)
    consumer = ShareConsumer(
        *topics,
        group_id=group,
        acknowledgement="explicit",
        max_records=min(_BATCH_RECORDS, limit or _BATCH_RECORDS),
        strict=limit is not None,
        **broker,
    )

    def show(record: Any) -> None:
        click.echo(to_json(record) if as_json else render(record))

    run_async(_consume(consumer, limit, idle_ms, then, show))


async def _consume(
    consumer: ShareConsumer, limit: int | None, idle_ms: int | None, then: str, show: Any
) -> None:
    shown = 0
    async with consumer:
        heard = time.monotonic()
        while limit is None or shown < limit:
            records = await consumer.getmany(timeout_ms=POLL_MS)
            for record in records:
                if limit is not None and shown >= limit:
                    consumer.acknowledge(record, "release")
                    continue
                show(record)
                consumer.acknowledge(record, then)
                shown += 1
            if records:
                await consumer.commit()
                heard = time.monotonic()
            elif idle_ms is not None and (time.monotonic() - heard) * 1000 >= idle_ms:
                return


@command.command("list")
@broker_options
@json_option
def list_groups(*, broker: BrokerOptions, as_json: bool) -> None:
    """List all share groups."""
    groups = [
        each
        for each in ask_admin(broker, lambda admin: admin.groups())
        if each.group_type.lower() == SHARE_TYPE
    ]
    if as_json:
        print_json([{"group": each.group_id, "state": each.state} for each in groups])
    elif groups:
        print_table("GROUP,STATE", [(each.group_id, each.state) for each in groups])
    else:
        none = none_to_see("share groups", broker)
        note(f"{none}; read as one: tidelog share consume TOPIC -g NAME")


@command.command(short_help="Show members and position of a share group, and what is left.")
@click.argument("group_id", type=GROUP, metavar="GROUP")
@broker_options
@json_option
def describe(*, group_id: str, broker: BrokerOptions, as_json: bool) -> None:
    """Show a share group's members, where it stands, and how many records it has not done."""
    info, offsets = ask_admin(broker, lambda admin: _describe(admin, group_id))
    rows = _rows(info, offsets)
    if as_json:
        print_json(document_of(info, rows))
        return
    say(f"{info.group_id}: {info.state}, {format_count(len(info.members), 'member')}")
    if rows:
        print_table(
            "TOPIC,>PARTITION,>START,>LAG,MEMBERS",
            [
                (r["topic"], str(r["partition"]), r["start"], r["lag"], ", ".join(r["client_ids"]))
                for r in rows
            ],
        )


async def _describe(
    admin: Admin, group_id: str
) -> tuple[GroupInfo, dict[TopicPartition, SharePosition]]:
    try:
        info = await admin.describe_share_group(group_id)
    except BrokerRefused as error:
        await check_kind(admin, group_id, error, is_share=True)
        raise
    return info, await admin.share_group_offsets(group_id)


def _rows(info: GroupInfo, offsets: dict[TopicPartition, SharePosition]) -> list[dict[str, Any]]:
    return [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "start": position.start_offset,
            "lag": position.lag,
            "client_ids": [m.client_id for m in info.members if tp in m.partitions],
        }
        for tp, position in offsets.items()
    ]


@command.command(short_help="Delete a share group, or let it forget topics.")
@click.argument("group_id", type=GROUP, metavar="GROUP")
@click.option(
    "-t", "--topic", "topics", type=TOPIC, multiple=True, help="Only forget these topics."
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@broker_options
def delete(*, group_id: str, topics: tuple[str, ...], yes: bool, broker: BrokerOptions) -> None:
    """Delete a share group that has no members, or let it forget topics."""
    named = ", ".join(topics)
    question = f"Let the share group {group_id} forget {named}?" if topics else None
    confirm(question or f"Delete the share group {group_id}?", is_confirmed=yes)

    async def work(admin: Admin) -> None:
        await admin.describe_share_group(group_id)
        if topics:
            await admin.delete_share_group_offsets(group_id, topics)
        else:
            await admin.delete_group(group_id)

    ask_admin(broker, work)
    say(
        f"The share group {group_id} has forgotten {named}."
        if topics
        else f"Deleted the share group {group_id}."
    )


@command.command(short_help="Let a share group begin elsewhere, for example back in time.")
@move_options
@broker_options
@json_option
def reset(*, group_id: str, move: Move, broker: BrokerOptions, as_json: bool) -> None:
    """Let a share group without members begin elsewhere, for example back in time.

    Every record from there on is delivered, also those that were accepted before. Shows what would
    change; with --execute it is done.

    Example: tidelog share reset workers --to-time -2h --execute
    """
    moves = ask_admin(broker, lambda admin: _reset(admin, group_id, move))
    move.show(group_id, moves, as_json=as_json)


async def _reset(admin: Admin, group_id: str, move: Move) -> list[Moved]:
    try:
        # The broker would refuse it, too, but only with --execute.
        members = (await admin.describe_share_group(group_id)).members
    except BrokerRefused as error:
        await check_kind(admin, group_id, error, is_share=True)
        await move.check_absence(admin, error, group_id)
        members = ()
    if members:
        raise BrokerRefused(
            f"moving share group {group_id}, which has {format_count(len(members), 'member')}",
            ErrorCode.NON_EMPTY_GROUP,
        )
    positions = await admin.share_group_offsets(group_id)
    starts = {tp: position.start_offset for tp, position in positions.items()}
    new = await move.offsets(admin, group_id, starts)
    if move.execute:
        await admin.alter_share_group_offsets(group_id, new)
    return [(tp, starts.get(tp), offset) for tp, offset in new.items()]

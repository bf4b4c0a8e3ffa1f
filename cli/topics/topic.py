"""``tidelog topic``: create, list, describe, alter, grow and delete topics, and their records."""

from typing import Any

import click

from cli.broker_options import TOPIC, BrokerOptions, ask_admin, broker_options, none_to_see
from cli.changes import (
    OF_TOPICS,
    change_options,
    change_settings,
    changes_of,
    check_topic_settings,
)
from cli.failures import CommandFailed
from cli.options import WholeNumber, check_contradiction, confirm, json_option, parse_pairs
from cli.output import format_size, note, print_json, print_table, time_fields
from cli.records.consume import StartType
from cli.records.reading import Start
from cli.time.options import ask_about
from client.admin import Admin
from client.core.offsets import EARLIEST, LATEST
from client.descriptions import ConfigEntry, ConfigSource
from client.errors import BrokerRefused, UnsupportedByBroker
from client.times import format_time
from client.types import OffsetAndTimestamp, RecordsBefore, TopicPartition
from protocol.error_codes import ErrorCode

_PARTITIONS, _REPLICAS = WholeNumber(1, 2**31 - 1), WholeNumber(1, 2**15 - 1)
"""What a request can hold; the broker has limits of its own."""


@click.group()
def command() -> None:
    """Create, list, describe, alter and delete topics."""


@command.command()
@click.argument("name")
@click.option("-p", "--partitions", type=_PARTITIONS, help="Default: the broker's.")
@click.option("--set", "pairs", metavar="KEY=VALUE", multiple=True, help="A setting; repeatable.")
@click.option(
    "-r",
    "--replication-factor",
    "replicas",
    type=_REPLICAS,
    help="How many brokers keep each partition; Tidelog has one. Default: the broker's.",
)
@click.option("--if-not-exists", is_flag=True, help="Succeed if the topic is there already.")
@broker_options
@json_option
def create(
    *,
    name: str,
    partitions: int | None,
    pairs: tuple[str, ...],
    replicas: int | None,
    if_not_exists: bool,
    broker: BrokerOptions,
    as_json: bool,
) -> None:
    """Create a topic.

    Example: tidelog topic create flights -p 4 --set message.timestamp.type=CreateTime
    """
    configs = parse_pairs(pairs, "--set")

    async def work(admin: Admin) -> bool:
        try:
            await admin.create_topic(
                name,
                partitions=partitions or -1,
                replication_factor=replicas or -1,
                configs=configs,
            )
        except BrokerRefused as error:
            if error.code is ErrorCode.INVALID_CONFIG:
                check_topic_settings(configs)
            if not if_not_exists or error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            return False
        return True

    is_new = ask_admin(broker, work)
    if as_json:
        print_json({"topic": name, "created": is_new})
    else:
        click.echo(f"Created {name}." if is_new else f"{name} exists already.")


@command.command("list")
@click.option("--internal", is_flag=True, help="Also the broker's own topics.")
@broker_options
@json_option
def list_topics(*, internal: bool, broker: BrokerOptions, as_json: bool) -> None:
    """List all topics."""
    topics = ask_admin(broker, lambda admin: admin.topics(internal=internal))
    if as_json:
        print_json(
            [
                {
                    "topic": name,
                    "partitions": len(info.partitions),
                    "internal": info.is_internal,
                    "topic_id": info.topic_id.hex(),
                }
                for name, info in topics.items()
            ]
        )
    elif topics:
        rows = [(name, len(info.partitions)) for name, info in topics.items()]
        print_table("TOPIC,>PARTITIONS", rows)
    else:
        none = none_to_see("topics", broker)
        note(f"{none}; create one with: tidelog topic create NAME")


@command.command()
@click.argument("name", type=TOPIC)
@broker_options
@json_option
def describe(*, name: str, broker: BrokerOptions, as_json: bool) -> None:
    """Show partitions, what they hold, and settings."""
    facts = ask_admin(broker, lambda admin: _describe(admin, name))
    if as_json:
        print_json(facts)
        return
    print_table(
        ">PARTITION,>LEADER,>EARLIEST,>LATEST,>SIZE,NEWEST RECORD",
        [
            (
                str(row["partition"]),
                str(row["leader"]),
                row["earliest_offset"],
                row["latest_offset"],
                None if row["size_bytes"] is None else format_size(row["size_bytes"]),
                row["newest"]["time"],
            )
            for row in facts["partitions"]
        ],
    )
    if facts["configs"]:
        click.echo()
        print_table("SETTING,VALUE", list(facts["configs"].items()))


async def _describe(admin: Admin, name: str) -> dict[str, Any]:
    info = await admin.describe_topic(name)
    partitions = [TopicPartition(name, number) for number in info.partitions]
    earliest = await admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
    latest = await admin.list_offsets(dict.fromkeys(partitions, LATEST))
    configs = await admin.topic_configs(name)
    try:
        newest = await admin.newest_records(name)
    except UnsupportedByBroker:
        newest = {}
    try:
        sizes = await admin.sizes()
    except UnsupportedByBroker:
        sizes = {}
    return {
        "topic": name,
        "topic_id": info.topic_id.hex(),
        "partitions": [
            {
                "partition": tp.partition,
                "leader": info.partitions[tp.partition].leader,
                "earliest_offset": _offset(earliest[tp]),
                "latest_offset": _offset(latest[tp]),
                "size_bytes": sizes.get(tp),
                "newest": _newest(newest.get(tp)),
            }
            for tp in partitions
        ],
        "configs": {
            entry.name: entry.value
            for entry in sorted(configs.values(), key=lambda entry: entry.name)
            if not entry.source.is_default and not _is_set_for_all(entry)
        },
    }


def _is_set_for_all(entry: ConfigEntry) -> bool:
    """Whether the cluster sets it for every topic, as brokers report of min.insync.replicas."""
    return entry.source is ConfigSource.DYNAMIC_DEFAULT


def _offset(hit: OffsetAndTimestamp | None) -> int | None:
    return None if hit is None else hit.offset


def _newest(hit: OffsetAndTimestamp | None) -> dict[str, Any]:
    if hit is None:
        return {"offset": None, **time_fields(-1)}
    return {"offset": hit.offset, **time_fields(hit.timestamp_ms)}


@command.command()
@click.argument("name", type=TOPIC)
@change_options
@broker_options
def alter(
    *, name: str, pairs: tuple[str, ...], names: tuple[str, ...], broker: BrokerOptions
) -> None:
    """Change settings of a topic.

    All changes are made, or none if one is refused.
    """
    changes = changes_of(pairs, names)

    async def work(admin: Admin) -> None:
        await change_settings(
            lambda: admin.topic_configs(name),
            lambda: admin.alter_topic_configs(name, changes),
            names,
            changes,
            *OF_TOPICS,
        )

    ask_admin(broker, work)
    click.echo(f"Changed {name}.")


@command.command()
@click.argument("name", type=TOPIC)
@click.argument("total", type=_PARTITIONS)
@broker_options
def partitions(*, name: str, total: int, broker: BrokerOptions) -> None:
    """Grow a topic to TOTAL partitions.

    Records with a key may go to another partition than before from then on.
    """
    ask_admin(broker, lambda admin: admin.create_partitions(name, total))
    click.echo(f"{name} has {total} partitions.")


@command.command()
@click.argument("names", type=TOPIC, metavar="NAME...", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@broker_options
def delete(*, names: tuple[str, ...], yes: bool, broker: BrokerOptions) -> None:
    """Delete topics with all their records."""
    confirm(f"Delete {', '.join(names)} with all records?", is_confirmed=yes)

    ask_admin(broker, lambda admin: admin.delete_topic(*names))
    click.echo(f"Deleted {', '.join(names)}.")


@command.command("delete-records", short_help="Delete the records at the beginning of a topic.")
@click.argument("name", type=TOPIC)
@click.option(
    "--before",
    type=StartType(),
    required=True,
    metavar="TIME|OFFSET|latest",
    help="Up to the first record at or after a time, up to an offset, or all: latest.",
)
@click.option(
    "-p",
    "--partition",
    "numbers",
    type=WholeNumber(min=0),
    multiple=True,
    help="Only this partition; repeatable.",
)
@click.option("--execute", is_flag=True, help="Delete them; without this nothing is changed.")
@click.option("-n", "--dry-run", is_flag=True, help="Only show what would go (the default).")
@broker_options
@json_option
def delete_records(
    *,
    name: str,
    before: Start,
    numbers: tuple[int, ...],
    execute: bool,
    dry_run: bool,
    broker: BrokerOptions,
    as_json: bool,
) -> None:
    """Delete the records of a topic that are before a time or an offset, for good.

    Before a time, each partition loses what is before its first record at or after it, and no newer
    record. Older records that arrived after a newer one stay.

    \b
    Examples:
      tidelog topic delete-records flights --before -30d --execute
      tidelog topic delete-records flights --before offset:1000 -p 0
    """
    check_contradiction(execute=execute, dry_run=dry_run)
    if before.word == "earliest":
        raise click.UsageError("--before earliest deletes nothing: give a time or an offset")

    async def work(
        admin: Admin, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, RecordsBefore]:
        plan = await _records_before(admin, partitions, before)
        if execute:
            stops = {tp: one.stop for tp, one in plan.items() if one.start < one.stop}
            await admin.delete_records(stops)
        return plan

    plan = ask_about(broker, name, numbers, work)
    if as_json:
        rows = [
            {
                "partition": tp.partition,
                "from": one.start,
                "to": one.stop,
                "end": one.end,
                "next": None if one.next_ms is None else time_fields(one.next_ms),
            }
            for tp, one in plan.items()
        ]
        print_json({"topic": name, "dry_run": not execute, "partitions": rows})
        return
    if before.time_ms is not None:
        place = f" before {format_time(before.time_ms)}"
    else:
        place = "" if before.offset is None else f" before offset {before.offset}"
    click.echo(f"{'Deleted' if execute else 'Would delete'} the records of {name}{place}:")
    print_table(
        ">PARTITION,>FROM,>TO,>OFFSETS,>LEFT,NEXT RECORD",
        [
            (
                str(tp.partition),
                one.start,
                one.stop,
                one.stop - one.start,
                one.end - one.stop,
                "-" if one.next_ms is None else format_time(one.next_ms),
            )
            for tp, one in plan.items()
        ],
    )
    if not execute:
        note("Nothing was changed; add --execute to do it.")


async def _records_before(
    admin: Admin, partitions: list[TopicPartition], before: Start
) -> dict[TopicPartition, RecordsBefore]:
    """As `Admin.records_before`, of any end; the time of the next record is known for a time only.

    Raises:
        CommandFailed: a partition does not have the offset.
    """
    if before.time_ms is not None:
        return await admin.records_before(partitions, before.time_ms)
    starts = await admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
    ends = await admin.list_offsets(dict.fromkeys(partitions, LATEST))
    plan = {}
    for tp in partitions:
        start, end = _offset(starts[tp]) or 0, _offset(ends[tp]) or 0
        stop = end if before.offset is None else before.offset
        if not start <= stop <= end:
            raise CommandFailed(
                f"{tp} has no offset {stop}: it has {start} to {end}; choose one of these, and "
                "with --partition one partition (nothing was changed)"
            )
        plan[tp] = RecordsBefore(start, stop, end, None)
    return plan

"""``tidelog offsets``: which offset belongs to a time, and where partitions begin and end."""

from typing import Any

import click

from cli.broker_options import TIME, TOPIC, BrokerOptions, broker_options
from cli.options import WholeNumber, check_contradiction, json_option
from cli.output import print_json, print_table, time_fields
from cli.time.options import ask_about
from cli.topics.explanation import show_explanations
from client.admin import Admin
from client.core.offsets import EARLIEST, LATEST, MAX_TIMESTAMP
from client.times import format_duration, format_time
from client.types import OffsetAndTimestamp, TopicPartition

Hits = dict[TopicPartition, OffsetAndTimestamp | None]


@click.command()
@click.argument("topic", type=TOPIC)
@click.option("--at", "at_ms", type=TIME, help="The first record at or after this time.")
@click.option("--earliest", is_flag=True, help="The first offset there is.")
@click.option("--latest", is_flag=True, help="One past the last offset.")
@click.option("--max-timestamp", is_flag=True, help="The newest record by time.")
@click.option("-p", "--partition", type=WholeNumber(min=0), help="Only this partition.")
@click.option(
    "--explain",
    "is_explained",
    is_flag=True,
    help="With --at: what the lookup did, and the records on both sides.",
)
@click.option(
    "--metrics",
    "metrics_url",
    metavar="HOST:PORT",
    help="With --explain: the broker's metrics port, if it is not found by itself.",
)
@broker_options
@json_option
def command(
    *,
    topic: str,
    at_ms: int | None,
    earliest: bool,
    latest: bool,
    max_timestamp: bool,
    partition: int | None,
    is_explained: bool,
    metrics_url: str | None,
    broker: BrokerOptions,
    as_json: bool,
) -> None:
    """Find offsets by time, or the ends of partitions (the default).

    OFFSETS is how many offsets are between the ends; markers of transactions have some of them.

    TIME is ISO 8601 (without a zone: local time), epoch milliseconds, or relative (-15m).

    Example: tidelog offsets flights --at 2013-07-04T12:00-04:00
    """
    check_contradiction(
        at=at_ms is not None, earliest=earliest, latest=latest, max_timestamp=max_timestamp
    )
    which = "earliest" if earliest else "latest" if latest else "max" if max_timestamp else None
    if metrics_url is not None and not is_explained:
        raise click.UsageError("--metrics needs --explain: nothing else is asked there")
    if is_explained:
        if at_ms is None:
            raise click.UsageError("--explain needs --at: a lookup by time is what it explains")
        time_ms = at_ms
        found = ask_about(
            broker, topic, partition, lambda admin, tps: _explain(admin, tps, time_ms, metrics_url)
        )
        if as_json:
            at = {"at_ms": at_ms, "at": format_time(at_ms)}
            print_json({"topic": topic, **at, "partitions": found})
        else:
            show_explanations(found)
        return
    if at_ms is None and which is None:
        _show_ends(ask_about(broker, topic, partition, _ends), topic, as_json)
        return
    timestamp = at_ms if at_ms is not None else _special(which)
    hits = ask_about(
        broker,
        topic,
        partition,
        lambda admin, tps: admin.first_records(dict.fromkeys(tps, timestamp)),
    )
    if as_json:
        print_json(_document(topic, at_ms, which, hits))
        return
    if at_ms is not None:
        click.echo(f"First record at or after {format_time(at_ms)} ({at_ms}):")
    _show_hits(hits, at_ms)


def _special(which: str | None) -> int:
    return {"earliest": EARLIEST, "latest": LATEST, "max": MAX_TIMESTAMP}[which or ""]


async def _explain(
    admin: Admin, partitions: list[TopicPartition], timestamp: int, metrics_url: str | None
) -> list[dict[str, Any]]:
    return [await admin.explain_lookup(tp, timestamp, metrics_url=metrics_url) for tp in partitions]


async def _ends(admin: Admin, partitions: list[TopicPartition]) -> tuple[Hits, Hits]:
    return (
        await admin.list_offsets(dict.fromkeys(partitions, EARLIEST)),
        await admin.list_offsets(dict.fromkeys(partitions, LATEST)),
    )


def _show_ends(ends: tuple[Hits, Hits], topic: str, as_json: bool) -> None:
    rows = [
        (tp.partition, first.offset, last.offset)
        for tp, first in ends[0].items()
        if first is not None and (last := ends[1][tp]) is not None
    ]
    if as_json:
        names = ("partition", "earliest_offset", "latest_offset")
        document = {"topic": topic, "partitions": [dict(zip(names, r, strict=True)) for r in rows]}
        print_json(document)
        return
    headings = ">PARTITION,>EARLIEST,>LATEST,>OFFSETS"
    print_table(headings, [(str(p), first, last, last - first) for p, first, last in rows])


def _show_hits(hits: Hits, at_ms: int | None) -> None:
    rows: list[tuple[object, ...]] = []
    for tp, hit in sorted(hits.items()):
        if hit is None:
            rows.append((str(tp.partition), None, "no such record", None))
        elif hit.timestamp_ms < 0:
            rows.append((str(tp.partition), hit.offset, None, None))
        else:
            later = None if at_ms is None else format_duration(hit.timestamp_ms - at_ms)
            rows.append((str(tp.partition), hit.offset, format_time(hit.timestamp_ms), later))
    # Columns that are empty in this answer are left out.
    headings = ">PARTITION,>OFFSET"
    if any(hit and hit.timestamp_ms >= 0 for hit in hits.values()) or at_ms is not None:
        headings += ",TIME"
    if at_ms is not None:
        headings += ",>LATER BY"
    width = headings.count(",") + 1
    print_table(headings, [row[:width] for row in rows])


def _document(topic: str, at_ms: int | None, which: str | None, hits: Hits) -> dict[str, Any]:
    asked: dict[str, Any] = (
        {"which": which}
        if at_ms is None
        else {
            "at_ms": at_ms,
            "at": format_time(at_ms),
        }
    )
    return {
        "topic": topic,
        **asked,
        "partitions": [
            {
                "partition": tp.partition,
                "offset": None if hit is None else hit.offset,
                **time_fields(-1 if hit is None else hit.timestamp_ms),
                "leader_epoch": None if hit is None else hit.leader_epoch,
            }
            for tp, hit in sorted(hits.items())
        ],
    }

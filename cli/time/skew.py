"""``tidelog skew``: how disordered a topic's times are, and which producers are off."""

from typing import Any

import click

from cli.broker_options import BrokerOptions
from cli.options import WholeNumber
from cli.output import format_size, print_table
from cli.time.options import ask_about, note_unanswered, print_document, topic_options
from client.times import find_unit_mistake, format_duration, format_time
from values.words import format_count

_AHEAD_MS = 60_000
"""A clock that is so far ahead is named; less is ordinary."""


@click.command()
@topic_options
@click.option(
    "--bytes",
    "size_bytes",
    type=WholeNumber(1, 64 * 1024 * 1024),
    default=8 * 1024 * 1024,
    show_default=True,
    help="How much to read, the newest records of all partitions together.",
)
def command(
    *,
    topic: str,
    partition: int | None,
    size_bytes: int,
    metrics_url: str | None,
    broker: BrokerOptions,
    as_json: bool,
) -> None:
    """Audit the times of a topic's newest records: disorder, and producers whose clock is off.

    A record is late by how much it is older than the youngest before it in its partition.
    'tidelog spark skew' does the same for whole topics.
    """
    found = ask_about(
        broker,
        topic,
        partition,
        lambda admin, _: admin.audit_times(
            topic, partition=partition, size_bytes=size_bytes, metrics_url=metrics_url
        ),
    )
    note_unanswered(found)
    if as_json:
        print_document(found)
        return
    partitions = found["partitions"]
    read = sum(one["records"] + one["stamped"] for one in partitions)
    click.echo(
        f"{topic}: {format_count(read, 'record')} read, the newest of "
        f"{format_count(len(partitions), 'partition')}, {format_size(size_bytes)} at most"
    )
    headings = ">PARTITION,>RECORDS,>OUT OF ORDER,>LATE p50,>LATE p99,>LATEST BY"
    print_table(headings, [_partition_row(one) for one in partitions])
    stamped = sum(one["stamped"] for one in partitions)
    if stamped:
        click.echo(f"{format_count(stamped, 'record')} with LogAppendTime: the broker's own time")
    rows = [
        (str(one["partition"]), _name(producer["producer_id"]), producer["records"], sentence)
        for one in partitions
        for producer in one["producers"]
        for sentence in _faults(producer)
    ]
    clients = found.get("clients", ())
    if clients:
        click.echo("Clients whose batches were off when they were appended:")
        print_table(
            "CLIENT,LAST SEEN,WHAT",
            [
                (one["client_id"] or "-", format_time(one["last_ms"]), sentence)
                for one in clients
                for sentence in _client_faults(one)
            ],
        )
    if rows:
        click.echo("Producers that are off:")
        print_table(">PARTITION,PRODUCER,>RECORDS,WHAT", rows)
    else:
        click.echo("Of these records no producer is off.")


def _partition_row(one: dict[str, Any]) -> tuple[object, ...]:
    records = one["records"]
    share = f"{one['out_of_order']:,} ({one['out_of_order'] / records:.1%})" if records else "-"
    return (
        str(one["partition"]),
        records,
        share,
        _bound(one["late_p50_ms"]),
        _bound(one["late_p99_ms"]),
        format_duration(one["largest_step_back_ms"]),
    )


def _bound(late_ms: int) -> str:
    return "0" if late_ms == 0 else "over 7d" if late_ms < 0 else f"to {format_duration(late_ms)}"


def _name(producer_id: int) -> str:
    return "not idempotent" if producer_id < 0 else f"id {producer_id}"


def _faults(producer: dict[str, Any]) -> list[str]:
    """What is wrong with the times of a producer, a sentence for each fault."""
    faults = []
    ahead, behind = producer["ahead"], producer["behind"]
    if ahead is not None and producer["ahead_ms"] > _AHEAD_MS:
        faults.append(f"ahead by {format_duration(producer['ahead_ms'])} {_where(ahead)}")
    mistake = None if behind is None else find_unit_mistake(behind["timestamp_ms"])
    if mistake is not None:
        faults.append(f"{mistake} {_where(behind)}")
    if producer["without_time"]:
        faults.append(f"{format_count(producer['without_time'], 'record')} without a time")
    if producer["out_of_order"] * 10 > producer["records"]:
        share = producer["out_of_order"] / producer["records"]
        faults.append(f"{share:.0%} of its records are older than an earlier one")
    return faults


def _client_faults(client: dict[str, Any]) -> list[str]:
    """What is wrong with the batches of a client, a sentence for each fault."""
    faults = []
    for side in ("ahead", "behind"):
        place = client[f"most_{side}"]
        if place is not None:
            mistake = find_unit_mistake(place["timestamp_ms"])
            faults.append(
                f"{format_count(client[side], 'batch', 'batches')} {side}, by "
                f"{format_duration(client[f'{side}_ms'])} at most (partition {place['partition']}, "
                f"offset {place['offset']}{f'; {mistake}' if mistake else ''})"
            )
    for name, words in (("without_time", "with a record without a time"), ("refused", "refused")):
        if client[name]:
            faults.append(f"{format_count(client[name], 'batch', 'batches')} {words}")
    return faults


def _where(record: dict[str, int]) -> str:
    return f"(offset {record['offset']}, timestamp {record['timestamp_ms']})"

"""``tidelog retention``: when a topic's segments are deleted, and what keeps them until then."""

from typing import Any

import click

from cli.broker_options import BrokerOptions
from cli.changes import check_topic_settings
from cli.options import parse_pairs
from cli.output import format_size, print_table
from cli.time.options import ask_about, note_unanswered, print_document, topic_options
from client.errors import InvalidUse
from client.times import format_duration, format_time
from values.words import format_count

_ROWS = 20

_KEPT = {
    "EMPTY": "it has no records",
    "READ_ONLY": "the log takes no changes: it is offline, or follows another broker's bucket",
    "POLICY": "cleanup.policy=compact deletes nothing by age or size",
    "UNLIMITED": "retention.ms is -1, retention.bytes is not exceeded",
    "HIGH_WATERMARK": "not durable yet",
    "FUTURE": "its newest timestamp is ahead of the clock; retention.clamp.future=true frees it",
    "OLDER": "segment {held_by} before it stays",
    "ACTIVE": "expired records beside newer ones; a smaller segment.ms closes it earlier",
    "NEWER_RECORDS": "expired records beside newer ones, since {span}",
}
"""What the table says about a segment that stays, by the broker's `kept_by`."""


@click.command()
@topic_options
@click.option(
    "--set",
    "pairs",
    metavar="KEY=VALUE",
    multiple=True,
    help="As if the topic had this setting, such as retention.ms=3600000; repeatable.",
)
@click.option("--all", "is_whole", is_flag=True, help=f"Every segment, not the first {_ROWS}.")
def command(
    *,
    topic: str,
    partition: int | None,
    pairs: tuple[str, ...],
    is_whole: bool,
    metrics_url: str | None,
    broker: BrokerOptions,
    as_json: bool,
) -> None:
    """Forecast when retention deletes each segment of a topic, and name what keeps it.

    Nothing is changed: --set asks what would be deleted with other settings.

    Example: tidelog retention flights --set retention.ms=86400000
    """
    settings = parse_pairs(pairs, "--set")
    try:
        found = ask_about(
            broker,
            topic,
            partition,
            lambda admin, _: admin.forecast_retention(
                topic, settings, partition=partition, metrics_url=metrics_url
            ),
        )
    except InvalidUse:
        check_topic_settings(settings)
        raise
    note_unanswered(found)
    if as_json:
        print_document(found)
        return
    _show(found, is_whole)


def _show(found: dict[str, Any], is_whole: bool) -> None:
    now_ms = found["now_ms"]
    click.echo(f"{found['topic']} at {format_time(now_ms)}: {_rules(found['settings'])}")
    rows = [
        (
            str(one["partition"]),
            str(segment["base_offset"]),
            format_size(segment["size_bytes"]),
            format_time(segment["max_timestamp"]) if segment["max_timestamp"] >= 0 else None,
            _when(segment, now_ms),
            _why(segment),
        )
        for one in found["partitions"]
        for segment in one["segments"]
    ]
    shown = rows if is_whole else rows[:_ROWS]
    headings = ">PARTITION,>SEGMENT,>SIZE,NEWEST,GOES,WHY"
    print_table(headings, shown)
    if len(shown) < len(rows):
        click.echo(f"and {format_count(len(rows) - len(shown), 'more segment')}; --all shows them")
    click.echo(_next_check(found))
    click.echo(_disk(found["disk"], now_ms))


def _next_check(found: dict[str, Any]) -> str:
    """What the next check deletes; its moment is not known, so more may have expired by then."""
    interval_ms = found["check_interval_ms"]
    sizes: tuple[list[int], list[int]] = ([], [])
    for one in found["partitions"]:
        for segment in one["segments"]:
            waits_ms = (segment["goes_at_ms"] or found["now_ms"]) - found["now_ms"]
            if segment["goes_at_ms"] is not None and waits_ms <= interval_ms:
                sizes[waits_ms > 0].append(segment["size_bytes"])
    now, soon = ((format_count(len(of), "segment"), format_size(sum(of))) for of in sizes)
    text = f"The next check, within {format_duration(interval_ms)}, deletes {now[0]} ({now[1]})"
    if sizes[1]:
        text += f", and of {soon[0]} ({soon[1]}) more what has expired by then"
    return f"{text}."


def _rules(settings: dict[str, Any]) -> str:
    age, size = settings["retention.ms"], settings["retention.bytes"]
    parts = [
        f"cleanup.policy={settings['cleanup.policy']}",
        f"retention.ms={age}" + (f" ({format_duration(age)})" if age > 0 else ""),
        f"retention.bytes={size}" + (f" ({format_size(size)})" if size > 0 else ""),
    ]
    if settings["retention.clamp.future"]:
        parts.append("retention.clamp.future=true")
    return ", ".join(parts)


def _when(segment: dict[str, Any], now_ms: int) -> str:
    goes_at_ms = segment["goes_at_ms"]
    if goes_at_ms is None:
        return "not by these settings"
    if goes_at_ms <= now_ms:
        return "at the next check"
    return f"in {format_duration(goes_at_ms - now_ms)}"


def _why(segment: dict[str, Any]) -> str:
    if segment["kept_by"] is None:
        return str(segment["reason"])
    span_ms = segment["max_timestamp"] - (segment["min_timestamp"] or 0)
    text = _KEPT.get(segment["kept_by"]) or str(segment["why"])
    return text.format(held_by=segment["held_by"], span=f"it spans {format_duration(span_ms)}")


def _disk(disk: dict[str, Any], now_ms: int) -> str:
    room = format_size(max(0, disk["free_bytes"]))
    unknown = disk["partitions_without_rate"]
    note = f" ({format_count(unknown, 'partition')} too young to have a rate)" if unknown else ""
    rate = f"all topics take {format_size(disk['bytes_per_day'])} a day{note}"
    full_at_ms = disk["full_at_ms"]
    if full_at_ms is None:
        return f"The disk has room for {room}; {rate}: it does not fill up at this rate."
    left = format_duration(full_at_ms - now_ms)
    return f"The disk has room for {room}; {rate}: it is full in {left}, {format_time(full_at_ms)}."

"""``tidelog histogram``: how many records a topic has in each span of time."""

from typing import Any, Final

import click

from cli.broker_options import TIME, BrokerOptions
from cli.options import WholeNumber
from cli.output import format_size, print_table
from cli.time.options import ask_about, note_unanswered, print_document, topic_options
from client.times import format_duration, format_time
from values.words import format_count

_BARS: Final = 24
_LONGEST: Final = 40
"""Characters of the longest bar."""


@click.command()
@topic_options
@click.option("--from", "from_ms", type=TIME, help="Default: the oldest record.")
@click.option("--until", "to_ms", type=TIME, help="Default: after the newest record.")
@click.option(
    "--bars",
    type=WholeNumber(1, 1000),
    default=_BARS,
    show_default=True,
    help="How many bars at most; they are of whole seconds, minutes, hours or days.",
)
def command(
    *,
    topic: str,
    partition: int | None,
    from_ms: int | None,
    to_ms: int | None,
    bars: int,
    metrics_url: str | None,
    broker: BrokerOptions,
    as_json: bool,
) -> None:
    """Count the records of a topic by time, exactly, however late they came.

    Example: tidelog histogram flights --from 2013-07-04 --until 2013-07-05 --bars 48
    """
    if from_ms is not None and to_ms is not None and from_ms >= to_ms:
        raise click.UsageError("--from must be before --until")
    found = ask_about(
        broker,
        topic,
        partition,
        lambda admin, _: admin.count_by_time(
            topic,
            partition=partition,
            from_ms=from_ms,
            to_ms=to_ms,
            buckets=bars,
            metrics_url=metrics_url,
        ),
    )
    note_unanswered(found)
    if as_json:
        print_document(found)
        return
    width_ms = found["width_ms"]
    records = format_count(found["records"], "record")
    click.echo(f"{topic}: {records} in bars of {format_duration(width_ms)}")
    counts: dict[int, int] = dict(found["buckets"])
    longest = max(counts.values(), default=0)
    rows = [
        (format_time(start), count, "#" * -(-count * _LONGEST // longest))
        for start in range(found["from_ms"], found["to_ms"], width_ms)
        if (count := counts.get(start, 0)) or len(counts) > 1
    ]
    if counts:
        print_table("FROM,>RECORDS,", rows)
    for line in _remarks(found):
        click.echo(line)


def _remarks(found: dict[str, Any]) -> list[str]:
    """What is not in the bars."""
    lines = []
    for name, where in (("before", "before"), ("after", "after"), ("without_time", "without")):
        if found[name]:
            place = "the bars" if name != "without_time" else "a time"
            lines.append(f"{format_count(found[name], 'record')} {where} {place}.")
    if found["missing_segments"]:
        lines.append(
            f"{format_count(found['missing_segments'], 'segment')} "
            f"({format_size(found['missing_bytes'])}) not counted yet: ask again."
        )
    return lines

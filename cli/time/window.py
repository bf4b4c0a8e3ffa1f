"""``tidelog window``: the name under which any Kafka client reads the records of a span of time."""

import click

from cli.broker_options import TIME
from cli.time.options import print_document
from client.times import format_time
from protocol.time_windows import MARK, window_name
from protocol.topic_names import CHARACTERS, LENGTH_MAX, wrong_characters


@click.command()
@click.argument("topic")
@click.option(
    "-f", "--from", "from_ms", type=TIME, required=True, help="Records at or after this time."
)
@click.option("-t", "--to", "to_ms", type=TIME, help="And before this one; default no end.")
@click.option("--json", "as_json", is_flag=True, help="Name and times as a JSON document.")
def command(*, topic: str, from_ms: int, to_ms: int | None, as_json: bool) -> None:
    """Print the name of a time window of TOPIC.

    Any Kafka client reads it like a topic, if the broker has time.windows.enable=true.

    Example: tidelog consume "$(tidelog window flights --from -2h --to -1h)" --from earliest
    """
    if to_ms is not None and to_ms <= from_ms:
        raise click.UsageError(
            f"--to ({format_time(to_ms)}) is not after --from ({format_time(from_ms)}), so there "
            "is nothing in between"
        )
    if wrong := wrong_characters(topic):
        raise click.UsageError(
            f"TOPIC is {topic[:40]!r}, and no topic's name has {wrong}; allowed are {CHARACTERS}"
        )
    if from_ms < 0:
        raise click.UsageError(f"--from ({format_time(from_ms)}) lies before 1970")
    name = window_name(topic, from_ms, to_ms)
    if not topic or len(name) > LENGTH_MAX:
        longest = LENGTH_MAX - len(name) + len(topic)
        raise click.UsageError(
            f"TOPIC has {len(topic)} characters; a window of it needs 1 to {longest}, because "
            f"names have at most {LENGTH_MAX} and {MARK} with the times is part of it"
        )
    if as_json:
        print_document({"name": name, "topic": topic, "from_ms": from_ms, "to_ms": to_ms})
    else:
        click.echo(name)

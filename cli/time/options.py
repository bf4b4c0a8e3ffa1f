"""What the commands share that ask a broker's metrics port about a topic or about its clock."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar

import click

from cli.broker_options import TOPIC, BrokerOptions, ask_admin, broker_options
from cli.options import WholeNumber, json_option
from cli.output import note, print_json
from client.admin import Admin
from client.errors import NotThere
from client.times import format_time
from client.types import TopicPartition

_T = TypeVar("_T")

_MOMENTS: Final = ("wall", "now", "from", "to", "goes_at", "full_at", "at")
_TIMES: Final = {
    **{f"{name}_ms": name for name in _MOMENTS},
    **{"timestamp_ms": "time", "first_ms": "first_time", "last_ms": "last_time"},
}
"""The names of times in the documents of the metrics port, and what their text is called here."""


def metrics_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--metrics``, the broker's options and ``--json``."""
    metrics = click.option(
        "--metrics",
        "metrics_url",
        metavar="HOST:PORT",
        help="The broker's metrics port, if it is not found by itself.",
    )
    return metrics(broker_options(json_option(function)))


def topic_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """TOPIC and ``-p``, and `metrics_options`."""
    partition = click.option(
        "-p", "--partition", type=WholeNumber(min=0), help="Only this partition."
    )
    return click.argument("topic", type=TOPIC)(partition(metrics_options(function)))


def ask_about(
    broker: BrokerOptions,
    topic: str,
    partition: int | tuple[int, ...] | None,
    ask: Callable[[Admin, list[TopicPartition]], Coroutine[Any, Any, _T]],
) -> _T:
    """The answer to a question about the partitions of `topic`, or only about those given.

    Raises:
        NotThere: the topic has no such partition; a request about it would wait for it.
    """

    only = {partition} if isinstance(partition, int) else set(partition or ())

    async def work(admin: Admin) -> _T:
        numbers = (await admin.describe_topic(topic)).partitions
        if missing := only.difference(numbers):
            raise NotThere.partition(topic, min(missing), len(numbers))
        return await ask(
            admin, [TopicPartition(topic, n) for n in numbers if not only or n in only]
        )

    return ask_admin(broker, work)


def print_document(document: Mapping[str, Any]) -> None:
    """A document of the metrics port as JSON, with ISO 8601 beside each of its times."""
    print_json(_with_times(document))


def _with_times(part: Any) -> Any:
    if isinstance(part, Mapping):
        shown = {}
        for name, value in part.items():
            shown[name] = _with_times(value)
            if name in _TIMES:
                shown[_TIMES[name]] = None if value is None or value < 0 else format_time(value)
        return shown
    return [_with_times(one) for one in part] if isinstance(part, list) else part


def note_unanswered(found: Mapping[str, Any]) -> None:
    """Name the workers of the broker whose part the answer lacks, on stderr."""
    for one in found["unanswered"]:
        numbers = ", ".join(map(str, one["partitions"])) or "none"
        note(f"incomplete: {one['why']}; its partitions of the topic: {numbers}")

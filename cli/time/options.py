"""What the commands share that ask a broker's metrics port about a topic or about its clock."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

import click

from cli.options import TOPIC, BrokerOptions, ask_admin, broker_options, json_option
from cli.output import note
from client.admin import Admin
from client.errors import NotThere
from client.types import TopicPartition

_T = TypeVar("_T")


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
        "-p", "--partition", type=click.IntRange(min=0), help="Only this partition."
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


def note_unanswered(found: Mapping[str, Any]) -> None:
    """Name the workers of the broker whose part the answer lacks, on stderr."""
    for one in found["unanswered"]:
        numbers = ", ".join(map(str, one["partitions"])) or "none"
        note(f"incomplete: {one['why']}; its partitions of the topic: {numbers}")

"""Requests and answers have parts, by topic and partition: making the ones, judging the others."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from client.errors import BrokerRefused
from client.types import TopicPartition
from protocol.error_codes import ErrorCode

_T = TypeVar("_T")


def by_topic(
    partitions: Iterable[TopicPartition], make: Callable[[TopicPartition], _T]
) -> dict[str, list[_T]]:
    """What `make` makes for each partition, grouped as requests are."""
    topics: dict[str, list[_T]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(make(partition))
    return topics


def check(what: str, part: Any, address: str) -> None:
    """Accept a part of an answer whose error code is NONE.

    Raises:
        BrokerRefused: it is another; with the broker's own sentence, if there is one.
    """
    if part.error_code != ErrorCode.NONE:
        detail = getattr(part, "error_message", None)
        raise BrokerRefused(what, part.error_code, broker=address, detail=detail)

"""Walks over the partitions of a request, in steps.

Most requests name partitions by topic, and their answers have the same form. A client may name
100,000 of them, so every such walk is a generator of steps (`storage.disk.steps`). A small request
is walked in its first step.
"""

from collections.abc import Callable, Hashable, Iterable
from operator import attrgetter
from typing import Final, TypeVar

from storage.disk.steps import Slice, Steps

Topic = TypeVar("Topic")
Partition = TypeVar("Partition")
Answer = TypeVar("Answer")
TopicAnswer = TypeVar("TopicAnswer")
Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)

STEP: Final = 256
"""Elements of one step: less than a millisecond."""


def by_topic(
    topics: Iterable[Topic],
    answer: Callable[[Topic, Partition], Answer],
    collect: Callable[[Topic, list[Answer]], TopicAnswer],
    *,
    partitions_of: Callable[[Topic], Iterable[Partition]] = attrgetter("partitions"),
) -> Steps[list[TopicAnswer]]:
    """For each topic `collect(topic, answers)`, for each partition `answer(topic, partition)`."""
    spent = Slice(STEP)
    collected = []
    for topic in topics:
        answers = []
        for partition in partitions_of(topic):
            answers.append(answer(topic, partition))
            if spent.add(1):
                yield None
        collected.append(collect(topic, answers))
        if spent.add(1):
            yield None
    return collected


def by_key(items: Iterable[Item], key: Callable[[Item], Key]) -> Steps[dict[Key, list[Item]]]:
    """The items of each key, so that what a request names twice is answered once.

    Keys are in the order of their first items, and the items of a key in the order of the request.
    """
    found: dict[Key, list[Item]] = {}
    spent = Slice(STEP)
    for item in items:
        found.setdefault(key(item), []).append(item)
        if spent.add(1):
            yield None
    return found

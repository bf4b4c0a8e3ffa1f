"""What the descriptions of consumer groups and of share groups have in common."""

from collections.abc import Iterator
from typing import NamedTuple

from broker.groups.consumer.values import Partitions, indexes_by_topic
from broker.requests.context import Context


class NamedPartitions(NamedTuple):
    """The partitions of one topic."""

    topic_id: bytes
    name: str
    indexes: list[int]


def named_partitions(context: Context, partitions: Partitions) -> Iterator[NamedPartitions]:
    """The partitions by topic; a topic deleted meanwhile has no name and is left out."""
    for topic_id, indexes in indexes_by_topic(partitions).items():
        topic = context.topics.find_by_id(topic_id)
        if topic is not None:
            yield NamedPartitions(topic_id, topic.name, indexes)


def absence(context: Context, group_id: str, group_type: str) -> str:
    """Why no group of this type has the name: it is of another type, or does not exist."""
    groups = context.groups
    every = (groups.classic_groups, groups.consumer_groups, groups.share_groups)
    if any(group_id in each for each in every):
        return f"Group {group_id} is not a {group_type} group."
    return f"Group {group_id} not found."

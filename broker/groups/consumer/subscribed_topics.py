"""The topics that the members of a consumer group read, resolved against those that exist.

Owns the answer for one revision of the topics: names and patterns are looked up once for each
different subscription, however many members have it.

Read next: `broker.groups.consumer.group`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from broker.groups.consumer import topic_pattern
from broker.groups.consumer.values import Partition, Subscription, TopicImage, Topics


class SubscribedTopics:
    """One group's view of the topics. `seen` are the topics that some member reads."""

    def __init__(self) -> None:
        """Create an empty view; `look` fills it."""
        self.revision: int | None = None
        self.seen: Mapping[str, TopicImage] = {}
        self._resolved_at: int | None = None
        self._resolved: dict[tuple[frozenset[str], str | None], frozenset[str]] = {}

    def look(self, topics: Topics, subscriptions: Iterable[Subscription]) -> None:
        """Resolve which of `topics` are subscribed to now, and keep the result."""
        wanted = self.resolve(topics, subscriptions)
        self.revision = topics.revision
        self.seen = {name: topics.by_name[name] for name in wanted}

    def resolve(self, topics: Topics, subscriptions: Iterable[Subscription]) -> frozenset[str]:
        """Which of `topics` are subscribed to; `seen` stays as it was, for comparison."""
        if topics.revision != self._resolved_at:
            self._resolved_at = topics.revision
            self._resolved.clear()
        different = {(each.names, each.regex) for each in subscriptions}
        for subscription in different - self._resolved.keys():
            self._resolved[subscription] = _resolve(*subscription, topics)
        for gone in self._resolved.keys() - different:
            del self._resolved[gone]
        return frozenset[str]().union(*self._resolved.values())

    def of(self, subscription: Subscription) -> frozenset[str]:
        """The topics of one of the subscriptions of the last `look`."""
        return self._resolved[subscription.names, subscription.regex]

    def partitions(self) -> set[Partition]:
        """Every partition of the topics seen."""
        return {
            (image.topic_id, index)
            for image in self.seen.values()
            for index in range(image.partitions)
        }


def _resolve(names: frozenset[str], regex: str | None, topics: Topics) -> frozenset[str]:
    wanted = names & topics.by_name.keys()
    if regex:
        pattern = topic_pattern.compile_pattern(regex)
        wanted |= topic_pattern.matching(pattern, topics.by_name)
    return frozenset(wanted)

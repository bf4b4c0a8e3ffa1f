"""The topics that the members of a consumer group read, resolved against those that exist.

Owns the answer for one revision of the topics: names and patterns are looked up once for each
different subscription, however many members have it.

A pattern means the names that it matches from end to end, including those of internal topics; to
leave them out is the client's part, in its pattern. A pattern that `protocol.patterns` does not
accept is refused with INVALID_REGULAR_EXPRESSION. With an authorizer it means only those names that
the client may describe whose heartbeat looks it up; members with the same pattern share the result,
and new rules count from the next change of the topics on, as in Kafka.

Source: KIP-848, KIP-1043; Kafka's `TopicRegexResolver`.
"""

from collections.abc import Iterable, Mapping

from broker.groups.consumer.values import (
    HeartbeatRefused,
    Partition,
    Sight,
    Subscription,
    TopicImage,
    Topics,
)
from protocol import patterns
from protocol.error_codes import ErrorCode


class SubscribedTopics:
    """One group's view of the topics. `seen` are the topics that some member reads."""

    def __init__(self) -> None:
        self.revision: int | None = None
        self.seen: Mapping[str, TopicImage] = {}
        self._sees: Sight | None = None
        self._resolved_at: int | None = None
        self._resolved: dict[tuple[frozenset[str], str | None], frozenset[str]] = {}

    def look_as(self, sees: Sight | None) -> None:
        """Look up patterns for a client that sees some names, None for one that sees all."""
        if self._sees is None and sees is not None:
            # What was looked up without a client had all names.
            self.revision = self._resolved_at = None
        self._sees = sees

    def look(self, topics: Topics, subscriptions: Iterable[Subscription]) -> None:
        """Resolve which of `topics` are subscribed to now, and keep the result."""
        wanted = self.resolve(topics, subscriptions)
        self.revision = topics.revision
        self.seen = topics.named(wanted)

    def resolve(self, topics: Topics, subscriptions: Iterable[Subscription]) -> frozenset[str]:
        """Which of `topics` are subscribed to; `seen` stays as it was, for comparison."""
        if topics.revision != self._resolved_at:
            self._resolved_at = topics.revision
            self._resolved.clear()
        different = {(each.names, each.regex) for each in subscriptions}
        for subscription in different - self._resolved.keys():
            self._resolved[subscription] = _resolve(*subscription, topics, self._sees)
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


def _resolve(
    names: frozenset[str], regex: str | None, topics: Topics, sees: Sight | None
) -> frozenset[str]:
    wanted = frozenset(topics.named(names))
    if regex:
        try:
            pattern = compile_pattern(regex)
        except HeartbeatRefused:
            return wanted  # kept by a broker with RE2, for one without
        matched = matching(pattern, topics.by_name)
        wanted |= matched if sees is None else frozenset(filter(sees, matched))
    return frozenset(wanted)


def compile_pattern(text: str) -> patterns.Pattern:
    """The pattern, ready to match whole names.

    Raises:
        HeartbeatRefused: it is not a pattern, or one that is refused.
    """
    try:
        return patterns.compile_pattern(text)
    except patterns.PatternRefused as refusal:
        raise HeartbeatRefused(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"The regular expression {text[:100]!r} cannot be used: {refusal}.",
        ) from refusal


def matching(pattern: patterns.Pattern, names: Iterable[str]) -> frozenset[str]:
    """The names that the pattern means."""
    return frozenset(name for name in names if pattern.matches(name))

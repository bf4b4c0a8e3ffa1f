"""Which topics a consumer reads: those that it names, or all that match a pattern.

A pattern is looked up again whenever metadata is due, so that new topics are read, and deleted ones
no longer. It matches whole names, without those of internal topics. With the consumer protocol
(KIP-848) the broker matches instead, internal topics too. Source: Kafka
``ConsumerMetadata``, ``SubscriptionState.matchesSubscribedPattern``; RE2 as in KIP-848.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from client.aio.background import end_tasks, start_watched
from client.checks import check_text, check_topics
from client.core.cluster import Cluster
from client.errors import ClientBroken, ClientError, InvalidUse
from protocol.patterns import Pattern, PatternRefused, compile_pattern

logger = logging.getLogger("tidelog.client.aio.topics")

Changed = Callable[[tuple[str, ...]], Awaitable[None]]


class Subscribed:
    """Names of topics, or a pattern for them.

    Attributes:
        topics: the names.
        regex: the pattern's text.
        pattern: the pattern to match here; None where the broker does.
    """

    def __init__(
        self, topics: tuple[str, ...], pattern: str | None, *, broker_matches: bool = False
    ) -> None:
        """Check what the user gave.

        Raises:
            InvalidType: a name or the pattern is not a str.
            InvalidUse: a name is not usable, the pattern is no RE2 expression, or both are given.
        """
        check_topics(topics, "Consumer")
        self.topics = topics
        self.regex = pattern
        self.pattern: Pattern | None = None
        if pattern is None:
            return
        check_text("pattern", pattern)
        if topics:
            raise InvalidUse(
                f"pattern={pattern!r} and topics {', '.join(topics)}: give one of the two, or add "
                "the names to the pattern with |"
            )
        try:
            compiled = compile_pattern(pattern)
        except PatternRefused as error:
            raise InvalidUse(
                f"pattern={pattern!r} is refused: {error}; give a regular expression of RE2, such "
                "as 'flights-.*'"
            ) from None
        if not broker_matches:
            self.pattern = compiled

    @property
    def is_empty(self) -> bool:
        """Whether nothing is given to read."""
        return not self.topics and self.regex is None

    async def names(self, cluster: Cluster) -> tuple[str, ...]:
        """The topics to read now, by name; those of a pattern from a fresh request.

        Raises:
            BrokerUnreachable: no broker answers.
        """
        if self.pattern is None:
            return self.topics
        found = await cluster.topics()
        matches = self.pattern.matches
        return tuple(
            sorted(name for name, info in found.items() if not info.is_internal and matches(name))
        )


class TopicWatch:
    """Looks for topics that match, at intervals, and reports a change."""

    def __init__(self, cluster: Cluster, on_changed: Changed) -> None:
        """`on_changed` gets all names that match now; it may raise ClientError."""
        self._cluster = cluster
        self._on_changed = on_changed
        self._task: asyncio.Task[None] | None = None

    def start(
        self,
        subscribed: Subscribed,
        known: tuple[str, ...],
        on_defect: Callable[[ClientBroken], None],
    ) -> None:
        """Begin, if there is a pattern; `known` are the names that match already."""
        if subscribed.pattern is not None:
            watching = self._run(subscribed, known)
            self._task = start_watched(watching, "consumer.topics", on_defect)

    async def close(self) -> None:
        """End; another start may follow."""
        await end_tasks(self._task)
        self._task = None

    async def _run(self, subscribed: Subscribed, known: tuple[str, ...]) -> None:
        while True:
            await asyncio.sleep(self._cluster.options.metadata_max_age_ms / 1000)
            try:
                names = await subscribed.names(self._cluster)
                if names != known:
                    logger.info("the pattern matches %d topics, %d before", len(names), len(known))
                    await self._on_changed(names)
                    known = names
            except ClientError as error:
                # The next round asks again; what is read meanwhile reports lasting faults.
                logger.info("looking for topics that match failed: %s", error)

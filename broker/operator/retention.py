"""The forecast of a topic's retention, as JSON on the operators' port.

    GET /retention?topic=flights                      every partition
    GET /retention?topic=flights&partition=0&retention.ms=3600000

Other parameters with the name of a topic setting replace that setting for the answer only. `at` is
the time that counts as the present, in ms.

    {"topic": "flights", "now_ms": 1767225600000, "check_interval_ms": 300000,
     "settings": {"retention.ms": 604800000, "retention.bytes": -1, "cleanup.policy": "delete",
                  "retention.clamp.future": false},
     "unanswered": [], "partitions": [{"partition": 0, "bytes_per_day": 5184000, "segments": [
        {"base_offset": 0, "next_offset": 9000, "size_bytes": 1048301,
         "min_timestamp": 1766620700000, "max_timestamp": 1766621100000, "active": false,
         "goes_at_ms": 1767225900001, "reason": "older than retention.ms",
         "kept_by": "RETENTION", "why": "its records are younger than retention.ms",
         "held_by": null, "future": null}, ...]}],
     "disk": {"free_bytes": 81604378624, "bytes_per_day": 20736000, "full_at_ms": null,
              "partitions_without_rate": 2}}

Retention deletes a segment when it next runs at or after `goes_at_ms`; null means never by these
settings. `kept_by` is null for a segment that may go now. `held_by` is the older segment that keeps
it (OLDER), `future` the timestamp ahead of the clock (FUTURE), with the last offset of the batch
that has it. `bytes_per_day` is what a partition gained in the last week, null while it has too few
segments to say. The disk counts all topics of
the broker at their rates, up to `log.reserved.bytes`, beyond which it takes no records. A worker
that `unanswered` names (as in /segments) is not in it either.

Read next: `storage.log.forecast` (the model), `cli.time.retention` (its table).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from broker.operator import queries
from broker.operator.queries import Asked, Document, TopicQuery
from config import ConfigErrors, TopicConfig, topic_config
from storage.log.forecast import (
    Growth,
    Keeper,
    SegmentFate,
    append_rate,
    disk_full_at,
    forecast,
    growth,
)
from storage.log.retention import RetentionRules, SegmentAge, ages_of, rules_of
from storage.segment.facts import UNKNOWN_MINIMUM

if TYPE_CHECKING:
    from broker.space import SpaceGuard
    from broker.threads import Pool
    from broker.topics.registry import TopicRegistry
    from storage.log.log import Log

_MS_PER_DAY = 86_400_000

_PARAMETERS = ("topic", "partition", "at")


class RetentionForecast(TopicQuery):
    """Answers to /retention. Loop thread only."""

    parameters = None
    is_of_disk = True

    def __init__(
        self,
        topics: "TopicRegistry",
        space: "SpaceGuard",
        threads: "Pool",
        now_ms: Callable[[], int],
    ) -> None:
        """Forecast the logs of `topics` from `now_ms`, the time by which retention deletes."""
        self._threads = threads
        self._topics = topics
        self._interval_ms = topics.broker_config.log_retention_check_interval_ms
        self._space = space
        self._now_ms = now_ms

    async def part(self, asked: Asked) -> Document:
        """As in `TopicQuery`."""
        topic = asked["topic"]
        partition = queries.number(asked, "partition", queries.PARTITION_MAX)
        now_ms = queries.number(asked, "at", queries.TIME_MS_MAX)
        if now_ms is None:
            now_ms = self._now_ms()
        wanted = set(self._topics.kept_logs(topic, partition))
        found_topic = self._topics.find(topic)
        assert found_topic is not None, topic
        settings = {name: asked[name] for name in asked if name not in _PARAMETERS}
        overrides = {**found_topic.overrides, **settings}
        try:
            config = topic_config(overrides, self._topics.broker_config)
        except ConfigErrors as error:
            raise queries.BadQuery(str(error)) from None
        partitions: list[Document] = []
        grows: list[Growth] = []
        unknown = 0
        for log in list(self._topics.logs()):
            facts = RetentionFacts.of(log, config if log.topic == topic else log.config)
            # In a thread: a log of 10,000 segments takes tens of milliseconds.
            found, grown = await self._threads.run(partial(_forecast, facts, now_ms))
            if log in wanted:
                partitions.append(found)
            unknown += found["bytes_per_day"] is None
            grows.append(grown)
        return {
            "now_ms": now_ms,
            "settings": _settings(config),
            "partitions": partitions,
            "free_bytes": self._space.left_bytes(),
            "growth": grows,
            "partitions_without_rate": unknown,
        }

    def whole(
        self, asked: Asked, parts: Sequence[Document], unanswered: Sequence[Document]
    ) -> Document:
        """As in `TopicQuery`."""
        now_ms, free_bytes = parts[0]["now_ms"], min(part["free_bytes"] for part in parts)
        grows = [Growth(*one) for part in parts for one in part["growth"]]
        return {
            "topic": asked["topic"],
            "now_ms": now_ms,
            "check_interval_ms": self._interval_ms,
            "settings": parts[0]["settings"],
            "unanswered": unanswered,
            "partitions": queries.by_partition(parts),
            "disk": {
                "free_bytes": free_bytes,
                "bytes_per_day": round(sum(one.bytes_per_ms for one in grows) * _MS_PER_DAY),
                "full_at_ms": disk_full_at(grows, free_bytes=free_bytes, now_ms=now_ms),
                "partitions_without_rate": sum(part["partitions_without_rate"] for part in parts),
            },
        }


class RetentionFacts(NamedTuple):
    """What is known of a log and of its segments, oldest first, taken in the loop thread."""

    partition: int
    ages: list[SegmentAge]
    rules: RetentionRules
    minima: list[int | None]
    maxima: list[int]
    log_start_offset: int
    high_watermark: int
    segment_bytes: int
    newest_at: list[int]
    local_rules: RetentionRules | None = None
    local_from: int = 0

    @property
    def of_disk(self) -> "RetentionFacts":
        """The facts about what is on this disk: of a tiered log the local part and its limits.

        What is not in the object store yet counts as if it were: uploads keep pace.
        """
        if self.local_rules is None:
            return self
        first = self.local_from
        return self._replace(
            ages=self.ages[first:],
            minima=self.minima[first:],
            rules=self.local_rules,
            log_start_offset=0,
            local_rules=None,
        )

    @classmethod
    def of(cls, log: "Log", config: TopicConfig) -> "RetentionFacts":
        """The facts about `log`, with the rules of `config`."""
        segments = list(log.segments)
        local = None
        if log.segments.remote_end is not None:
            # Loaded with the first tiered log.
            from storage.remote.local import local_rules

            local = local_rules(log, config)
        return cls(
            log.partition,
            ages_of(log),
            rules_of(log, config),
            [
                None if one.min_timestamp == UNKNOWN_MINIMUM or one.is_empty else one.min_timestamp
                for one in segments
            ],
            [one.max_timestamp for one in segments],
            log.log_start_offset,
            log.high_watermark,
            config.segment_bytes,
            [one.max_timestamp_offset for one in segments],
            local,
            sum(one.is_remote for one in segments),
        )

    def fates(self, now_ms: int) -> list[SegmentFate]:
        """The fate of each segment."""
        return forecast(
            self.ages,
            self.minima,
            self.rules,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
            now_ms=now_ms,
        )

    def describe(self, fates: Sequence[SegmentFate]) -> list[Document]:
        """When each segment goes and what keeps it, as JSON."""
        return [
            {
                "goes_at_ms": fate.goes_at_ms,
                "reason": None if fate.reason is None else fate.reason.value,
                "kept_by": None if fate.keeper is None else fate.keeper.name,
                "why": None if fate.keeper is None else fate.keeper.value,
                "held_by": fate.held_by,
                "future": {"offset": offset, "timestamp_ms": age.largest_timestamp}
                if fate.keeper is Keeper.FUTURE
                else None,
            }
            for fate, age, offset in zip(fates, self.ages, self.newest_at, strict=True)
        ]


def _forecast(facts: RetentionFacts, now_ms: int) -> tuple[Document, Growth]:
    """The forecast of one log as JSON, and how it grows."""
    ages = facts.ages
    fates = facts.fates(now_ms)
    rate = append_rate(ages, now_ms)
    shown = [
        {
            "base_offset": age.base_offset,
            "next_offset": age.next_base,
            "size_bytes": age.size_bytes,
            "min_timestamp": minimum,
            "max_timestamp": maximum,
            "active": age is ages[-1],
            **fate,
        }
        for age, minimum, maximum, fate in zip(
            ages, facts.minima, facts.maxima, facts.describe(fates), strict=True
        )
    ]
    found = {
        "partition": facts.partition,
        "bytes_per_day": None if rate is None else round(rate * _MS_PER_DAY),
        "segments": shown,
    }
    here = facts.of_disk
    grown = growth(
        here.ages,
        fates if here is facts else here.fates(now_ms),
        here.rules,
        bytes_per_ms=rate or 0.0,
        segment_bytes=facts.segment_bytes,
    )
    return found, grown


def _settings(config: TopicConfig) -> Document:
    return {
        "retention.ms": config.retention_ms,
        "retention.bytes": config.retention_bytes,
        "cleanup.policy": ",".join(sorted(config.cleanup_policy)),
        "retention.clamp.future": config.retention_clamp_future,
    }

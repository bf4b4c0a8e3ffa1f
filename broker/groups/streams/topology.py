"""What the topics of a Kafka Streams application must be like: names and numbers of partitions.

Pure: a topology and the existing topics in, a `Configured` out. In order:

1. Every source topic exists, else nothing is decided.
2. A repartition topic without a number gets the largest number of what is written into it, over as
   many subtopologies as that takes.
3. Topics of a copartition group have one number. Repartition topics without a number of their own
   adopt it; the others must have it.
4. A subtopology has as many tasks as its largest source has partitions, and so many partitions have
   its changelogs.
5. An internal topic that exists has the number decided; one that does not is to be created.

Source: KIP-1071; Kafka's `InternalTopicManager`, `RepartitionTopics`, `ChangelogTopics`,
`CopartitionedTopicsEnforcer`.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from broker.groups.consumer.values import HeartbeatRefused, TopicImage, Topics
from broker.groups.streams.assignor import TaskGroup
from broker.groups.streams.values import InternalTopicWish, Status, StatusCode
from protocol.error_codes import ErrorCode
from protocol.streams import Subtopology, TopicInfo, Topology
from values.dataclasses import dataclass

_SHOWN: Final = 3


class ConfiguredSubtopology(NamedTuple):
    """A subtopology whose internal topics have numbers of partitions."""

    task_count: int
    source_topics: list[str]
    repartition_sinks: list[str]
    repartition_sources: list[TopicInfo]
    changelogs: list[TopicInfo]


@dataclass(frozen=True, slots=True, kw_only=True)
class Configured:
    """What was decided; no subtopologies when something is wrong with the topics that exist."""

    subtopologies: Mapping[str, ConfiguredSubtopology] | None = None
    missing: tuple[InternalTopicWish, ...] = ()
    problem: Status | None = None

    @property
    def is_ready(self) -> bool:
        """Whether all topics exist and are as they should be."""
        return self.problem is None

    def task_groups(self) -> dict[str, TaskGroup]:
        """What there is to assign; nothing unless ready."""
        if self.subtopologies is None or not self.is_ready:
            return {}
        return {
            name: TaskGroup(each.task_count, bool(each.changelogs))
            for name, each in self.subtopologies.items()
        }


def invalid(text: str) -> HeartbeatRefused:
    """The refusal of a topology that no topics could make valid."""
    return HeartbeatRefused(ErrorCode.STREAMS_INVALID_TOPOLOGY, text)


class _Problem(Exception):
    def __init__(self, code: StatusCode, text: str) -> None:
        self.status = Status(code, text)
        super().__init__(text)


def required_topics(topology: Topology) -> set[str]:
    """The topics that the application reads or stores its state in."""
    return {
        name
        for sub in topology.subtopologies
        for name in (*_sources(sub), *(info.name for info in sub.state_changelog_topics))
    }


def source_subtopologies(topology: Topology) -> dict[str, str]:
    """Each source topic, with the subtopology that reads it."""
    return {name: sub.subtopology_id for sub in topology.subtopologies for name in _sources(sub)}


def is_same(one: Topology, other: Topology) -> bool:
    """Whether both are of one epoch and have equal subtopologies, in any order."""
    return one.epoch == other.epoch and _by_id(one) == _by_id(other)


def metadata_hash(topology: Topology, topics: Topics) -> int:
    """A number that changes with the topics of the topology; 0 when none exists."""
    found = topics.named(required_topics(topology))
    if not found:
        return 0
    text = repr(sorted(found.items())).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), signed=True)


def configure(topology: Topology, topics: Topics) -> Configured:
    """Decide the numbers of partitions and find what is missing.

    Raises:
        HeartbeatRefused: the topology is invalid, whatever topics exist.
    """
    if len(_by_id(topology)) < len(topology.subtopologies):
        raise invalid("Two subtopologies have the same id.")
    existing = topics.named(required_topics(topology))
    try:
        _require_sources(topology, existing)
        counts = {name: image.partitions for name, image in existing.items()}
        decided = _Decision(topology, counts).run()
        subtopologies = {
            sub.subtopology_id: _configured(sub, counts, decided)
            for sub in sorted(topology.subtopologies, key=lambda sub: sub.subtopology_id)
        }
        missing = _missing(subtopologies.values(), counts)
    except _Problem as problem:
        return Configured(problem=problem.status)
    if not missing:
        return Configured(subtopologies=subtopologies)
    names = _summary(wish.name for wish in missing)
    problem_text = f"Internal topics are missing: {names}"
    return Configured(
        subtopologies=subtopologies,
        missing=missing,
        problem=Status(StatusCode.MISSING_INTERNAL_TOPICS, problem_text),
    )


def _by_id(topology: Topology) -> dict[str, Subtopology]:
    return {sub.subtopology_id: sub for sub in topology.subtopologies}


def _sources(sub: Subtopology) -> list[str]:
    return [*sub.source_topics, *(info.name for info in sub.repartition_source_topics)]


def _require_sources(topology: Topology, existing: Mapping[str, TopicImage]) -> None:
    missing = {
        name for sub in topology.subtopologies for name in sub.source_topics if name not in existing
    }
    if missing:
        text = f"Source topics {_summary(sorted(missing))} are missing."
        raise _Problem(StatusCode.MISSING_SOURCE_TOPICS, text)


def _summary(names: Iterable[str]) -> str:
    listed = list(names)
    more = len(listed) - _SHOWN
    return ", ".join(listed[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


class _Decision:
    """The numbers of partitions of internal topics, from those of the topics that exist."""

    def __init__(self, topology: Topology, existing: Mapping[str, int]) -> None:
        self._subs = topology.subtopologies
        self._existing = existing
        self._decided: dict[str, int] = {}

    def run(self) -> dict[str, int]:
        """Decide in the order of the module's list."""
        infos = [info for sub in self._subs for info in sub.repartition_source_topics]
        fixed = {info.name for info in infos if info.partitions}
        repartition = {info.name for info in infos}
        self._decide_repartition(infos)
        for sub in self._subs:
            for group in self._copartitioned(sub):
                self._enforce(group, repartition, fixed)
        for sub in self._subs:
            sources = [self._count(name) for name in _sources(sub)]
            if not sources:
                raise invalid(f"No source topics found for subtopology {sub.subtopology_id}.")
            for info in sub.state_changelog_topics:
                self._decided[info.name] = max(sources)
        return self._decided

    def _known(self, name: str) -> int | None:
        return self._existing.get(name, self._decided.get(name))

    def _count(self, name: str) -> int:
        count = self._known(name)
        if count is None:
            raise invalid(f"Nothing decides the number of partitions of topic {name}.")
        return count

    def _decide_repartition(self, infos: Iterable[TopicInfo]) -> None:
        """The numbers that the topology gives, then those that follow from what is written."""
        counts = {info.name: info.partitions for info in infos if info.partitions}
        open_sinks = [
            (name, sub)
            for sub in self._subs
            for name in sub.repartition_sink_topics
            if name not in counts
        ]
        while open_sinks:
            left = []
            for name, sub in open_sinks:
                inputs = [counts.get(info.name) for info in sub.repartition_source_topics]
                inputs += [self._existing.get(source) for source in sub.source_topics]
                known = [count for count in inputs if count is not None]
                if name in counts:
                    continue
                if known:
                    counts[name] = max(known)
                else:
                    left.append((name, sub))
            if len(left) == len(open_sinks):
                raise invalid(
                    "The number of partitions of a repartition topic cannot be computed: the "
                    "topology may have a loop."
                )
            open_sinks = left
        if not all(info.name in counts for info in infos):
            raise invalid("A repartition topic is read by a subtopology and written by none.")
        self._decided.update(counts)

    def _copartitioned(self, sub: Subtopology) -> Iterable[set[str]]:
        try:
            for group in sub.copartition_groups:
                yield {
                    *(sub.source_topics[_index(place)] for place in group.source_topics),
                    *(
                        sub.repartition_source_topics[_index(place)].name
                        for place in group.repartition_source_topics
                    ),
                }
        except IndexError as error:
            raise invalid(
                f"A copartition group of subtopology {sub.subtopology_id} names a topic by a place "
                "that its lists do not have."
            ) from error

    def _enforce(self, group: set[str], repartition: set[str], fixed: set[str]) -> None:
        """Give the topics of a copartition group one number, where it is not given."""
        counts = {name: self._count(name) for name in sorted(group)}
        inner = group & repartition
        # Kafka compares all fixed topics of the topology when the group has only internal ones.
        decisive = group - inner or fixed or inner
        wanted = {self._count(name) for name in decisive}
        is_one = len(wanted) < 2 or decisive is inner
        if not is_one:
            text = f"Following topics do not have the same number of partitions: {counts}"
            raise _Problem(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, text)
        for name in inner:
            count = max(wanted)
            self._decided[name] = count
            if name in fixed and counts[name] != count:
                raise _Problem(
                    StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                    f"Repartition topic {name} has {counts[name]} partitions, and the topics that "
                    f"it is joined with have {count}.",
                )


def _index(place: int) -> int:
    if place < 0:
        raise IndexError(place)
    return place


def _configured(
    sub: Subtopology, existing: Mapping[str, int], decided: Mapping[str, int]
) -> ConfiguredSubtopology:
    def filled(infos: Iterable[TopicInfo]) -> list[TopicInfo]:
        return [
            TopicInfo(
                name=info.name,
                partitions=info.partitions or decided[info.name],
                replication_factor=info.replication_factor,
                topic_configs=info.topic_configs,
            )
            for info in sorted(infos, key=lambda info: info.name)
        ]

    counts = [existing.get(name, decided.get(name, 0)) for name in _sources(sub)]
    return ConfiguredSubtopology(
        task_count=max(counts),
        source_topics=sorted(set(sub.source_topics)),
        repartition_sinks=sorted(set(sub.repartition_sink_topics)),
        repartition_sources=filled(sub.repartition_source_topics),
        changelogs=filled(sub.state_changelog_topics),
    )


def _missing(
    subtopologies: Iterable[ConfiguredSubtopology], existing: Mapping[str, int]
) -> tuple[InternalTopicWish, ...]:
    wishes: dict[str, InternalTopicWish] = {}
    for sub in subtopologies:
        for info in (*sub.repartition_sources, *sub.changelogs):
            found = existing.get(info.name)
            if found is None:
                settings = {each.key: each.value for each in info.topic_configs}
                factor = info.replication_factor or -1
                wishes[info.name] = InternalTopicWish(info.name, info.partitions, factor, settings)
            elif found != info.partitions:
                raise _Problem(
                    StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                    f"Existing topic {info.name} has different number of partitions: expected "
                    f"{info.partitions}, found {found}",
                )
    return tuple(wishes[name] for name in sorted(wishes))

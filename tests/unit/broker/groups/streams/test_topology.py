"""The topics of an application: what is decided, what is missing, what is wrong."""

from typing import Any

import pytest

from broker.groups.consumer.values import HeartbeatRefused, TopicImage, Topics
from broker.groups.streams.topology import configure, is_same, metadata_hash
from broker.groups.streams.values import InternalTopicWish, StatusCode
from protocol.error_codes import ErrorCode
from protocol.streams import (
    CopartitionGroup,
    KeyValue,
    Subtopology,
    TopicInfo,
    Topology,
)


def topics(**counts: int) -> Topics:
    """Existing topics and their numbers of partitions."""
    images = {name: TopicImage(name.encode().ljust(16), n) for name, n in counts.items()}
    return Topics(revision=1, by_name=images)


def chain(count: int = 0, **last: Any) -> Topology:
    """Source `a`, a repartition topic `r`, and a subtopology with a changelog `c` after it."""
    compact = [KeyValue(key="cleanup.policy", value="compact")]
    first = Subtopology(subtopology_id="0", source_topics=["a"], repartition_sink_topics=["r"])
    second = Subtopology(
        subtopology_id="1",
        repartition_source_topics=[TopicInfo(name="r", partitions=count)],
        state_changelog_topics=[TopicInfo(name="c", topic_configs=compact)],
        **last,
    )
    return Topology(epoch=0, subtopologies=[first, second])


def test_internal_topics_get_the_size_of_what_feeds_them() -> None:
    found = configure(chain(), topics(a=3))
    assert found.missing == (
        InternalTopicWish("c", 3, -1, {"cleanup.policy": "compact"}),
        InternalTopicWish("r", 3, -1, {}),
    )
    assert found.problem is not None
    assert found.problem.code is StatusCode.MISSING_INTERNAL_TOPICS
    assert found.task_groups() == {}


def test_a_topology_is_ready_when_all_topics_are_there() -> None:
    found = configure(chain(), topics(a=3, r=3, c=3))
    assert found.is_ready
    assert not found.missing
    assert found.task_groups() == {"0": (3, False), "1": (3, True)}


def test_a_given_size_counts() -> None:
    assert [wish.partitions for wish in configure(chain(5), topics(a=3)).missing] == [5, 5]


@pytest.mark.parametrize(
    ("existing", "code", "words"),
    [
        ({}, StatusCode.MISSING_SOURCE_TOPICS, "Source topics a are missing."),
        ({"a": 3, "r": 2}, StatusCode.INCORRECTLY_PARTITIONED_TOPICS, "r has different"),
        (
            {"a": 3, "r": 3, "c": 4},
            StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
            "expected 3, found 4",
        ),
    ],
)
def test_topics_that_exist_may_be_wrong(
    existing: dict[str, int], code: StatusCode, words: str
) -> None:
    found = configure(chain(), topics(**existing))
    assert found.problem is not None
    assert found.problem.code is code
    assert words in found.problem.detail
    assert found.subtopologies is None
    assert not found.missing


def test_a_repartition_topic_adopts_the_size_of_what_it_is_joined_with() -> None:
    joined = [CopartitionGroup(source_topics=[0], repartition_source_topics=[0])]
    wanted = chain(source_topics=["b"], copartition_groups=joined)
    sizes = {wish.name: wish.partitions for wish in configure(wanted, topics(a=3, b=4)).missing}
    assert sizes == {"r": 4, "c": 4}


def test_a_given_size_must_be_that_of_what_it_is_joined_with() -> None:
    joined = [CopartitionGroup(source_topics=[0], repartition_source_topics=[0])]
    wanted = chain(5, source_topics=["b"], copartition_groups=joined)
    problem = configure(wanted, topics(a=3, b=4)).problem
    assert problem is not None
    assert problem.code is StatusCode.INCORRECTLY_PARTITIONED_TOPICS
    assert "Repartition topic r has 5 partitions" in problem.detail


def test_joined_sources_must_have_one_size() -> None:
    sub = Subtopology(
        subtopology_id="0",
        source_topics=["a", "b"],
        copartition_groups=[CopartitionGroup(source_topics=[0, 1])],
    )
    wanted = Topology(epoch=0, subtopologies=[sub])
    assert configure(wanted, topics(a=2, b=2)).is_ready
    problem = configure(wanted, topics(a=2, b=3)).problem
    assert problem is not None
    assert problem.code is StatusCode.INCORRECTLY_PARTITIONED_TOPICS


def _loop() -> Topology:
    info = [TopicInfo(name="r")]
    sub = Subtopology(
        subtopology_id="0", repartition_sink_topics=["r"], repartition_source_topics=info
    )
    return Topology(epoch=0, subtopologies=[sub])


def _unwritten() -> Topology:
    wanted = chain()
    wanted.subtopologies[0].repartition_sink_topics = []
    return wanted


def _far(place: int) -> Topology:
    wanted = chain()
    wanted.subtopologies[0].copartition_groups = [CopartitionGroup(source_topics=[place])]
    return wanted


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (_loop(), "loop"),
        (_unwritten(), "written by none"),
        (_far(1), "a place"),
        (_far(-1), "a place"),
        (Topology(epoch=0, subtopologies=[Subtopology(subtopology_id="0")]), "No source topics"),
        (Topology(epoch=0, subtopologies=[chain().subtopologies[0]] * 2), "the same id"),
    ],
)
def test_an_invalid_topology_is_refused(wanted: Topology, words: str) -> None:
    with pytest.raises(HeartbeatRefused, match=words) as refused:
        configure(wanted, topics(a=3))
    assert refused.value.error is ErrorCode.STREAMS_INVALID_TOPOLOGY


def test_the_hash_follows_the_topics_of_the_topology() -> None:
    before = metadata_hash(chain(), topics(a=3))
    assert before == metadata_hash(chain(), topics(a=3, other=9))
    assert before != metadata_hash(chain(), topics(a=4))
    assert before != metadata_hash(chain(), topics(a=3, r=3))
    assert metadata_hash(chain(), topics(other=1)) == 0


def test_the_order_of_subtopologies_means_nothing() -> None:
    turned = chain()
    turned.subtopologies.reverse()
    assert is_same(chain(), turned)
    assert not is_same(chain(), chain(3))

"""From options to offsets against a real broker, by Spark's `KafkaOffsetReaderSuite`; no session.

That the numbers of `KafkaOffsetRangeCalculatorSuite` hold is in
`tests.unit.pipeline.plan.test_splits`.
"""

import json
from typing import Any

import pytest

from pipeline.errors import BadOptions
from pipeline.options.options import parse_source_options
from pipeline.plan.offsets import ReadPlan, plan_batch
from pipeline.plan.splits import OffsetRange
from tests.pipeline.conftest import START_MS, Broker, offsets_json

pytestmark = pytest.mark.core

NOW_MS = START_MS + 10**6


def plan(broker: Broker, topic: str, **options: str) -> ReadPlan:
    named = {name.replace("__", "."): value for name, value in options.items()}
    if topic:
        named["subscribe"] = topic
    named |= broker.options
    with broker.cluster() as cluster:
        return plan_batch(cluster, parse_source_options(named, is_stream=False), NOW_MS)


def spans(found: ReadPlan) -> list[tuple[int, int, int]]:
    return [(one.partition, one.start, one.end) for one in found.ranges]


def test_ranges_from_unresolved_offsets_that_are_specific(broker: Broker, topic: str) -> None:
    bounds = {"startingOffsets": offsets_json(topic, p0=1, p1=2, p2=0)}
    bounds["endingOffsets"] = offsets_json(topic, p0=4, p1=3, p2=1)
    assert spans(plan(broker, topic, **bounds)) == [(0, 1, 4), (1, 2, 3), (2, 0, 1)]


def test_ranges_from_unresolved_offsets_that_are_special(broker: Broker, topic: str) -> None:
    bounds = {"startingOffsets": offsets_json(topic, p0=-2, p1=-1, p2=-2)}
    bounds["endingOffsets"] = offsets_json(topic, p0=-1, p1=-1, p2=-1)
    assert spans(plan(broker, topic, **bounds)) == [(0, 0, 10), (2, 0, 1)]


def test_ranges_of_several_topic_partitions_are_cut_to_min_partitions(
    broker: Broker, topic: str
) -> None:
    other = broker.topic(1)
    broker.produce(other, 0, 40)
    found = plan(broker, f"{topic},{other}", minPartitions="8")
    assert len(found.tasks) >= 8
    assert sum(one.size for one in found.ranges) == 61
    assert {one.topic for one in found.ranges} == {topic, other}


def test_ranges_from_resolved_offsets_are_those_offsets(broker: Broker, topic: str) -> None:
    """What a streaming batch does: both ends are known, and only cut."""
    from pipeline.spark.micro_batches import MicroBatchReader
    from pipeline.spark.task import Columns

    named = {**broker.options, "subscribe": topic, "minPartitions": "4"}
    named["startingOffsets"] = offsets_json(topic, p0=0, p1=0, p2=0)
    reader = MicroBatchReader(parse_source_options(named, is_stream=True), Columns(("offset",)))
    start = {"offsets": {topic: {"0": 2, "1": 0}}}
    end = {"offsets": {topic: {"0": 10, "1": 0}}}
    tasks: Any = reader.partitions(start, end)
    reader.stop()
    assert [one for task in tasks for one in task.ranges] == [
        OffsetRange(topic, 0, at, at + 2) for at in (2, 4, 6, 8)
    ]


def test_times_that_do_not_match_the_assignment(broker: Broker, topic: str) -> None:
    """Spark's KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED, on either side."""
    times = offsets_json(topic, p0=START_MS, p1=START_MS)
    for option in ("startingOffsetsByTimestamp", "endingOffsetsByTimestamp"):
        with pytest.raises(BadOptions, match=f"option {option} says nothing about {topic}-2"):
            plan(broker, topic, **{option: times})
    one = {"assign": json.dumps({topic: [0]}), "startingOffsetsByTimestamp": times}
    with pytest.raises(BadOptions, match=f"names {topic}-1, not subscribed to"):
        plan(broker, "", **one)


@pytest.mark.parametrize(
    ("options", "end"),
    [
        ({}, 12),
        ({"kafka__isolation__level": "read_uncommitted"}, 12),
        ({"kafka__isolation__level": "read_committed"}, 5),
        ({"KAFKA__ISOLATION__LEVEL": "READ_COMMITTED"}, 5),
    ],
    ids=["default", "read_uncommitted", "read_committed", "any-case"],
)
def test_isolation_level_decides_where_latest_is(
    broker: Broker, options: dict[str, str], end: int
) -> None:
    """Five records, then seven in a transaction that is open."""
    from pipeline.net.producing import TaskProducer
    from pipeline.options.options import parse_sink_options

    name = broker.topic(1)
    broker.produce(name, 0, 5)
    with broker.cluster() as cluster:
        sink = parse_sink_options({**broker.options, "topic": name})
        producer = TaskProducer(cluster, sink, transactional_id=f"{name}-open")
        for number in range(7):
            producer.add(name, 0, START_MS + number, None, b"open")
        producer.flush()
        assert spans(plan(broker, name, **options)) == [(0, 0, end)]
        producer.abort()


def test_an_isolation_level_that_does_not_exist(broker: Broker) -> None:
    with pytest.raises(BadOptions, match="write read_uncommitted or read_committed"):
        plan(broker, "t", kafka__isolation__level="serializable")

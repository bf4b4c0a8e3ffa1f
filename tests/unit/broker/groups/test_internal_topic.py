from __future__ import annotations

import pytest

from broker.groups.internal_topic import InternalTopic
from protocol.error_codes import ErrorCode
from protocol.records.builder import build_end_txn_marker
from storage.errors import InvalidProducerEpoch, LogOffline
from tests.unit.broker.groups.fakes import World


async def _topic(world: World, partitions: int = 1) -> InternalTopic:
    topic = InternalTopic(world.services(), "__x", partitions=partitions, overrides={})
    await topic.open()
    return topic


@pytest.mark.parametrize(
    ("name", "java_hash"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", 0),
        ("é", 233),
        ("😀", 1772899),
    ],
)
async def test_is_the_partition_the_one_that_kafka_chooses(name: str, java_hash: int) -> None:
    topic = await _topic(World(), partitions=50)
    assert topic.partition_of(name) == abs(java_hash) % 50


async def test_does_an_existing_topic_keep_its_partitions() -> None:
    world = World()
    world.topics.make("__x", 3)
    assert list((await _topic(world, partitions=50)).partitions) == [0, 1, 2]


async def test_is_done_called_only_when_durable() -> None:
    world = World()
    topic = await _topic(world)
    world.group_commit.is_holding = True
    done: list[ErrorCode] = []
    topic.append(0, [(b"k", b"v")], done.append)
    assert done == []
    world.group_commit.flush()
    assert done == [ErrorCode.NONE]


async def test_is_it_done_at_once_where_the_operator_trusts_the_page_cache() -> None:
    world = World()
    topic = await _topic(world)
    world.topics.led_log("__x", 0).waits_for_disk = False
    world.group_commit.is_holding = True
    done: list[ErrorCode] = []
    topic.append(0, [(b"k", b"v")], done.append)
    assert done == [ErrorCode.NONE]


async def test_what_hears_the_caller_when_the_sync_fails() -> None:
    world = World()
    topic = await _topic(world)
    world.group_commit.is_holding = True
    done: list[ErrorCode] = []
    topic.append(0, [(b"k", b"v")], done.append)
    world.group_commit.fail()
    assert done == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (LogOffline("/d", "gone"), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (InvalidProducerEpoch("replaced"), ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
async def test_what_hears_the_caller_when_the_log_refuses(
    error: LogOffline | InvalidProducerEpoch, code: ErrorCode
) -> None:
    world = World()
    topic = await _topic(world)
    world.topics.led_log("__x", 0).error = error
    done: list[ErrorCode] = []
    topic.append(0, [(b"k", b"v")], done.append)
    assert done == [code]


async def test_is_replayed_what_was_appended() -> None:
    world = World()
    topic = await _topic(world)
    topic.append(0, [(b"a", b"1"), (b"b", None)], lambda _: None)
    topic.append(0, [(b"c", b"3")], lambda _: None, producer_id=7, producer_epoch=2)
    marker = build_end_txn_marker(commit=True, producer_id=7, producer_epoch=2, timestamp_ms=0)
    topic.append_prepared(topic.log(0), marker, lambda _: None)
    batches = list(topic.replay(0))
    assert [list(batch.records) for batch in batches] == [
        [(b"a", b"1"), (b"b", None)],
        [(b"c", b"3")],
        [],
    ]
    assert [batch.is_transactional for batch in batches] == [False, True, True]
    assert [batch.is_commit for batch in batches] == [None, None, True]
    assert batches[1].producer_id == 7


async def test_is_an_empty_log_replayed_as_nothing() -> None:
    assert list((await _topic(World())).replay(0)) == []


async def test_are_long_lists_split_into_batches() -> None:
    world = World()
    topic = await _topic(world)
    records = [(b"k%d" % i, b"v" * 100_000) for i in range(12)]
    done: list[ErrorCode] = []
    topic.append(0, records, done.append)
    log = world.topics.led_log("__x", 0)
    assert 2 <= len(log.batches) <= 4
    assert [(r.key, r.value) for r in log.records()] == records
    assert done == [ErrorCode.NONE]


async def test_may_one_record_be_larger_than_a_batch_should_be() -> None:
    world = World()
    topic = await _topic(world)
    topic.append(0, [(b"a", b"x" * 1_000_000), (b"b", b"1")], lambda _: None)
    assert len(world.topics.led_log("__x", 0).batches) == 2

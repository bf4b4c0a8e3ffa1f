from __future__ import annotations

from broker.groups.internal_topic import InternalTopic
from broker.groups.offsets.records import (
    CommittedOffset,
    decode_key,
    decode_offset_value,
    encode_group_key,
)
from broker.groups.offsets.store import OffsetCommit, OffsetStore
from protocol.error_codes import ErrorCode
from protocol.records.batch import RecordBatch
from protocol.stored.group_log import GroupMetadataKey, OffsetCommitKey
from storage.errors import LogOffline
from tests.unit.broker.groups.fakes import World

TP = ("t", 3)
AT_5 = CommittedOffset(5, 2, "note", 1000)


async def _store(world: World) -> OffsetStore:
    topic = InternalTopic(world.services(), "__o", partitions=1, overrides={})
    await topic.open()
    world.topics.make("t", 4)
    world.topics.make("u", 1)
    return OffsetStore(topic, lambda name: name in world.topics.logs)


async def test_is_every_offset_one_record() -> None:
    world = World()
    store = await _store(world)
    done: list[ErrorCode] = []
    commit = OffsetCommit(group_id="g", offsets=[(TP, AT_5), (("u", 0), AT_5)])
    assert not commit.is_transactional
    store.commit(commit, done.append)
    first, second = world.topics.led_log("__o", 0).records()
    assert first.key is not None
    assert first.value is not None
    assert decode_key(first.key) == OffsetCommitKey(group="g", topic="t", partition=3)
    assert decode_offset_value(first.value) == AT_5
    assert second.key is not None
    assert decode_key(second.key) == OffsetCommitKey(group="g", topic="u", partition=0)
    assert done == [ErrorCode.NONE]
    assert store.table.of_group("g")[TP] == AT_5


async def test_does_a_transactional_commit_carry_its_producer() -> None:
    world = World()
    store = await _store(world)
    commit = OffsetCommit(group_id="g", offsets=[(TP, AT_5)], producer_id=7, producer_epoch=3)
    assert commit.is_transactional
    store.commit(commit, lambda _: None)
    (data,) = world.topics.led_log("__o", 0).batches
    batch = RecordBatch(data)
    assert batch.is_transactional
    assert (batch.producer_id, batch.producer_epoch) == (7, 3)
    assert store.table.is_unstable("g", TP)


async def test_are_tombstones_written_for_what_is_forgotten() -> None:
    world = World()
    store = await _store(world)
    store.commit(OffsetCommit(group_id="g", offsets=[(TP, AT_5)]), lambda _: None)
    store.delete("g", [TP], lambda _: None, also=[(encode_group_key("g"), None)])
    _, offset, group = world.topics.led_log("__o", 0).records()
    assert (offset.value, group.value) == (None, None)
    assert offset.key is not None
    assert group.key is not None
    assert decode_key(offset.key) == OffsetCommitKey(group="g", topic=TP[0], partition=TP[1])
    assert decode_key(group.key) == GroupMetadataKey(group="g")
    assert not store.table.has_offsets("g")


async def test_is_nothing_written_for_nothing() -> None:
    world = World()
    store = await _store(world)
    done: list[ErrorCode] = []
    store.commit(OffsetCommit(group_id="g", offsets=[]), done.append)
    store.delete("g", [], done.append)
    assert done == [ErrorCode.NONE] * 2
    assert world.topics.led_log("__o", 0).batches == []


async def test_is_nothing_forgotten_that_could_not_be_written() -> None:
    world = World()
    store = await _store(world)
    store.commit(OffsetCommit(group_id="g", offsets=[(TP, AT_5)]), lambda _: None)
    world.topics.led_log("__o", 0).error = LogOffline("/d", "gone")
    done: list[ErrorCode] = []
    store.delete("g", [TP], done.append)
    assert done == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert store.table.of_group("g")[TP] == AT_5


async def test_is_a_commit_of_a_deleted_topic_removed_once_it_is_stored() -> None:
    world = World()
    store = await _store(world)
    done: list[ErrorCode] = []
    world.group_commit.is_holding = True
    store.commit(OffsetCommit(group_id="g", offsets=[(TP, AT_5), (("u", 0), AT_5)]), done.append)
    world.topics.delete("t")
    assert not store.table.has_offsets("g")
    world.group_commit.is_holding = False
    world.group_commit.flush()
    assert done == [ErrorCode.NONE]
    assert list(store.table.of_group("g")) == [("u", 0)]
    tombstone = world.topics.led_log("__o", 0).records()[-1]
    assert tombstone.key is not None
    assert decode_key(tombstone.key) == OffsetCommitKey(group="g", topic="t", partition=3)
    assert tombstone.value is None

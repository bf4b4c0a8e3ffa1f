"""Topic names, lookup, and the one place that decides about leadership."""

import asyncio
from collections.abc import Generator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.errors import (
    InvalidPartitions,
    InvalidTopicName,
    LeaderEpochFenced,
    LeaderEpochUnknown,
    NotLeader,
    PolicyViolation,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from broker.threads import Pool
from broker.topics.registry import TopicRegistry, check_topic_name, is_internal
from config import load
from storage.directory.data_dir import Topic
from storage.disk.steps import Steps, off_loop
from storage.errors import StorageFailed
from tests.support.clock import FrozenClock


class FakeDataDir:
    """Topics in memory."""

    def __init__(self, names: tuple[str, ...] = ()) -> None:
        self.node_id = self.worker = 1
        self.path = "/data"
        self.broker_config = load()
        self.topics: dict[str, Any] = {}
        self.metadata = SimpleNamespace(
            group_overrides=dict[str, dict[str, str]], is_topic_deleted=lambda name: False
        )
        for name in names:
            list(self.create_topic(name, 1, {}, 0))

    def create_topic(
        self, name: str, count: int, overrides: dict[str, str], now_ms: int, **_: object
    ) -> Generator[None, None, Any]:
        yield None
        logs = [
            SimpleNamespace(topic=name, partition=index, leader_epoch=3) for index in range(count)
        ]
        topic_id = name.encode().ljust(16, b"_")
        self.topics[name] = SimpleNamespace(
            name=name,
            topic_id=topic_id,
            partitions=logs,
            logs=logs,
            overrides=overrides,
            config=None,
            workers=(),
        )
        return self.topics[name]

    def delete_topic(self, name: str, now_ms: int) -> None:
        del self.topics[name]


def registry(names: tuple[str, ...] = (), **settings: str) -> TopicRegistry:
    config = load(command_line={k.replace("_", "."): v for k, v in settings.items()})
    return TopicRegistry(
        cast(Any, FakeDataDir(names)),
        config=config,
        clock=FrozenClock(),
        threads=Pool("control", 1),
    )


@pytest.mark.parametrize("name", ["a", "A-1_b.c", "x" * 249, "...", "__consumer_offsets"])
def test_good_name_is_accepted(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("", "empty"),
        (".", "directory"),
        ("..", "directory"),
        ("x" * 250, "250 characters"),
        ("a/b", "'/'"),
        ("a b", "' '"),
        ("tab\t", "'\\t'"),
        ("nul\0", "'\\x00'"),
        ("newline\n", "'\\n'"),
        ("é", "'é'"),
    ],
)
def test_bad_name_is_refused_with_what_is_wrong(name: str, says: str) -> None:
    with pytest.raises(InvalidTopicName, match="Topic name") as caught:
        check_topic_name(name)
    assert says in str(caught.value)


def test_internal_topics_are_kafkas() -> None:
    assert is_internal("__consumer_offsets")
    assert is_internal("__transaction_state")
    assert is_internal("__share_group_state")
    assert not is_internal("__other")


async def test_name_and_id_find_the_same_topic() -> None:
    topics = registry()
    made = await topics.create("t", 2)
    assert topics.find("t") is made
    assert topics.find_by_id(made.topic_id) is made
    assert topics.get_by_id(made.topic_id) is made


def test_unknown_id_is_refused() -> None:
    with pytest.raises(UnknownTopicId):
        registry().get_by_id(b"\1" * 16)


@pytest.mark.parametrize(("name", "partition"), [("t", 2), ("t", -1), ("u", 0)])
async def test_unknown_partition_is_refused(name: str, partition: int) -> None:
    topics = registry()
    await topics.create("t", 2)
    with pytest.raises(UnknownTopicOrPartition):
        topics.led_log(name, partition)


@pytest.mark.parametrize(
    ("epoch", "error"), [(-1, None), (3, None), (2, LeaderEpochFenced), (4, LeaderEpochUnknown)]
)
async def test_leader_epoch(epoch: int, error: type[Exception] | None) -> None:
    topics = registry()
    await topics.create("t", 1)
    if error is None:
        assert topics.led_log("t", 0, epoch).partition == 0
    else:
        with pytest.raises(error):
            topics.led_log("t", 0, epoch)


async def test_partition_of_another_leader_is_refused() -> None:
    topics = registry()
    topic = await topics.create("t", 1)
    topic.partitions[0], topic.workers = None, (2,)
    with pytest.raises(NotLeader, match="broker 2"):
        topics.led_log("t", 0)


async def test_a_window_has_the_epochs_of_its_topic_elsewhere() -> None:
    topics = registry(time_windows_enable="true")
    topic = await topics.create("t", 1)
    topic.partitions[0], topic.workers = None, (2,)
    epochs = {(topic.topic_id, 0): 7}
    topics.peers = cast(Any, SimpleNamespace(leader_epoch=lambda *place: epochs.get(place, 0)))
    window = topics.find("t.__t__1000__2000")
    assert window is not None
    assert topics.leader_epoch(window, 0) == topics.leader_epoch(topic, 0) == 7


async def test_a_topic_that_another_worker_deleted_is_announced_after_a_failure() -> None:
    topics = registry()
    topic = await topics.create("t", 1)
    data_dir = cast(Any, topics._data_dir)

    def fail_after_removal(kind: str, keys: list[str], now_ms: int) -> Steps[None]:
        del data_dir.topics["t"]
        yield from ()
        raise StorageFailed("delete", "t", "no space")

    data_dir.follow_change = fail_after_removal
    deleted: list[Topic] = []
    topics.when_deleted(deleted.append)
    revision = topics.revision
    with pytest.raises(StorageFailed):
        await topics.follow("topic", ["t"])
    assert deleted == [topic]
    assert topics.revision > revision
    assert topics.find_by_id(topic.topic_id) is None


async def test_existing_name_is_refused() -> None:
    topics = registry()
    await topics.create("t", 1)
    with pytest.raises(TopicAlreadyExists):
        await topics.create("t", 1)


async def test_names_that_differ_in_dots_and_underscores_only_are_refused() -> None:
    topics = registry()
    await topics.create("a.b_c", 1)
    await topics.create("ab", 1)
    for name in ("a_b_c", "a.b.c", "a_b.c"):
        with pytest.raises(InvalidTopicName, match="collides"):
            await topics.create(name, 1)
    with pytest.raises(TopicAlreadyExists):
        await topics.create("a.b_c", 1)
    await topics.delete("a.b_c")
    await topics.create("a_b.c", 1)


async def test_names_that_collided_before_are_served_until_they_are_deleted() -> None:
    """A directory of an old Kafka may have both."""
    topics = registry(names=("a.b", "a_b"))
    await topics.delete("a_b")
    with pytest.raises(InvalidTopicName):
        await topics.create("a_b", 1)
    await topics.delete("a.b")
    await topics.create("a_b", 1)


@pytest.mark.parametrize("count", [0, -1, 11])
async def test_partition_count_is_bounded(count: int) -> None:
    with pytest.raises(InvalidPartitions):
        await registry(max_partitions="10").create("t", count)


async def test_partitions_of_all_topics_count_together() -> None:
    topics = registry(max_partitions="10")
    await topics.create("t", 6)
    with pytest.raises(InvalidPartitions, match=r"max\.partitions"):
        await topics.create("u", 5)


@pytest.mark.parametrize(("total", "says"), [(2, "already has"), (1, "cannot shrink")])
async def test_growth_has_to_grow(total: int, says: str) -> None:
    topics = registry()
    await topics.create("t", 2)
    with pytest.raises(InvalidPartitions, match=says):
        await topics.add_partitions("t", total)


def noted(gone: list[str], topic: Topic) -> None:
    gone.append(topic.name)


async def test_no_topic_of_the_name_is_made_before_the_steps_of_a_deletion_have_ended() -> None:
    topics = registry()
    await topics.create("t", 1)
    events: list[str] = []

    def forget(topic: Topic) -> Steps[None]:
        for number in range(5):
            events.append(f"step {number}")
            yield from off_loop(lambda: None)

    async def make() -> None:
        await topics.create("t", 1)
        events.append("made")

    topics.when_deleted(forget)
    await asyncio.gather(topics.delete("t"), make())
    assert events == [*(f"step {number}" for number in range(5)), "made"]


async def test_deletion_is_announced_and_forgets_the_id() -> None:
    topics = registry()
    made = await topics.create("t", 1)
    gone: list[str] = []
    topics.when_deleted(lambda topic: noted(gone, topic))
    await topics.delete("t")
    assert gone == ["t"]
    assert topics.find_by_id(made.topic_id) is None


@pytest.mark.parametrize("is_gone", [True, False])
async def test_deletion_that_fails_is_announced_if_the_topic_is_gone(
    is_gone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = registry()
    made = await topics.create("a.b", 1)
    gone: list[str] = []
    topics.when_deleted(lambda topic: noted(gone, topic))

    def fail(self: FakeDataDir, name: str, now_ms: int) -> None:
        if is_gone:
            del self.topics[name]
        raise StorageFailed("delete", name, "the disk is broken")

    monkeypatch.setattr(FakeDataDir, "delete_topic", fail)
    with pytest.raises(StorageFailed):
        await topics.delete("a.b")
    assert gone == (["a.b"] if is_gone else [])
    assert topics.find_by_id(made.topic_id) is (None if is_gone else made)
    if is_gone:
        assert (await topics.create("a_b", 1)).name == "a_b"


async def test_internal_topic_is_not_deleted() -> None:
    topics = registry()
    await topics.create("__consumer_offsets", 1)
    with pytest.raises(PolicyViolation):
        await topics.delete("__consumer_offsets")

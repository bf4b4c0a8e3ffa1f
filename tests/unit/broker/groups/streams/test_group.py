"""The state machine of groups of Kafka Streams: which member gets which task, and when."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from broker.groups.consumer.values import TopicImage, Topics
from broker.groups.streams.group import StreamsGroup
from broker.groups.streams.records import KEYS, encode_change, take_record
from broker.groups.streams.values import (
    NOTHING,
    Endpoint,
    MemberState,
    StatusCode,
    StoredStreamsGroup,
    StreamsAnswer,
    StreamsGroupState,
    StreamsHeartbeat,
    StreamsLimits,
    TaskSet,
)
from protocol.error_codes import ErrorCode
from protocol.streams import Subtopology, TopicInfo, Topology

LIMITS = StreamsLimits(
    session_timeout_ms=1_000,
    heartbeat_interval_ms=100,
    assignment_interval_ms=0,
    initial_delay_ms=0,
    size_max=4,
)


def topology(*, epoch: int = 0, source: str = "a", store: str = "") -> Topology:
    """One subtopology `0` of one source, with a changelog or without."""
    changelogs = [TopicInfo(name=store)] if store else []
    sub = Subtopology(subtopology_id="0", source_topics=[source], state_changelog_topics=changelogs)
    return Topology(epoch=epoch, subtopologies=[sub])


def active(*indexes: int) -> TaskSet:
    """Active tasks of subtopology `0`."""
    return TaskSet(frozenset(("0", index) for index in indexes))


class Table:
    """One group, its clock, its topics and its log; members are driven by name."""

    def __init__(self, limits: StreamsLimits = LIMITS, **counts: int) -> None:
        self.group = StreamsGroup("g", limits)
        self.revision = 0
        self.exist(**(counts or {"a": 4}))
        self.now_ms = 0
        self.log: dict[bytes, bytes | None] = {}
        self.owned: dict[str, TaskSet] = {}
        self.epochs: dict[str, int] = {}

    def exist(self, **counts: int) -> None:
        """These topics exist from now on."""
        self.revision += 1
        images = {name: TopicImage(name.encode().ljust(16), n) for name, n in counts.items()}
        self.topics = Topics(revision=self.revision, by_name=images)

    def beat(self, name: str, **fields: Any) -> StreamsAnswer:
        """A heartbeat of a member that does what it is given."""
        base: dict[str, Any] = {
            "member_epoch": self.epochs.get(name, 0),
            "owned": self.owned.get(name, NOTHING),
        }
        request = StreamsHeartbeat(member_id=name, **(base | fields))
        answer = self.group.heartbeat(request, self.topics, self.now_ms)
        self.log.update(encode_change("g", change) for change in self.group.drain())
        if answer.error is ErrorCode.NONE:
            self.epochs[name] = answer.member_epoch
            if answer.tasks is not None:
                self.owned[name] = answer.tasks
        return answer

    def join(self, name: str, wanted: Topology | None = None, **fields: Any) -> StreamsAnswer:
        """Join, with a process of its own."""
        self.owned[name] = NOTHING
        base: dict[str, Any] = {
            "member_epoch": 0,
            "rebalance_timeout_ms": 500,
            "topology": wanted or topology(),
            "process_id": f"p-{name}",
        }
        return self.beat(name, **(base | fields))

    def wait(self, delta_ms: int) -> None:
        """Let time pass."""
        self.now_ms += delta_ms
        self.group.tick(self.topics, self.now_ms)
        self.log.update(encode_change("g", change) for change in self.group.drain())

    def restart(self) -> None:
        """A new group from what was stored."""
        stored = StoredStreamsGroup()
        for key, value in self.log.items():
            if value is not None:
                take_record(stored, KEYS.decode(key), value)
        self.group = StreamsGroup("g", self.group.limits)
        self.group.restore(stored, self.now_ms)

    def codes(self, answer: StreamsAnswer) -> list[StatusCode]:
        """The statuses of an answer."""
        assert answer.error is ErrorCode.NONE, answer.error_message
        return [status.code for status in answer.statuses]


def test_the_first_member_gets_all_tasks() -> None:
    table = Table()
    answer = table.join("m1")
    assert answer.tasks == active(0, 1, 2, 3)
    assert (answer.member_epoch, answer.heartbeat_interval_ms) == (2, 100)
    assert table.group.state is StreamsGroupState.STABLE
    assert table.beat("m1").tasks is None


def test_a_task_moves_when_it_is_given_up() -> None:
    table = Table()
    table.join("m1")
    assert table.join("m2").tasks == NOTHING
    answer = table.beat("m1")
    assert (answer.tasks, answer.member_epoch) == (active(0, 1), 2)
    assert table.group.members["m1"].current.state is MemberState.UNREVOKED
    assert table.beat("m2").tasks is None
    assert table.beat("m1", owned=active(0, 1, 2)).member_epoch == 2
    assert table.beat("m1").member_epoch == 3
    assert table.beat("m2").tasks == active(2, 3)
    assert table.group.state is StreamsGroupState.STABLE


def test_internal_topics_come_before_tasks() -> None:
    table = Table(a=3)
    wanted = topology(store="c")
    answer = table.join("m1", wanted)
    assert table.codes(answer) == [StatusCode.MISSING_INTERNAL_TOPICS]
    assert [(wish.name, wish.partitions) for wish in answer.missing] == [("c", 3)]
    assert answer.tasks == NOTHING
    assert table.group.state is StreamsGroupState.NOT_READY
    table.exist(a=3, c=3)
    answer = table.beat("m1")
    assert (table.codes(answer), answer.tasks, answer.missing) == ([], active(0, 1, 2), ())


def test_a_source_that_goes_takes_its_tasks_with_it() -> None:
    table = Table()
    table.join("m1")
    table.exist()
    answer = table.beat("m1")
    assert table.codes(answer) == [StatusCode.MISSING_SOURCE_TOPICS]
    assert answer.tasks == NOTHING
    assert table.group.state is StreamsGroupState.NOT_READY


def test_the_first_assignment_waits_for_further_members() -> None:
    table = Table(replace(LIMITS, initial_delay_ms=300))
    answer = table.join("m1")
    assert table.codes(answer) == [StatusCode.ASSIGNMENT_DELAYED]
    assert (answer.tasks, answer.member_epoch) == (NOTHING, 1)
    table.join("m2")
    assert table.group.wake_ms == 300
    table.wait(300)
    assert table.beat("m1").tasks == active(1, 3), "Kafka's table has p-m2 first"
    assert table.beat("m2").tasks == active(0, 2)


def test_assignments_keep_their_interval() -> None:
    table = Table(replace(LIMITS, assignment_interval_ms=200))
    table.join("m1")
    table.wait(100)
    answer = table.join("m2")
    assert table.codes(answer) == [StatusCode.ASSIGNMENT_DELAYED]
    assert table.beat("m1").tasks is None
    assert table.group.state is StreamsGroupState.ASSIGNING
    table.wait(100)
    assert table.codes(table.beat("m2")) == []
    assert table.beat("m1").tasks == active(0, 1)


def test_a_silent_member_is_removed() -> None:
    table = Table()
    table.join("m1")
    table.wait(500)
    table.join("m2")
    table.wait(500)
    assert set(table.group.members) == {"m2"}
    assert table.beat("m2").tasks == active(0, 1, 2, 3)
    assert table.beat("m1").error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_keeps_its_tasks_too_long_is_removed() -> None:
    table = Table()
    table.join("m1")
    table.join("m2")
    table.beat("m1")
    table.wait(499)
    table.beat("m1", owned=active(0, 1, 2, 3))
    table.wait(1)
    assert set(table.group.members) == {"m2"}


def test_copies_follow_the_setting() -> None:
    table = Table(replace(LIMITS, standby_replicas=1), a=2, c=2)
    wanted = topology(store="c")
    table.join("m1", wanted)
    table.join("m2", wanted)
    for _ in range(3):
        table.beat("m1")
        table.beat("m2")
    for name in ("m1", "m2"):
        current = table.group.members[name].current.assigned
        assert len(current.active) == len(current.standby) == 1
        assert not current.active & current.standby
    table.group.limits = replace(LIMITS, standby_replicas=0)
    for _ in range(2):
        table.beat("m1")
        table.beat("m2")
    assert not any(each.current.assigned.standby for each in table.group.members.values())


def test_the_end_of_the_application_reaches_all_until_the_group_is_empty() -> None:
    table = Table()
    table.join("m1")
    table.join("m2")
    table.beat("m2", wants_shutdown=True)
    assert StatusCode.SHUTDOWN_APPLICATION in table.codes(table.beat("m1"))
    table.beat("m2", member_epoch=-1)
    assert StatusCode.SHUTDOWN_APPLICATION in table.codes(table.beat("m1"))
    table.beat("m1", member_epoch=-1)
    assert table.group.state is StreamsGroupState.EMPTY
    assert table.codes(table.join("m1")) == []


def test_members_learn_where_the_others_answer_queries() -> None:
    table = Table(a=2)
    table.join("m1", endpoint=Endpoint("one", 1))
    table.join("m2", endpoint=Endpoint("two", 2))
    table.beat("m1")
    table.beat("m1")
    answer = table.beat("m2")
    assert answer.endpoints is not None
    found = {each.endpoint.host: each.active for each in answer.endpoints}
    assert found == {"one": [("a", [0])], "two": [("a", [1])]}
    assert table.beat("m2", endpoint_epoch=answer.endpoint_epoch).endpoints is None


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"member_epoch": 3}, ErrorCode.FENCED_MEMBER_EPOCH),
        ({"member_epoch": 1}, ErrorCode.NONE),
        ({"member_epoch": 1, "owned": None}, ErrorCode.FENCED_MEMBER_EPOCH),
        ({"member_epoch": 1, "owned": active(9)}, ErrorCode.FENCED_MEMBER_EPOCH),
        ({"owned": active(4)}, ErrorCode.INVALID_REQUEST),
        ({"owned": TaskSet(frozenset({("9", 0)}))}, ErrorCode.INVALID_REQUEST),
        ({"owned": TaskSet(frozenset(), frozenset({("0", -1)}))}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": 0, "topology": topology(source="b")}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": 0, "topology": topology(epoch=1)}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_refused_heartbeat_changes_nothing(fields: dict[str, Any], error: ErrorCode) -> None:
    table = Table(replace(LIMITS, initial_delay_ms=1))
    table.join("m1")
    table.wait(1)
    table.beat("m1")
    log = dict(table.log)
    assert table.beat("m1", **fields).error is error
    assert table.log == log


def test_an_older_topology_is_stale() -> None:
    table = Table()
    table.join("m1", topology(epoch=2))
    answer = table.join("m2", topology(epoch=1, source="b"))
    assert StatusCode.STALE_TOPOLOGY in table.codes(answer)


def test_a_full_group_takes_no_member() -> None:
    table = Table()
    for number in range(4):
        table.join(f"m{number}")
    assert table.join("m4").error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_offsets_are_committed_in_the_epoch_of_the_task() -> None:
    table = Table()
    table.join("m1")
    table.join("m2")
    for _ in range(2):
        table.beat("m1")
        table.beat("m2")
    group, mine = table.group, [("a", 0)]
    assert group.offset_error("m1", 3, mine) is ErrorCode.NONE
    assert group.offset_error("m1", 2, mine) is ErrorCode.NONE
    assert group.offset_error("m1", 1, mine) is ErrorCode.STALE_MEMBER_EPOCH
    assert group.offset_error("m1", 2, [("a", 3)]) is ErrorCode.STALE_MEMBER_EPOCH
    assert group.offset_error("m1", 2, [("b", 0)]) is ErrorCode.STALE_MEMBER_EPOCH
    assert group.offset_error("m1", 4, mine) is ErrorCode.STALE_MEMBER_EPOCH
    assert group.offset_error("m1", 2) is ErrorCode.STALE_MEMBER_EPOCH
    assert group.offset_error("m9", 3) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_is_the_same_after_a_restart() -> None:
    table = Table()
    table.join("m1")
    table.join("m2")
    table.beat("m1")
    before = (table.group.facts, table.group.targets, table.group.topology)
    table.restart()
    assert (table.group.facts, table.group.targets, table.group.topology) == before
    epoch = table.group.facts.epoch
    assert table.beat("m2").tasks is None
    table.beat("m1")
    assert table.beat("m2").tasks == active(2, 3)
    assert table.group.facts.epoch == epoch, "the topics are as they were"


def test_nothing_is_left_of_a_deleted_group() -> None:
    table = Table()
    table.join("m1")
    table.beat("m1", member_epoch=-1)
    table.log.update(encode_change("g", change) for change in table.group.erase())
    assert not any(table.log.values())


@pytest.mark.parametrize("seed", range(40))
def test_a_task_has_one_owner_over_any_history(seed: int) -> None:
    """Members that lose answers, restarts of the broker, topics that grow: at any moment."""
    dice = random.Random(seed)
    limits = replace(LIMITS, standby_replicas=dice.randint(0, 1), session_timeout_ms=10**6)
    table = Table(limits, a=3, c=3)
    wanted = topology(store="c")
    for _ in range(120):
        name = f"m{dice.randrange(4)}"
        step = dice.random()
        if name not in table.group.members:
            table.join(name, wanted)
        elif step < 0.1:
            table.beat(name, member_epoch=-1)
            table.owned[name] = NOTHING
        elif step < 0.15:
            table.restart()
        elif step < 0.2:
            lost = dict(table.owned), dict(table.epochs)
            table.beat(name)
            table.owned, table.epochs = lost
        elif step < 0.23:
            count = table.topics.by_name["a"].partitions + 1
            table.exist(a=count, c=count)
        else:
            answer = table.beat(name)
            if answer.error is ErrorCode.FENCED_MEMBER_EPOCH:
                table.join(name, wanted)
        held = [
            (task, member_id)
            for member_id in table.group.members
            for task in table.owned.get(member_id, NOTHING).active
        ]
        assert len(held) == len({task for task, _ in held}), "two members run a task"
    for _ in range(8):
        for name in list(table.group.members):
            if table.beat(name).error is ErrorCode.FENCED_MEMBER_EPOCH:
                table.join(name, wanted)
    if table.group.members:
        assert table.group.state is StreamsGroupState.STABLE
        tasks = [task for each in table.group.members for task in table.owned[each].active]
        assert sorted(tasks) == [("0", i) for i in range(table.topics.by_name["a"].partitions)]

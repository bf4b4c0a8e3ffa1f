"""The sticky assignor of Kafka Streams: shares, stickiness, copies."""

import random
from collections import Counter

import pytest

from broker.groups.streams.assignor import AssignedMember, TaskGroup, assign_tasks
from broker.groups.streams.values import NOTHING, TaskSet

HOLDERS = ("m1", "m2", "m3", "m4")


def member(process: str, *, active: str = "", standby: str = "") -> AssignedMember:
    """A member that should have had tasks of subtopology "a", given by their digits."""
    return AssignedMember(
        process,
        TaskSet(
            frozenset(("a", int(digit)) for digit in active),
            frozenset(("a", int(digit)) for digit in standby),
        ),
    )


def digits(tasks: object) -> str:
    """Tasks of subtopology "a" by their digits."""
    assert isinstance(tasks, frozenset)
    return "".join(str(index) for _, index in sorted(tasks))


def test_new_tasks_go_by_turns_to_the_least_loaded_process() -> None:
    members = {"m1": member("p1"), "m2": member("p2"), "m3": member("p2")}
    targets = assign_tasks(members, {"a": TaskGroup(6, is_stateful=False)}, standbys=0)
    assert {name: len(target.active) for name, target in targets.items()} == {
        "m1": 2,
        "m2": 2,
        "m3": 2,
    }


def test_a_member_keeps_its_tasks_up_to_its_share() -> None:
    members = {"m1": member("p1", active="0123"), "m2": member("p2")}
    targets = assign_tasks(members, {"a": TaskGroup(4, is_stateful=True)}, standbys=0)
    assert digits(targets["m1"].active) == "01"
    assert digits(targets["m2"].active) == "23"


def test_the_share_of_the_others_grows_when_one_is_full() -> None:
    members = {"m1": member("p1", active="0"), "m2": member("p2", active="1234")}
    targets = assign_tasks(members, {"a": TaskGroup(5, is_stateful=True)}, standbys=0)
    assert digits(targets["m2"].active) == "123"
    assert digits(targets["m1"].active) == "04"


def test_an_active_task_goes_to_its_copy() -> None:
    members = {"m1": member("p1"), "m2": member("p2", standby="1"), "m3": member("p3")}
    targets = assign_tasks(members, {"a": TaskGroup(3, is_stateful=True)}, standbys=0)
    assert digits(targets["m2"].active) == "1"


def test_copies_are_on_other_processes_and_only_of_stateful_tasks() -> None:
    members = {name: member(f"p{name}") for name in "123"}
    groups = {"a": TaskGroup(3, is_stateful=True), "b": TaskGroup(3, is_stateful=False)}
    targets = assign_tasks(members, groups, standbys=1)
    for target in targets.values():
        assert not target.active & target.standby
    copies = Counter(task for target in targets.values() for task in target.standby)
    assert copies == {("a", index): 1 for index in range(3)}


def test_a_copy_stays_where_it_is() -> None:
    members = {
        "m1": member("p1", active="01", standby="23"),
        "m2": member("p2", active="23", standby="01"),
    }
    targets = assign_tasks(members, {"a": TaskGroup(4, is_stateful=True)}, standbys=1)
    assert targets == {name: each.target for name, each in members.items()}


def test_too_few_processes_keep_fewer_copies() -> None:
    members = {"m1": member("p1"), "m2": member("p1")}
    targets = assign_tasks(members, {"a": TaskGroup(2, is_stateful=True)}, standbys=2)
    assert all(not target.standby for target in targets.values())


def test_tasks_go_to_equal_processes_in_the_order_of_kafka() -> None:
    members = {f"m{name}": member(name) for name in ("p0", "p1", "p2", "p3")}
    targets = assign_tasks(members, {"a": TaskGroup(8, is_stateful=False)}, standbys=0)
    assert [digits(target.active) for target in targets.values()] == ["06", "24", "35", "17"]


def test_tasks_go_to_equal_members_of_a_process_in_the_order_of_kafka() -> None:
    members = {f"m{number}": member("p") for number in range(4)}
    targets = assign_tasks(members, {"a": TaskGroup(8, is_stateful=False)}, standbys=0)
    assert [digits(target.active) for target in targets.values()] == ["06", "24", "35", "17"]


def test_of_former_holders_the_first_is_active_unless_another_has_less_in_both_ways() -> None:
    members = {
        "m1": member("p1", active="0", standby="3"),
        "m2": member("p2", standby="3"),
        "m3": member("p2", active="12"),
    }
    targets = assign_tasks(members, {"a": TaskGroup(4, is_stateful=True)}, standbys=0)
    assert digits(targets["m1"].active) == "03", "the other process has the same load"
    members["m3"] = member("p2", active="1")
    targets = assign_tasks(members, {"a": TaskGroup(4, is_stateful=True)}, standbys=0)
    assert digits(targets["m2"].active) == "3"


def test_a_holder_of_a_copy_keeps_it_when_another_becomes_active() -> None:
    members = {name: member(f"p{name}", standby="0" if name < "m3" else "") for name in HOLDERS}
    targets = assign_tasks(members, {"a": TaskGroup(1, is_stateful=True)}, standbys=1)
    assert digits(targets["m1"].active) == "0"
    assert digits(targets["m2"].standby) == "0"


@pytest.mark.parametrize("seed", range(60))
def test_tasks_are_spread_and_stay(seed: int) -> None:
    dice = random.Random(seed)
    names = [f"m{number}" for number in range(dice.randint(1, 9))]
    groups = {name: TaskGroup(dice.randint(1, 9), dice.random() < 0.5) for name in "ab"}
    members = {name: AssignedMember(f"p{name}", NOTHING) for name in names}
    targets = assign_tasks(members, groups, standbys=dice.randint(0, 2))
    counts = [len(target.active) for target in targets.values()]
    assert max(counts) - min(counts) <= 1
    left = dice.sample(names, dice.randint(1, len(names)))
    members = {name: AssignedMember(f"p{name}", targets[name]) for name in left}
    members["new"] = AssignedMember("pnew", NOTHING)
    share = sum(group.task_count for group in groups.values()) // len(members)
    for name, target in assign_tasks(members, groups, standbys=0).items():
        before = members[name].target.active
        assert len(before & target.active) >= min(len(before), share)


def test_without_tasks_members_get_nothing() -> None:
    assert assign_tasks({"m1": member("p1", active="0")}, {}, standbys=1) == {"m1": NOTHING}
    assert assign_tasks({}, {"a": TaskGroup(2, is_stateful=True)}, standbys=1) == {}


@pytest.mark.parametrize("seed", range(60))
def test_every_task_is_active_once_over_any_changes(seed: int) -> None:
    dice = random.Random(seed)
    targets: dict[str, TaskSet] = {}
    for _ in range(6):
        names = [f"m{number}" for number in range(6) if dice.random() < 0.6] or ["m0"]
        members = {
            name: AssignedMember(f"p{dice.randrange(3)}", targets.get(name, NOTHING))
            for name in names
        }
        groups = {
            name: TaskGroup(dice.randint(1, 7), dice.random() < 0.7)
            for name in dice.sample("abc", dice.randint(1, 3))
        }
        standbys = dice.randint(0, 2)
        targets = assign_tasks(members, groups, standbys)
        assert set(targets) == set(names)
        active = Counter(task for target in targets.values() for task in target.active)
        wanted = {(name, i) for name, group in groups.items() for i in range(group.task_count)}
        assert active == dict.fromkeys(wanted, 1)
        holders = Counter(
            (task, members[name].process_id)
            for name, target in targets.items()
            for task in (*target.active, *target.standby)
        )
        assert set(holders.values()) == {1}, "a process has two copies of a task"
        processes = len({each.process_id for each in members.values()})
        copies = Counter(task for target in targets.values() for task in target.standby)
        stateful = {task for task in wanted if groups[task[0]].is_stateful}
        assert copies == {task: n for task in stateful if (n := min(standbys, processes - 1))}

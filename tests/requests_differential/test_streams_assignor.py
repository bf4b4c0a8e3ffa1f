"""Targets of random groups of Kafka Streams: Kafka's own assignor and ours give the same tasks.

`STREAMS_TARGETS=100000` sets the number of targets.
"""

import os
import random
import string
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from broker.groups.streams.assignor import AssignedMember, TaskGroup, assign_tasks
from broker.groups.streams.values import NOTHING, Task, TaskSet
from tests.compat.programs import HEAP
from tests.support import kafka_peer, toolchains

SOURCE: Final = Path(__file__).with_name("StreamsTargets.java")
TARGETS: Final = int(os.environ.get("STREAMS_TARGETS", "3000"))
ROUNDS: Final = 6
"""How often the members of a group change; each target is close to the one before."""


class Case(NamedTuple):
    """What an assignor is given, and what ours makes of it."""

    members: dict[str, AssignedMember]
    groups: dict[str, TaskGroup]
    standbys: int
    targets: dict[str, TaskSet]

    def text(self) -> str:
        """The case as `StreamsTargets.java` reads it."""
        parts = [
            f"{name}:{group.task_count}:{group.is_stateful:d}"
            for name, group in self.groups.items()
        ]
        members = [
            "\t".join((name, each.process_id, *map(listed, each.target)))
            for name, each in sorted(self.members.items())
        ]
        return "\n".join((str(self.standbys), ",".join(parts), *members, "", ""))

    def has_two_holders(self) -> bool:
        """Whether two members had a copy of the same task: there we follow later releases."""
        copies = Counter(task for each in self.members.values() for task in each.target.standby)
        return max(copies.values(), default=0) > 1


def listed(tasks: frozenset[Task]) -> str:
    """Tasks as one field."""
    return ",".join(f"{name}:{index}" for name, index in sorted(tasks))


def read(field: str) -> frozenset[Task]:
    """Tasks from one field."""
    parts = (task.rpartition(":") for task in field.split(",") if task)
    return frozenset((name, int(index)) for name, _, index in parts)


def names(dice: random.Random, count: int) -> list[str]:
    """Different names: numbered ones, or of random letters as clients make them."""
    if dice.random() < 0.3:
        return [f"member-{number}" for number in range(count)]
    letters = string.ascii_letters + string.digits + "-_é\U0001f600"
    return ["".join(dice.choices(letters, k=22)) for _ in range(count)]


def history(dice: random.Random) -> Iterator[Case]:
    """Targets of one group whose members come and go."""
    most = dice.choice((3, 6, 40))
    everyone, processes = names(dice, most), names(dice, dice.randint(1, most))
    home = {name: dice.choice(processes) for name in everyone}
    groups = {
        name: TaskGroup(dice.randint(1, 9), dice.random() < 0.7)
        for name in dice.sample(("0", "1", "2", "10"), dice.randint(1, 4))
    }
    standbys = dice.randint(0, 2)
    targets: dict[str, TaskSet] = {}
    for _ in range(ROUNDS):
        present = [name for name in everyone if dice.random() < 0.7] or everyone[:1]
        members = {name: AssignedMember(home[name], targets.get(name, NOTHING)) for name in present}
        targets = assign_tasks(members, groups, standbys)
        yield Case(members, groups, standbys, targets)


@pytest.mark.jvm
@pytest.mark.core
@pytest.mark.timeout(300)
def test_both_assignors_give_the_same_tasks() -> None:
    dice = random.Random(1)
    cases = [case for _ in range(-(-TARGETS // ROUNDS)) for case in history(dice)]
    jars = kafka_peer.jars()
    classes = toolchains.java_classes([SOURCE], jars)
    command = [toolchains.java(), HEAP, "-cp", f"{classes}:{jars}/*", "StreamsTargets"]
    done = subprocess.run(
        command,
        input="".join(case.text() for case in cases),
        capture_output=True,
        encoding="utf-8",
        timeout=200,
        check=True,
    )
    answers = done.stdout.removesuffix("\n\n").split("\n\n")
    assert len(answers) == len(cases)
    compared = 0
    for case, answer in zip(cases, answers, strict=True):
        theirs = {
            name: TaskSet(read(active), read(standby))
            for name, active, standby in (line.split("\t") for line in answer.splitlines())
        }
        ours = case.targets
        if case.has_two_holders():
            ours, theirs = (
                {name: target._replace(standby=frozenset()) for name, target in each.items()}
                for each in (ours, theirs)
            )
        else:
            compared += case.standbys > 0
        assert ours == theirs, case.text()
    assert compared > len(cases) // 3

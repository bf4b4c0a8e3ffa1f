"""Sends the matrix to one Apache Kafka and to Tidelog, and lists what differs.

`python -m tests.rights.run [API...]` prints a report, one line for what differs alike under several
conditions; the tests call `compare`. `--record` keeps Kafka's answers to the small matrix and in
the flows instead.
"""

import asyncio
import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from protocol.acl import Operation, PatternType, Permission, ResourceType
from protocol.api_keys import ApiKey
from protocol.error_codes import ErrorCode
from tests.requests_differential.conversation import Connection, Conversation, Seen
from tests.requests_differential.intended import unexplained
from tests.requests_differential.normal import OUTCOME, Answer, normal
from tests.requests_differential.run import Difference, differences
from tests.requests_differential.scene import Need, Scene
from tests.rights.brokers import LoggedIn, Rule, Stage, add_rules, kafka, tidelog
from tests.rights.conditions import conditions
from tests.rights.flows import RECORDED_FLOWS, of_kafka
from tests.rights.matrix import Cell, cells, small
from tests.support.kafka_peer import NEWEST

_CELLS_OF_PART: Final = 6_000

_RULE: Final = Rule(ResourceType.TOPIC, "", PatternType.LITERAL, Operation.READ, Permission.ALLOW)
"""What is deleted where a rule is needed."""

RECORDED: Final = Path(__file__).parent / "recorded.json"
"""The cells of the small matrix by what Apache Kafka answers."""


class Unlike(NamedTuple):
    """One difference under one condition."""

    condition: str
    difference: Difference


class _Matrix(Conversation):
    """All cells to one broker: scenes are made by its super user, requests sent by the others."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage.plain, stage.log_dir)
        self._stage = stage
        self._idle: dict[str, list[LoggedIn]] = defaultdict(list)

    async def answers(self, chosen: Sequence[Cell]) -> list[Seen]:
        """What comes back, in the order of the cells."""
        setup = Connection(self._stage.plain)
        creations = [rule.for_user(user.user) for user in conditions() for rule in user.rules]
        await add_rules(setup, creations)
        await setup.close()
        seen = await self.run(chosen)  # type: ignore[arg-type] # a cell is a case with a user
        for connections in self._idle.values():
            for connection in connections:
                await connection.close()
        return seen

    async def _prepare(self, connection: Connection, scene: Scene, needs: Need) -> None:
        await super()._prepare(connection, scene, needs)
        if Need.RULE in needs:
            await add_rules(connection, [_RULE._replace(name=scene.topic).for_user("a")])

    async def _send(self, connection: Connection, case: Any, scene: Scene) -> Answer:
        user = case.condition.user
        idle = self._idle[user]
        own = idle.pop() if idle else LoggedIn(self._stage.secured, user)
        message = case.request(scene)
        answer = await own.ask(case.api, case.version, message)
        idle.append(own)
        asked = replace(scene, port=int(self._stage.secured.rpartition(":")[2]))
        return normal(answer, case.version, asked, message)


def from_tidelog(chosen: Sequence[Cell], directory: Path) -> list[Seen]:
    """What a Tidelog on a new directory answers."""
    with tidelog(directory, _users()) as stage:
        return asyncio.run(_Matrix(stage).answers(chosen))


def from_kafka(chosen: Sequence[Cell], directory: Path) -> list[Seen]:
    """What an Apache Kafka on a new directory answers."""
    with kafka(directory, _users()) as stage:
        return asyncio.run(_Matrix(stage).answers(chosen))


def _users() -> list[str]:
    return [condition.user for condition in conditions()]


class Compared(NamedTuple):
    """What came of asking both brokers."""

    found: list[Unlike]
    """Every difference that the catalogue does not have for a client that may do everything."""
    idle: list[Cell]
    """The cells that show nothing of rights: every user is answered the same to their request."""


def compare(chosen: Sequence[Cell], directory: Path) -> Compared:
    """Ask both brokers, some thousand cells at a time."""
    found: list[Unlike] = []
    idle: list[Cell] = []
    for number, part in enumerate(parts(chosen)):
        ours = from_tidelog(part, directory / f"{number}")
        theirs = from_kafka(part, directory / f"{number}")
        found += [
            Unlike(cell.condition.name, difference)
            for cell, mine, other in zip(part, ours, theirs, strict=True)
            for difference in unexplained(differences([cell.case], [mine], [other]))
        ]
        idle += _idle(part, theirs)
    return Compared(found, idle)


def parts(chosen: Sequence[Cell]) -> list[list[Cell]]:
    """The cells, those of one API together, in lists that are short enough for one broker."""
    by_api: dict[ApiKey, list[Cell]] = defaultdict(list)
    for cell in chosen:
        by_api[cell.api].append(cell)
    made: list[list[Cell]] = [[]]
    for of_api in by_api.values():
        if made[-1] and len(made[-1]) + len(of_api) > _CELLS_OF_PART:
            made.append([])
        made[-1] += of_api
    return made


def _idle(chosen: Sequence[Cell], seen: Sequence[Seen]) -> list[Cell]:
    answers: dict[tuple[Any, ...], list[Answer]] = defaultdict(list)
    for cell, one in zip(chosen, seen, strict=True):
        answers[cell.request_name].append(one.answer)
    return [
        cell
        for cell in chosen
        if len(of_all := answers[cell.request_name]) > 1
        and all(answer == of_all[0] for answer in of_all)
    ]


def codes(cell: Cell, seen: Seen) -> tuple[str, str]:
    """A cell's name, and in short what was answered: the error codes in their places."""
    rows = sorted(
        f"{at}={value}"
        for at, value in seen.answer.items()
        if at == OUTCOME or (at.endswith("error_code") and value != ErrorCode.NONE.name)
    )
    return f"{cell.api.name} {cell.version} {cell.sent} | {cell.condition.name}", " ".join(rows)


def record(directory: Path) -> None:
    """Keep what an Apache Kafka answers to the small matrix and in the flows."""
    chosen = small()
    seen = from_kafka(chosen, directory / "matrix")
    by_answer: dict[str, list[str]] = defaultdict(list)
    for name, answer in map(codes, chosen, seen):
        by_answer[answer].append(name)
    RECORDED.write_text(json.dumps(by_answer, indent=0, sort_keys=True) + "\n")
    RECORDED_FLOWS.write_text(json.dumps(of_kafka(directory / "flows"), indent=1) + "\n")


def report(found: Iterable[Unlike]) -> list[str]:
    """A line for each difference that is the same under several conditions."""
    grouped = defaultdict(list)
    for condition, row in found:
        grouped[row].append(condition)
    return [
        f"{row.api.name} {row.version} | {row.sent} | {row.at} | ours {row.ours:.200} | "
        f"kafka {row.theirs:.200} | {len(names)}: {'; '.join(names):.300}"
        for row, names in grouped.items()
    ]


def main() -> int:
    """Prints the differences that are not said to be intended; the exit status says if any."""
    from tests.rights.intended import unintended

    wanted = sys.argv[1:]
    if wanted == ["--record"]:
        with tempfile.TemporaryDirectory() as directory:
            record(Path(directory))
        return 0
    chosen = [cell for cell in cells() if not wanted or cell.api.name in wanted]
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        found, idle = compare(chosen, Path(directory))
    left = unintended(found)
    print(*report(left), sep="\n")
    requests = {cell.request_name for cell in idle}
    print(
        f"{len(chosen)} cells asked of Apache Kafka {NEWEST} and of Tidelog: {len(found)} "
        f"differences, {len(left)} unexplained; {len(idle)} cells are idle, of {len(requests)} "
        f"requests that every user is answered alike; {time.monotonic() - started:.0f} s"
    )
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())

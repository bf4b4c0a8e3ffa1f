"""Tidelog beside Apache Kafka on this machine; `benchmarks.whole` runs it with the rest.

All brokers run side by side, idle but for the one that is driven; every pass goes through all
cells, and within a cell from broker to broker, so that a slow minute of the machine hits all of
them; their order is drawn again each time (`--seed`), so that none always follows the same other.
The first pass warms up (a JVM gains up to 1.9 x by it) and is thrown away; medians of the others
count. A broker's CPU seconds are those of its process during the load, without what prepares it.
See benchmarks/README.md for how to read the table.
"""

import argparse
import contextlib
import json
import math
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from subprocess import TimeoutExpired

from confluent_kafka import KafkaException
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from benchmarks import pictures
from benchmarks.harness import brokers, cells, loads, machine, report, secured

RESULTS = Path(__file__).parent / "results"
DEFAULT_ROUNDS = 3

FAILURES = (loads.LoadFailed, TimeoutExpired, OSError, KafkaException)
"""What one load may end with; the others are run all the same."""

console = Console(highlight=False, stderr=True)


@dataclass(slots=True, kw_only=True)
class Measured:
    """What one broker did in one cell, round by round; `problem` says why there is nothing."""

    values: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be run."""

    contenders: tuple[brokers.Contender, ...]
    cells: tuple[cells.Cell, ...]
    rounds: int
    warm_up: bool
    deadline: float
    """On time.monotonic: no cell begins after it."""
    seed: int
    """Of the order in which the brokers take turns."""

    @classmethod
    def standard(cls, rounds: int, deadline: float, *, smoke: bool = False) -> "Plan":
        """All brokers in all cells; for `smoke` three of them, and a short cell of each kind."""
        contenders: tuple[brokers.Contender, ...]
        contenders = (*brokers.COMPARED, brokers.LIMIT, brokers.LIMIT_SYNCED)
        if smoke:
            contenders = (brokers.KAFKA, brokers.TIDELOG, brokers.LIMIT)
        return cls(
            contenders=contenders,
            cells=tuple(cells.smoke_cells() if smoke else cells.standard_cells()),
            rounds=rounds,
            warm_up=not smoke,
            deadline=deadline,
            seed=1,
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the comparison and prints its table; 0 when every cell of Tidelog got through."""
    options = _parse(arguments)
    brokers.end_with_us()
    machine.touch_memory()
    plan = _plan(options)
    os.nice(0 if options.no_nice else 5)
    RESULTS.mkdir(exist_ok=True)
    result = RESULTS / time.strftime("compare-%Y%m%d-%H%M%S.json")
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.disk) as folder:
        if options.tls:
            secured.prepare(Path(folder, "tls"))
        document = measure(plan, Path(folder), lambda so_far: _keep(result, so_far))
    _keep(result, document)
    print(report.comparison(document))
    console.print(f"[bold]{result}[/], with the table (.md) and the picture (.svg) beside it")
    if options.write:
        report.replace_section(options.section, report.comparison(document))
    failed = failures(document)
    for line in failed:
        console.print(f"[red]failed:[/] {line}")
    return 1 if failed else 0


def failures(document: report.Document) -> list[str]:
    """What went wrong in the cells of Tidelog."""
    return [
        f"{row['title']} on {broker}: {result['problem']}"
        for row in document["cells"]
        for broker, result in row["results"].items()
        if result["problem"] and broker.startswith("tidelog")
    ]


def _keep(result: Path, document: report.Document) -> None:
    """The raw figures, the table and the picture, so that a run cut short leaves what it has."""
    result.write_text(json.dumps(document, indent=1))
    result.with_suffix(".md").write_text(report.comparison(document) + "\n")
    result.with_suffix(".svg").write_text(pictures.cells(document))


def measure(
    plan: Plan, folder: Path, after_pass: Callable[[report.Document], object]
) -> report.Document:
    """Starts the brokers below `folder`, drives them, and returns everything that was seen.

    `after_pass` gets what there is after each pass that counts.
    """
    results: dict[str, dict[str, Measured]] = {cell.title: {} for cell in plan.cells}
    memory: dict[str, dict[str, float]] = {}
    facts = machine.describe(folder)
    if facts["disk"].startswith(("tmpfs", "ramfs")):
        console.print(
            "[yellow]the data lies in memory[/]: nothing is synced to a disk, so the figures of "
            "the synced brokers mean nothing; choose a disk with --disk"
        )
    with contextlib.ExitStack() as stack:
        running = _start_all(plan.contenders, folder, stack)
        time.sleep(2)
        for broker in running:
            memory[broker.name] = {"idle_mb": broker.resident_bytes() / 1e6}
        for number in range(plan.rounds + plan.warm_up):
            in_time = _pass(number, plan, running, results)
            for broker in running:
                memory[broker.name]["peak_mb"] = broker.resident_bytes(peak=True) / 1e6
                memory[broker.name]["cpu_seconds"] = broker.cpu_seconds()
            if not in_time:
                break
            after_pass(_document(plan, facts, memory, results))
    return _document(plan, facts, memory, results)


def _document(
    plan: Plan,
    facts: Mapping[str, str],
    memory: Mapping[str, Mapping[str, float]],
    results: Mapping[str, Mapping[str, Measured]],
) -> report.Document:
    return {
        "kind": "compare",
        "when": time.strftime("%Y-%m-%d %H:%M"),
        "seed": plan.seed,
        "machine": facts,
        "titles": {contender.name: contender.title for contender in plan.contenders},
        "memory": memory,
        "cells": [
            {
                "title": cell.title,
                "unit": cell.unit,
                "higher_is_better": cell.higher_is_better,
                "results": {name: asdict(found) for name, found in results[cell.title].items()},
            }
            for cell in plan.cells
        ],
    }


def _start_all(
    contenders: Sequence[brokers.Contender], folder: Path, stack: contextlib.ExitStack
) -> list[brokers.Running]:
    running = []
    for contender in contenders:
        try:
            running.append(stack.enter_context(contender.start(folder / contender.name)))
        except brokers.PeerUnavailable as problem:
            console.print(f"[yellow]left out:[/] {problem}")
    return running


def _pass(
    number: int,
    plan: Plan,
    running: Sequence[brokers.Running],
    results: Mapping[str, dict[str, Measured]],
) -> bool:
    """Goes once through all cells; False when there was no time left for all of them.

    The order of the brokers changes from cell to cell and from pass to pass. A pass that the time
    cut short counts as far as it came.
    """
    discarded = plan.warm_up and number == 0
    label = "warm-up" if discarded else f"round {number + 1 - plan.warm_up}"
    columns = (TextColumn("{task.description:<64}"), BarColumn(20), MofNCompleteColumn())
    quiet = not console.is_terminal
    with Progress(*columns, TimeRemainingColumn(), console=console, disable=quiet) as progress:
        task = progress.add_task("", total=len(plan.cells) * len(running))
        for place, cell in enumerate(plan.cells):
            if time.monotonic() > plan.deadline:
                console.print(f"[yellow]out of time[/] in {label}, before {cell.title}")
                return False
            for broker in shuffled(running, f"{plan.seed}/{number}/{place}"):
                if quiet:
                    now = time.strftime("%H:%M:%S")
                    console.print(f"{now} {label}: {cell.title}, {broker.name}")
                progress.update(task, description=f"{label}: {cell.title}, {broker.name}")
                measured = results[cell.title].setdefault(broker.name, Measured())
                _drive(cell, broker, measured, keep=not discarded)
                progress.advance(task)
    return True


def shuffled(running: Sequence[brokers.Running], seed: str) -> list[brokers.Running]:
    """The brokers in an order drawn by `seed`: a rotation would keep who follows whom."""
    return random.Random(seed).sample(running, len(running))


def _drive(cell: cells.Cell, broker: brokers.Running, measured: Measured, *, keep: bool) -> None:
    if measured.problem:
        return
    speaks_kafka = not broker.name.startswith("limit")
    if cell.needs_protocol and not speaks_kafka:
        measured.problem = "not applicable"
        return
    try:
        value, cpu = cell.run(broker.bootstrap, broker.cpu_seconds, speaks_kafka=speaks_kafka)
    except FAILURES as failure:
        measured.problem = f"{type(failure).__name__}: {failure}".strip()[:300]
        return
    if keep:
        measured.values.append(value)
        measured.cpu_seconds.append(cpu)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="that it runs, not how fast")
    parser.add_argument("--rounds", type=int, default=DEFAULT_ROUNDS)
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no cell after that")
    parser.add_argument("--shorten", type=int, default=1, help="divide all numbers of records")
    parser.add_argument(
        "--cells", default="", help="only cells whose title contains one of these, separated by ;"
    )
    parser.add_argument("--brokers", default="", help="comma-separated names of brokers")
    parser.add_argument("--disk", type=Path, help="a folder on the disk to use; default: TMPDIR")
    parser.add_argument("--write", action="store_true", help="renew docs/benchmarks.md")
    parser.add_argument("--section", default="reading", help="of docs/benchmarks.md")
    parser.add_argument("--seed", type=int, default=1, help="of the order of the brokers")
    parser.add_argument("--tls", action="store_true", help="between the loads and the brokers")
    parser.add_argument("--no-nice", action="store_true")
    return parser.parse_args(arguments)


def _plan(options: argparse.Namespace) -> Plan:
    contenders = list(brokers.COMPARED)
    if not options.tls:  # the bare loops speak in clear
        contenders += [brokers.LIMIT, brokers.LIMIT_SYNCED]
    chosen = list(cells.smoke_cells() if options.smoke else cells.standard_cells())
    if options.smoke:
        contenders = [brokers.TIDELOG_SYNCED, brokers.LIMIT]
    if options.brokers:
        contenders = [brokers.BY_NAME[name] for name in options.brokers.split(",")]
    wanted = options.cells.split(";")
    return Plan(
        contenders=tuple(contenders),
        cells=tuple(
            cell if options.shorten == 1 else cell.shortened(options.shorten)
            for cell in chosen
            if any(part in cell.title for part in wanted)
        ),
        rounds=1 if options.smoke else options.rounds,
        warm_up=not options.smoke,
        deadline=time.monotonic() + 60 * options.minutes,
        seed=options.seed,
    )


if __name__ == "__main__":
    sys.exit(main())

"""Crash states by the thousand: `python -m tests.crash.campaign --states 100000`.

A run of the workload is crashed before every n-th operation, in every way that a power cut can
leave the disk, and each state is judged; of some, the recovery is crashed as well. Then the
operations are made to fail, one after the other, once and for ever, and what the run leaves is
crashed and judged too. The seed of a bad state is printed with it; `--seed` repeats it.

Prints one line of JSON with the counts; the exit code is 1 when anything was wrong.
"""

import argparse
import contextlib
import errno
import json
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from storage.errors import DataDirError
from tests.crash.checker import check, open_directory
from tests.crash.tiered_workload import TieredWorkload
from tests.crash.workload import Workload
from tests.support.power_loss import Survival
from tests.support.simulated_disk import CHANGES, Fault, Operation, SimulatedDisk

ERRNOS = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
EXAMPLES_MAX = 10
SECOND_CRASH_EVERY = 4
CRASHED_START_EVERY = 40
CRASHED_START_SHARE = 0.15


@dataclass(slots=True, kw_only=True)
class Tally:
    """Counts of a campaign."""

    workloads: int = 0
    states: int = 0
    by_survival: dict[str, int] = field(default_factory=dict)
    crashed_starts: int = 0
    fault_runs: int = 0
    faults_raised: int = 0
    lost: int = 0
    fsck_findings: int = 0
    other: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def problems(self) -> int:
        return self.lost + self.fsck_findings + self.other

    def add(self, where: str, problems: list[str], survival: Survival) -> None:
        self.states += 1
        self.by_survival[survival.value] = self.by_survival.get(survival.value, 0) + 1
        for problem in problems:
            if "fsck:" in problem:
                self.fsck_findings += 1
            elif "lost:" in problem:
                self.lost += 1
            else:
                self.other += 1
            if len(self.examples) < EXAMPLES_MAX:
                self.examples.append(f"{where}: {problem}")


def crash_states(
    tally: Tally,
    *,
    seed: int,
    states: int,
    steps: int = 60,
    until_found: bool = False,
    kind: type[Workload] = Workload,
) -> None:
    """Crash one run of the workload about `states` times, spread over its operations.

    With `until_found` no state is looked at after the first bad one.
    """
    total = _operations(seed, steps, kind)
    rng = random.Random(seed)
    chance = states / max(total, 1)
    disk = SimulatedDisk()
    workload = kind(disk, seed, steps=steps)

    def look(operation: Operation, path: str) -> None:
        if operation not in CHANGES or (until_found and tally.examples):
            return
        count = int(chance) + (rng.random() < chance % 1)
        for _ in range(count):
            survival = rng.choice(list(Survival))
            cut_seed = rng.getrandbits(32)
            where = f"seed {seed} operation {disk.operations} {survival.value} cut {cut_seed}"
            if tally.states % CRASHED_START_EVERY == 0:
                survivor = disk.power_cut(cut_seed, survival)
                crash_while_starting(tally, survivor, workload, rng, where)
            survivor = disk.power_cut(cut_seed, survival)
            killed_only = survival is Survival.KEPT
            twice = tally.states % SECOND_CRASH_EVERY == 0
            problems = check(
                survivor,
                workload.promises,
                killed_only=killed_only,
                twice=twice,
                store=None if workload.store is None else workload.store.copy(rng),
            )
            tally.add(where, problems, survival)

    disk.before_operation = look
    tally.workloads += 1
    _run(workload, tally, f"seed {seed}")
    if workload.errors:
        tally.add(f"seed {seed}", [f"failed: {workload.errors[0]}"], Survival.KEPT)


def crash_while_starting(
    tally: Tally, disk: SimulatedDisk, workload: Workload, rng: random.Random, where: str
) -> None:
    """Crash the recovery of a crash state before some of its own operations."""

    def look(operation: Operation, path: str) -> None:
        if operation in CHANGES and rng.random() < CRASHED_START_SHARE:
            survival = rng.choice(list(Survival))
            cut_seed = rng.getrandbits(32)
            survivor = disk.power_cut(cut_seed, survival)
            store = None if workload.store is None else workload.store.copy(rng)
            problems = check(
                survivor, workload.promises, killed_only=False, twice=False, store=store
            )
            name = f"{where}, start crashed at {disk.operations} {survival.value} cut {cut_seed}"
            tally.add(name, problems, survival)
            tally.crashed_starts += 1

    disk.before_operation = look
    with contextlib.suppress(DataDirError):
        # What it finds wrong, the state itself is judged for.
        open_directory(disk)


def fault_run(
    tally: Tally, *, seed: int, fault: Fault, steps: int = 60, kind: type[Workload] = Workload
) -> None:
    """Run the workload with a fault, crash what it leaves in three ways, judge each."""
    disk = SimulatedDisk(fault=fault)
    workload = kind(disk, seed, steps=steps)
    name = f"seed {seed} fault {fault.at}{'+' if fault.for_ever else ''} {fault.errno}"
    tally.fault_runs += 1
    _run(workload, tally, name)
    tally.faults_raised += disk.faults_raised
    for survival in (Survival.LOST, Survival.KEPT, Survival.MIXED):
        # After a failed sync the page cache may hold what the medium lacks: a mere kill promises
        # nothing beyond what was durable.
        survivor = disk.power_cut(seed, survival)
        tally.add(
            f"{name} {survival.value}",
            check(
                survivor,
                workload.promises,
                killed_only=False,
                store=None if workload.store is None else workload.store.copy(random.Random(seed)),
            ),
            survival,
        )


def faults(seed: int, count: int, steps: int = 60) -> Iterator[Fault]:
    """`count` faults spread over the operations of a run, of every kind in turn."""
    total = _operations(seed, steps)
    rng = random.Random(seed)
    for number in range(count):
        yield Fault(
            at=int(number * total / count),
            errno=rng.choice(ERRNOS),
            for_ever=number % 2 == 1,
            short_write=number % 3 == 0,
        )


def campaign(
    tally: Tally,
    *,
    states: int,
    seed: int,
    fault_share: float = 0.2,
    kind: type[Workload] = Workload,
) -> None:
    """About `states` crash states, from as many workloads as that takes."""
    per_workload = 300
    while tally.states < states * (1 - fault_share):
        crash_states(tally, seed=seed, states=per_workload, kind=kind)
        seed += 1
    while tally.states < states:
        for fault in faults(seed, min(100, 1 + (states - tally.states) // 3)):
            fault_run(tally, seed=seed, fault=fault, kind=kind)
        seed += 1


def _operations(seed: int, steps: int, kind: type[Workload] = Workload) -> int:
    """How many operations a run makes; of one that ends early, as many as it makes."""
    disk = SimulatedDisk()
    with contextlib.suppress(Exception):
        kind(disk, seed, steps=steps).run()
    return sum(disk.counts[kind] for kind in CHANGES)


def _run(workload: Workload, tally: Tally, name: str) -> None:
    try:
        workload.run()
    except Exception as error:  # noqa: BLE001 - whatever escapes the engine is a finding
        tally.other += 1
        tally.examples.append(f"{name}: the run crashed: {type(error).__name__}: {error}")


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--states", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tiered", action="store_true", help="with a simulated object store")
    arguments = parser.parse_args()
    tally = Tally()
    started = time.perf_counter()
    kind = TieredWorkload if arguments.tiered else Workload
    campaign(tally, states=arguments.states, seed=arguments.seed, kind=kind)
    seconds = time.perf_counter() - started
    print(
        json.dumps(
            {
                "states": tally.states,
                "workloads": tally.workloads,
                "crashed_starts": tally.crashed_starts,
                "fault_runs": tally.fault_runs,
                "faults_raised": tally.faults_raised,
                "by_survival": tally.by_survival,
                "lost": tally.lost,
                "fsck_findings": tally.fsck_findings,
                "other": tally.other,
                "seconds": round(seconds, 1),
                "states_per_second": round(tally.states / seconds),
            }
        )
    )
    for example in tally.examples:
        print(example, file=sys.stderr)
    return 1 if tally.problems else 0


if __name__ == "__main__":
    sys.exit(main())

"""Tries mutants against tests in forks of one process that has collected the tests already.

Owns the order of work. The tests run once without a bug; the functions to mutate note which of
their lines each test reaches. Then for each mutant the process forks: the child plants the bug,
runs the tests that reach the mutated statement, those first that killed mutants of the same
function before, then the quickest, and ends with the first test that fails. A test that takes many
times as long as it should counts as one that fails.

Used as a plugin of pytest by tests/mutation/run.py, which is what to read next.
"""

import faulthandler
import gc
import os
import resource
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Generator, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple, TextIO

import pytest
from hypothesis import Phase, settings

from tests.mutation.mutants import Mutant

CPU_MAX_S: Final = 3.0
"""The processor time a test may take, beside `SLOWER_MAX` times what it took without a bug."""
SLOWER_MAX: Final = 5.0
CLOCK_MAX_S: Final = 10.0
"""The time on the clock it may take, beside `CLOCK_SLOWER_MAX` times what it took without a bug.

This is for tests that wait for ever. It is generous: a machine that is busy with other things must
not count as a bug that was noticed.
"""
CLOCK_SLOWER_MAX: Final = 10.0
MEMORY_MAX_BYTES: Final = 4 << 30
FILE_MAX_BYTES: Final = 1 << 30
_SURVIVED: Final = 0
_BUG_OF_THE_RUNNER: Final = 99


class Outcome(NamedTuple):
    """What became of a mutant."""

    killer: str | None
    """The test that failed, hung or crashed; None when none did."""
    is_reached: bool
    """Whether any test reaches the statement."""


class ForkRunner:
    """The plugin: replaces pytest's loop over the tests."""

    def __init__(
        self, mutants: Sequence[Mutant], *, jobs: int, seconds: float, minutes: float
    ) -> None:
        """Take `jobs` mutants at a time, and none any more after `minutes`.

        A mutant meets tests for about `seconds` of processor time, the promising ones first.
        """
        self.outcomes: dict[int, Outcome] = {}
        """By the number of the mutant in the sequence."""
        self._modules = {mutant.module.path: mutant.module for mutant in mutants}
        self._mutants = mutants
        self._jobs = jobs
        self._seconds_max = seconds
        self._minutes_max = minutes
        self._items: list[pytest.Item] = []
        self._seconds: list[float] = []
        self._clock_seconds: list[float] = []
        self._reached: list[dict[str, set[int]]] = []
        """For each test the lines that it reaches, by the path of the module."""
        self._kills: defaultdict[str, Counter[int]] = defaultdict(Counter)
        self._has_failed = False

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Generator[None, Any, Any]:
        """Settings for tests that are about to be imported: a failure need not be made small."""
        phases = (Phase.explicit, Phase.generate)
        profile: dict[str, Any] = {"deadline": None, "database": None}
        settings.register_profile(
            "mutants", phases=phases, report_multiple_bugs=False, print_blob=False, **profile
        )
        settings.load_profile("mutants")
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note that the test failed."""
        self._has_failed = self._has_failed or report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """The run without a bug, then the mutants."""
        if session.testsfailed:
            raise session.Failed("the tests could not be collected")
        self._items = session.items
        self._run_without_bug()
        gc.collect()
        gc.freeze()
        ends_at = time.monotonic() + 60 * self._minutes_max
        waiting = list(enumerate(self._mutants))[::-1]
        running: dict[int, tuple[int, list[int], int]] = {}
        while waiting or running:
            if time.monotonic() > ends_at:
                waiting.clear()
            while waiting and len(running) < self._jobs:
                number, mutant = waiting.pop()
                order = self._order(mutant)
                if not order:
                    self.outcomes[number] = Outcome(None, is_reached=False)
                    continue
                read_end, write_end = os.pipe()
                pid = os.fork()
                if pid == 0:
                    os.close(read_end)
                    self._child(mutant, order, write_end)
                os.close(write_end)
                running[pid] = (number, order, read_end)
            if running:
                self._reap(running)
        return True

    def _run_without_bug(self) -> None:
        for module in self._modules.values():
            module.plant_notes({m.function for m in self._mutants if m.module is module})
        for item in self._items:
            reached: dict[str, set[int]] = {path: set() for path in self._modules}
            for path, module in self._modules.items():
                module.notes(reached[path].add)
            began, clock_began = time.process_time(), time.monotonic()
            self._run(item)
            if self._has_failed:
                raise pytest.UsageError(f"{item.nodeid} fails without any bug planted")
            self._seconds.append(time.process_time() - began)
            self._clock_seconds.append(time.monotonic() - clock_began)
            self._reached.append(reached)

    @staticmethod
    def _run(item: pytest.Item) -> None:
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)

    def _order(self, mutant: Mutant) -> list[int]:
        """The numbers of the tests that reach the mutated statement, the most promising first."""
        module = mutant.module
        statement = module.statement_at(mutant.line)
        reaching = [
            number
            for number, reached in enumerate(self._reached)
            if not reached[module.path].isdisjoint(statement)
        ]
        kills, seconds = self._kills[mutant.function], self._seconds
        reaching.sort(key=lambda n: (-kills[n] / (0.05 + seconds[n]), seconds[n]))
        spent = accumulate(seconds[number] for number in reaching)
        enough = sum(so_far < self._seconds_max for so_far in spent) + 1
        return reaching[:enough]

    def _child(self, mutant: Mutant, order: list[int], progress: int) -> None:
        """Never returns."""
        status = _BUG_OF_THE_RUNNER
        try:
            nowhere = os.open(os.devnull, os.O_RDWR)
            for number in (0, 1, 2):
                os.dup2(nowhere, number)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX_BYTES, MEMORY_MAX_BYTES))
            resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_MAX_BYTES, FILE_MAX_BYTES))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            silent: TextIO = open(os.devnull, "w")  # noqa: SIM115 - as long as the process
            plugins = self._items[0].config.pluginmanager
            plugins.unregister(name="terminalreporter")
            mutant.plant()
            status = _SURVIVED
            for place, number in enumerate(order):
                os.write(progress, place.to_bytes(4, "big"))
                limit = CPU_MAX_S + SLOWER_MAX * self._seconds[number]
                signal.setitimer(signal.ITIMER_PROF, limit)
                limit = CLOCK_MAX_S + CLOCK_SLOWER_MAX * self._clock_seconds[number]
                faulthandler.dump_traceback_later(limit, exit=True, file=silent)
                self._run(self._items[number])
                if self._has_failed:
                    status = 1
                    break
        except BaseException as error:  # noqa: BLE001 - reported to the parent
            os.write(progress, repr(error).encode())
            status = _BUG_OF_THE_RUNNER
        finally:
            os._exit(status)

    def _reap(self, running: dict[int, tuple[int, list[int], int]]) -> None:
        pid, status = os.wait()
        number, order, progress = running.pop(pid)
        with os.fdopen(progress, "rb") as pipe:
            report = pipe.read()
        mutant = self._mutants[number]
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == _BUG_OF_THE_RUNNER:
            raise RuntimeError(f"{mutant.name} cannot be tried: {report!r}")
        killer = None
        if status != _SURVIVED:
            test = order[int.from_bytes(report[-4:], "big")]
            self._kills[mutant.function][test] += 1
            killer = self._items[test].nodeid
        self.outcomes[number] = Outcome(killer, is_reached=True)
        if killer is None:
            print(f"\n{number + 1} of {len(self._mutants)} survives: {mutant.name}", flush=True)

"""Mutants of one module: small bugs planted one at a time, each of which a test must notice.

`make mutants MODULE=storage/log/lookup.py` plants every mutant that mutmut can think of in that
module and runs, for each, those of the module's tests that reach the mutated statement. It prints
the survivors as diffs: bugs that these tests would not have noticed.

Owns which tests answer for which module (`modules.toml`), which survivors are explained
(`equivalent.toml`) and the results, one file for each module in `build/mutants`.

Read next: tests/README.md, tests/mutation/fork.py.
"""

import argparse
import json
import os
import random
import re
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from importlib.machinery import FileFinder, ModuleSpec, SourceFileLoader
from itertools import zip_longest
from math import inf
from pathlib import Path
from typing import Any, Final

import pytest

from tests.mutation.fork import ForkRunner, Outcome
from tests.mutation.mutants import Module, Mutant
from tests.tidy.tree import ROOT

RESULTS: Final = ROOT / "build/mutants"
SAMPLE_SEED: Final = 1


def tests_of(module: str) -> tuple[list[str], list[str]]:
    """The tests that must kill the mutants of `module`, and those of them that are left out."""
    table = _read("modules.toml")
    without: list[str] = table.pop("without")
    if module not in table:
        raise SystemExit(
            f"{module} has no tests in tests/mutation/modules.toml; "
            f"MODULE= is one of: {', '.join(sorted(table))}"
        )
    paths: list[str] = table[module]
    missing = [path for path in paths if not (ROOT / path.partition("::")[0]).exists()]
    if missing:
        raise SystemExit(f"tests/mutation/modules.toml: {module} names {missing[0]}, not a file")
    return paths, without


def explanations(module: str) -> dict[str, str]:
    """Why a mutant of `module` changes nothing that a test could see, by its name."""
    rows = _read("equivalent.toml").get(module, [])
    return {name: row["reason"] for row in rows for name in row["mutants"]}


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / "tests/mutation" / name).read_text(encoding="utf-8"))


def chosen(module: Module, *, sample: int | None, pattern: str) -> list[Mutant]:
    """The mutants to try: all, or a sample that is the same each time."""
    every = [m for m in module.mutants() if not pattern or re.search(pattern, m.name)]
    if sample is not None and sample < len(every):
        # In an order of chance, so that those of a run that is cut short are a sample as well.
        return random.Random(SAMPLE_SEED).sample(every, sample)
    return every


def killed_before(module: Module) -> dict[str, str]:
    """The test that killed a mutant in the last run, by the mutant's name."""
    last = json.loads(_results(module).read_text(encoding="utf-8"))
    return {name: killer for name, killer in last["killers"].items() if killer is not None}


def _results(module: Module) -> Path:
    return RESULTS / f"{module.name}.json"


class _FromSource:
    """Imports compiled modules as the Python that they are written in, where bugs can be planted.

    All of storage and broker, because compiled modules can only use others that are compiled too.
    """

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, _: Any = None) -> ModuleSpec | None:
        """The module of the source file, None for other packages."""
        if path is None or name.partition(".")[0] not in {"storage", "broker"}:
            return None
        return FileFinder(path[0], (SourceFileLoader, [".py"])).find_spec(name)


def run(mutants: list[Mutant], only_tests: list[str], **limits: Any) -> ForkRunner:
    """Try the mutants, all in one process, with the tests of their modules or `only_tests`.

    The runner has the outcomes.
    """
    tests: dict[str, None] = dict.fromkeys(only_tests)
    without: list[str] = []
    for path in {mutant.module.path: None for mutant in mutants}:
        more, without = tests_of(path)
        tests |= dict.fromkeys(() if only_tests else more)
    runner = ForkRunner(mutants, **limits)
    with tempfile.TemporaryDirectory(prefix="mutants") as directory:
        arguments = [
            *("-q", "-p", "no:cacheprovider", "-p", "no:rerunfailures"),
            # A failure is counted and not read.
            *("--tb=native", "--assert=plain"),
            *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
            *("--timeout=0", "--hypothesis-seed=0", "-o", "tmp_path_retention_policy=failed"),
            *("--rootdir", str(ROOT), "--basetemp", f"{directory}/tests"),
            *(f"--deselect={test}" for test in without),
            *(str(ROOT / test) for test in tests),
        ]
        # Options for the whole suite, such as second tries, are not for mutants.
        os.environ.pop("PYTEST_ADDOPTS", None)
        sys.meta_path.insert(0, _FromSource)
        status = pytest.main(arguments, plugins=[runner])
    if status != pytest.ExitCode.OK:
        raise SystemExit("the mutants could not be tried, see above")
    return runner


def report(module: Module, outcomes: dict[Mutant, Outcome], known: list[tuple[str, str]]) -> int:
    """Print the survivors that nothing explains as diffs, then the sum; how many there are.

    `known` are mutants that were not tried again, each with the test that killed it.
    """
    explained = explanations(module.path)
    lived = [mutant for mutant, outcome in outcomes.items() if outcome.killer is None]
    survivors = [mutant for mutant in lived if mutant.name not in explained]
    for mutant in survivors:
        reached = outcomes[mutant].is_reached
        print(mutant.diff(), "" if reached else "(no test reaches this)", "", sep="\n")
    for name in explained.keys() & {m.name for m in outcomes} - {m.name for m in lived}:
        print(f"tests/mutation/equivalent.toml explains a mutant that was killed: {name}")
    for name in explained.keys() - {mutant.name for mutant in module.mutants()}:
        print(f"tests/mutation/equivalent.toml explains a mutant that does not exist: {name}")
    count, equal = len(outcomes) + len(known), len(lived) - len(survivors)
    print(
        f"{module.path}: {count} mutants, {count - len(lived)} killed, {equal} explained, "
        f"{len(survivors)} survive"
    )
    RESULTS.mkdir(parents=True, exist_ok=True)
    killers = dict(known) | {each.name: outcome.killer for each, outcome in outcomes.items()}
    # Two equal lines of a function have mutants of the same name.
    killers |= dict.fromkeys((mutant.name for mutant in lived), None)
    found = {"survivors": [mutant.name for mutant in survivors], "killers": killers}
    _results(module).write_text(json.dumps(found, indent=1, ensure_ascii=False), encoding="utf-8")
    return len(survivors)


def main() -> None:
    """Try the mutants of the modules and report them; status 1 when one survives unexplained."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("module", nargs="+", help="for instance storage/log/lookup.py")
    parser.add_argument("--sample", type=int, help="this many mutants of each instead of all")
    parser.add_argument(
        "--survivors", action="store_true", help="only those that the last run did not kill"
    )
    parser.add_argument("--only", default="", help="pattern of their names: Log.append: .*min")
    parser.add_argument(
        "--seconds", type=float, default=inf, help="of tests for each mutant, instead of all tests"
    )
    parser.add_argument("--minutes", type=float, default=inf, help="try those that this allows")
    parser.add_argument("--tests", nargs="+", default=[], help="instead of those of the module")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    given = parser.parse_args()
    modules = [Module(path) for path in given.module]
    groups = [chosen(each, sample=given.sample, pattern=given.only) for each in modules]
    known = [killed_before(each) if given.survivors else {} for each in modules]
    left = [
        [mutant for mutant in group if mutant.name not in killers]
        for group, killers in zip(groups, known, strict=True)
    ]
    # One of each module in turn, for a run that is cut short.
    mutants = [each for some in zip_longest(*left) for each in some if each is not None]
    limits = {"jobs": given.jobs, "seconds": given.seconds, "minutes": given.minutes}
    runner = run(mutants, given.tests, **limits)
    outcomes = {mutants[number]: outcome for number, outcome in runner.outcomes.items()}
    survivors = [
        report(
            module,
            {mutant: outcomes[mutant] for mutant in group if mutant in outcomes},
            [(mutant.name, killers[mutant.name]) for mutant in group if mutant.name in killers],
        )
        for module, group, killers in zip(modules, groups, known, strict=True)
    ]
    sys.exit(sum(survivors) > 0)


if __name__ == "__main__":
    main()

"""Mutants of one module: small bugs planted one at a time, each of which a test must notice.

`make mutants MODULE=storage/log/lookup.py` plants every mutant that mutmut can think of in that
module and runs, for each, those of the module's tests that reach the mutated function. It prints
the survivors as diffs: bugs that these tests would not have noticed.

Owns which tests answer for which module, and the directory in which mutmut works: links to the
packages and a `pyproject.toml` of its own in `build/mutants`, so that the checkout stays as it is,
and so that two modules can be tested at the same time.

Read next: tests/README.md.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

from mutmut.mutation.file_mutation import mutate_file_contents
from mutmut.utils.format_utils import get_mutant_name

from tests.tidy.tree import PACKAGES, ROOT

WORK: Final = Path("build/mutants")
SAMPLE_SEED: Final = 1
KILLED: Final = frozenset({1, 3, 24, 36, 37, 152, 255, -24, -9, -11})
"""Exit codes of mutmut for a mutant that was noticed: a failure, a timeout, a crash."""


def tests_of(module: str) -> tuple[list[str], list[str]]:
    """The tests that must kill the mutants of `module`, and those of them that are left out."""
    table = tomllib.loads((ROOT / "tests/mutation/modules.toml").read_text(encoding="utf-8"))
    without: list[str] = table.pop("without")
    if module not in table:
        raise SystemExit(
            f"{module} has no tests in tests/mutation/modules.toml; "
            f"MODULE= is one of: {', '.join(sorted(table))}"
        )
    paths: list[str] = table[module]
    missing = [path for path in paths if not (ROOT / path).exists()]
    if missing:
        raise SystemExit(f"tests/mutation/modules.toml: {module} names {missing[0]}, not a file")
    return paths, without


def prepare(module: str, *, is_again: bool) -> Path:
    """The directory in which mutmut works on `module`; empty of results unless `is_again`."""
    tests, without = tests_of(module)
    work = ROOT / WORK / module.removesuffix(".py").replace("/", ".")
    if not is_again:
        shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True, exist_ok=True)
    for name in (*PACKAGES, "tests"):
        if not (work / name).exists():
            (work / name).symlink_to(ROOT / name)
    settings = {
        "source_paths": list(PACKAGES),
        "only_mutate": [module],
        "pytest_add_cli_args_test_selection": tests,
        # The same examples each time; a mutant that hangs is one that was noticed.
        "pytest_add_cli_args": [
            *("--hypothesis-seed=0", "--timeout=20", "-p", "no:cacheprovider"),
            *(f"--deselect={test}" for test in without),
        ],
        "timeout_multiplier": 3.0,
        "timeout_constant": 2.0,
        "do_not_mutate_patterns": ["^\\s*assert "],
        "use_git_change_detection": False,
    }
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    own = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    text = "\n".join([own, "[tool.mutmut]", *lines, ""])
    (work / "pyproject.toml").write_text(text, encoding="utf-8")
    return work


def all_mutants(work: Path, module: str) -> list[str]:
    """The names of every mutant of `module`."""
    os.chdir(work)
    found = mutate_file_contents(module, Path(module).read_text(encoding="utf-8"))
    return [get_mutant_name(Path(module), name) for name in found.mutant_names]


def results(work: Path, module: str) -> dict[str, int | None]:
    """The exit code of the tests for each mutant; None where they did not run."""
    text = (work / "mutants" / f"{module}.meta").read_text(encoding="utf-8")
    codes: dict[str, int | None] = json.loads(text)["exit_code_by_key"]
    return codes


def report(work: Path, module: str) -> int:
    """Print the survivors as diffs, then the sum; how many there are."""
    codes = {name: code for name, code in results(work, module).items() if code is not None}
    survivors = sorted(name for name, code in codes.items() if code not in KILLED)
    for name in survivors:
        show = [sys.executable, "-m", "mutmut", "show", name]
        print(subprocess.run(show, cwd=work, capture_output=True, text=True).stdout)
    print(f"{module}: {len(codes)} mutants, {len(codes) - len(survivors)} killed")
    return len(survivors)


def main() -> None:
    """Run the mutants of one module and report them; status 1 when one survives."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("module", help="for instance storage/log/lookup.py")
    parser.add_argument("--sample", type=int, help="this many mutants instead of all")
    parser.add_argument("--survivors", action="store_true", help="only what survived last time")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    given = parser.parse_args()
    work = prepare(given.module, is_again=given.survivors)
    names: list[str] = []
    if given.survivors:
        codes = results(work, given.module)
        names = [name for name, code in codes.items() if code is not None and code not in KILLED]
    elif given.sample is not None:
        every = all_mutants(work, given.module)
        names = random.Random(SAMPLE_SEED).sample(every, min(given.sample, len(every)))
    run = [sys.executable, "-m", "mutmut", "run", "--max-children", str(given.jobs), *names]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    subprocess.run(run, cwd=work, env=environment, check=True)
    sys.exit(report(work, given.module) > 0)


if __name__ == "__main__":
    main()

"""The runner itself: a bug is planted, found by a test that reaches it, and else named."""

import re
import subprocess
import sys

from tests.mutation.mutants import Module
from tests.tidy.tree import ROOT


def tried(*arguments: str) -> str:
    run = [sys.executable, "-m", "tests.mutation.run", *arguments, "--jobs", "1"]
    return subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=False).stdout


def test_each_bug_in_a_small_function_is_noticed() -> None:
    found = tried("broker/requests/commit_wait.py", "--only", r"^CommitWait\._settle: ")
    assert re.search(r": ([1-9]\d*) mutants, \1 killed, 0 explained, 0 survive$", found.strip())


def test_a_bug_has_a_name_a_diff_and_a_statement() -> None:
    module = Module("broker/requests/commit_wait.py")
    name = "CommitWait._settle: if self._missing == 0: => if self._missing != 0:"
    (mutant,) = [each for each in module.mutants() if each.name == name]
    assert mutant.line in module.statement_at(mutant.line)
    assert len(module.statement_at(mutant.line)) == 1, "the head of the if, not what it guards"
    assert "-        if self._missing == 0:\n+        if self._missing != 0:\n" in mutant.diff()

"""Rules of the house that no linter knows. Each failure names file, line and rule."""

import ast
import re
from pathlib import Path

import pytest

from tests.tidy.tree import PACKAGES, ROOT, body_lines, python_files, source, tracked_files, tree

MODULE_LINES_MAX = 700
FUNCTION_LINES_MAX = 70
BOUNDARIES = {  # where anything may arrive: of a request, job, thread, process, command, listener
    "broker/net/dispatch.py",
    "broker/net/fetch_lane.py",
    "broker/replies/turns.py",
    "broker/replies/forms.py",
    "broker/quotas/throttle.py",
    "broker/server.py",
    "broker/jobs/scheduler.py",
    "broker/threads.py",
    "broker/workers/parent.py",
    "cli/main.py",
    "client/aio/listeners.py",
    "pipeline/launch.py",
    "storage/recovery/unusable_log.py",
}
AUDIT = '"tidelog.audit"'
"""The name of the audit log, whose level operators set; several modules write to it."""

_CODE = python_files(*PACKAGES)
_ALL = python_files(*PACKAGES, "tests", "benchmarks", "demo")


def _functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [
        node
        for node in ast.walk(tree(path))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]


def test_there_is_code_to_check() -> None:
    assert len(_CODE) > 50


def test_modules_fit_in_a_sitting() -> None:
    long = {str(path): source(path).count("\n") for path in _CODE}
    assert {name: lines for name, lines in long.items() if lines > MODULE_LINES_MAX} == {}


def test_functions_fit_on_a_screen() -> None:
    long = [
        f"{path}:{function.lineno} {function.name} has {body_lines(function)} lines"
        for path in _CODE
        for function in _functions(path)
        if body_lines(function) > FUNCTION_LINES_MAX
    ]
    assert long == []


def test_every_module_says_what_it_owns() -> None:
    silent = [
        str(path) for path in _CODE if source(path).strip() and not ast.get_docstring(tree(path))
    ]
    assert silent == []


def test_packages_are_imported_by_from() -> None:
    """`import storage.log.log` cannot be rewritten for the wheel, where the packages live under
    tidelog.
    """
    wrong = [
        f"{path}:{node.lineno} import {alias.name}"
        for path in _ALL
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name.split(".")[0] in set(PACKAGES) - {"tidelog"}
        and not (path.parts[0] not in PACKAGES and "." not in alias.name)
    ]
    assert wrong == []


def test_module_names_do_not_hide_in_strings() -> None:
    """A name in a string survives the rewriting for the wheel and then names no module."""
    pattern = re.compile(rf"^({'|'.join(set(PACKAGES) - {'tidelog'})})(\.\w+)+$")
    wrong = [
        f"{path}:{node.lineno} {node.value!r}"
        for path in _CODE
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and pattern.match(node.value)
        and (ROOT / Path(*node.value.split("."))).with_suffix(".py").exists()
    ]
    assert wrong == []


def test_broad_excepts_stand_only_at_the_boundaries() -> None:
    """Tidying up and raising on is no such place: the handler has to swallow."""
    places = [
        f"{path}:{node.lineno}"
        for path in _CODE
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or _names(node.type) & {"Exception", "BaseException"})
        and not isinstance(node.body[-1], ast.Raise)
    ]
    assert {place.partition(":")[0] for place in places} <= BOUNDARIES, places
    assert len(places) <= len(BOUNDARIES), places


def _names(node: ast.expr) -> set[str]:
    return {child.id for child in ast.walk(node) if isinstance(child, ast.Name)}


def test_no_slot_is_declared_twice() -> None:
    """A merge of two changes does that, and each object pays for the second one."""
    twice = [
        f"{path}:{node.lineno}"
        for path in _CODE
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Assign)
        and "__slots__" in set().union(*map(_names, node.targets))
        and isinstance(node.value, ast.Tuple)
        and len(set(map(ast.dump, node.value.elts))) < len(node.value.elts)
    ]
    assert twice == []


def test_nothing_is_left_for_later_in_comments() -> None:
    words = "|".join(("TO" + "DO", "FIX" + "ME", "X" * 3, "HA" + "CK"))
    marks = re.compile(rf"#.*\b({words})\b")
    found = [
        f"{path}:{number}"
        for path in _ALL
        for number, line in enumerate(source(path).splitlines(), 1)
        if marks.search(line)
    ]
    assert found == []


@pytest.mark.parametrize("folder", [*PACKAGES, "tests"])
def test_no_package_is_partial(folder: str) -> None:
    """A folder of modules without __init__.py becomes a namespace package and hides others."""
    folders = {path.parent for path in python_files(folder)}
    missing = [str(name) for name in folders if not (ROOT / name / "__init__.py").exists()]
    assert missing == []


def test_every_package_is_typed_for_its_users() -> None:
    packages = {path.parts[0] for path in _CODE}
    assert [name for name in packages if not (ROOT / name / "py.typed").exists()] == []


def test_text_files_end_with_one_newline_and_have_no_trailing_space() -> None:
    wrong = []
    for path in tracked_files():
        if path.suffix not in {".py", ".md", ".toml", ".yml", ".yaml", ".txt", ".json"}:
            continue
        text = source(path)
        if text and (not text.endswith("\n") or text.endswith("\n\n")):
            wrong.append(f"{path}: end of file")
        wrong += [
            f"{path}:{number} trailing space"
            for number, line in enumerate(text.splitlines(), 1)
            if line != line.rstrip()
        ]
    assert wrong == []


def test_loggers_have_the_same_name_in_the_wheel_and_in_the_checkout() -> None:
    """Made from __name__ they would not: in the wheel every package lives under tidelog."""
    wrong = [
        f"{path}: {argument}"
        for path in _CODE
        for argument in re.findall(r"^logger = logging\.getLogger\((.*)\)$", source(path), re.M)
        if argument not in (AUDIT, f'"tidelog.{".".join(path.with_suffix("").parts)}"')
    ]
    assert wrong == []


_RUNS_CODE = frozenset({"pickle", "marshal", "shelve", "subprocess", "runpy"})
_EVALUATES = frozenset({"eval", "exec", "compile", "__import__"})
_COMPILES_DECLARATIONS = {"protocol/declare/compiled.py", "values/dataclasses.py"}


def test_what_a_client_sends_reaches_nothing_that_runs_code() -> None:
    """The broker and what it stands on load no objects, start no programs and evaluate no text.

    Codecs and the making of values are compiled from declarations, which no client has written.
    """
    found = []
    for path in python_files("broker", "storage", "protocol", "config", "values"):
        name = path.as_posix()
        for node in ast.walk(tree(path)):
            modules: list[str] = []
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                modules = [node.module or ""]
            elif isinstance(node, ast.Call):
                called = node.func.id if isinstance(node.func, ast.Name) else ""
                method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
                evaluates = called in _EVALUATES and name not in _COMPILES_DECLARATIONS
                if evaluates or method in ("system", "popen"):
                    found.append(f"{name}:{node.lineno} runs code")
            if any(module.partition(".")[0] in _RUNS_CODE for module in modules):
                found.append(f"{name} imports {modules}")
    assert found == []


def test_values_of_a_start_are_made_at_their_first_use() -> None:
    """The standard library's `dataclass` compiles all methods at import (ADR 0030).

    Cython makes the methods of `storage.segment.facts` when it compiles, and knows this one only.
    """
    wrong = [
        str(path)
        for path in python_files("broker", "storage", "protocol", "config", "cli")
        if path.as_posix() != "storage/segment/facts.py"
        and re.search(r"^from dataclasses import .*\bdataclass\b", source(path), re.M)
    ]
    assert wrong == []

"""The code in figures: `python -m tests.tidy.figures [CHECKOUT ...]` prints a table of them.

One column for each checkout, in the order given, and a last one for this tree. A checkout is a
folder with the files of a commit: `git archive COMMIT | tar x -C CHECKOUT`. Only text is read;
nothing of a checkout is imported or run. docs/code-in-figures.md explains the rows.
"""

import argparse
import ast
import re
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.tidy.imports import children, circles, floors, import_graph, within
from tests.tidy.tree import (
    PACKAGES,
    ROOT,
    body_lines,
    functions,
    look_at,
    packages,
    python_files,
    source,
    tree,
)

LONG_MODULE = 450
TOO_LONG_MODULE = 700
PASSAGE_LINES = 6
"""A repeated passage has at least as many lines."""

THREAD_MAKERS = frozenset({"Thread", "ThreadPoolExecutor", "to_thread", "run_in_executor"})
CONNECTION_MAKERS = frozenset(
    {
        "create_connection",
        "create_unix_connection",
        "open_connection",
        "HTTPConnection",
        "build_opener",
        "urlopen",
        "from_url",
    }
)
"""The last one is the library of object stores (obstore)."""

_SETTING = re.compile(r"[a-z0-9]+([.-][a-z0-9]+)+")


def figures() -> dict[str, str]:
    """The name of each figure to its value for the tree that `tests.tidy.tree` looks at."""
    rows: dict[str, str] = {}
    graph = import_graph()
    for package in packages():
        paths = python_files(package)
        inner = children(graph, package)
        rows[f"{package}: files, lines"] = f"{len(paths)}, {sum(map(line_count, paths)):,}"
        rows[f"{package}: floors, circles of its parts"] = f"{floors(inner)}, {len(circles(inner))}"
        rows[f"{package}: floors of its files"] = str(floors(within(graph, package)))
        rows[f"{package}: functions, median / 90 % / longest"] = _lengths(paths)
    paths = python_files(*PACKAGES)
    defined = [function for path in paths for function in functions(path)]
    product, tests = (sum(map(line_count, some)) for some in (paths, python_files("tests")))
    asserts = sum(isinstance(node, ast.Assert) for path in paths for node in ast.walk(tree(path)))
    rows["all: files, lines"] = f"{len(paths)}, {product:,}"
    rows["all: circles of modules"] = str(len(circles(graph)))
    rows["all: functions, median / 90 % / longest"] = _lengths(paths)
    for limit in (LONG_MODULE, TOO_LONG_MODULE):
        longer = sum(line_count(path) > limit for path in paths)
        rows[f"modules of more than {limit} lines"] = str(longer)
    rows["lines of tests, for each line of the product"] = f"{tests:,}, {tests / product:.2f}"
    rows["asserts, for each function"] = f"{asserts:,}, {asserts / len(defined):.3f}"
    rows["settings"] = str(len(settings()))
    passages, covered = repeated_passages(paths)
    rows[f"repeated passages of {PASSAGE_LINES} and more lines, lines in them"] = (
        f"{passages:,}, {covered:,} ({covered / product:.1%})"
    )
    rows["modules that make threads"] = _modules(callers(paths, THREAD_MAKERS))
    rows["modules that connect to another process"] = _modules(callers(paths, CONNECTION_MAKERS))
    for style, waits in STYLES.items():
        users = {path.parts[0] for path in paths if any(map(waits, functions(path)))}
        count = sum(map(waits, defined))
        rows[f"waiting: {style}"] = f"{count:,} in {', '.join(sorted(users)) or 'no package'}"
    rows["waiting: twins, `X` beside `X_steps`"] = str(twins(paths))
    return rows


def line_count(path: Path) -> int:
    """Lines of a file, empty ones and comments among them."""
    return source(path).count("\n")


def _lengths(paths: list[Path]) -> str:
    lengths = sorted(body_lines(node) for path in paths for node in functions(path))
    if not lengths:
        return "none"
    median = statistics.median(lengths)
    return f"{len(lengths):,}, {median:.0f} / {lengths[len(lengths) * 9 // 10]} / {lengths[-1]}"


def settings() -> set[str]:
    """The names in the tables of settings, `config/**/*keys.py`: first arguments of calls."""
    found = set()
    for path in python_files("config"):
        if path.stem.endswith("keys"):
            for node in ast.walk(tree(path)):
                if isinstance(node, ast.Call):
                    found |= {name for name in _first_texts(node) if _SETTING.fullmatch(name)}
    return found


def _first_texts(call: ast.Call) -> Iterator[str]:
    named = [keyword.value for keyword in call.keywords if keyword.arg == "name"]
    for node in (*call.args[:1], *named):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def callers(paths: list[Path], names: frozenset[str]) -> list[str]:
    """The modules that call a function of one of these names, also as a method."""
    found = []
    for path in paths:
        called = {
            node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
            for node in ast.walk(tree(path))
            if isinstance(node, ast.Call) and isinstance(node.func, (ast.Attribute, ast.Name))
        }
        if called & names:
            found.append(str(path))
    return found


def _modules(names: list[str]) -> str:
    return f"{len(names)}: {', '.join(names)}" if names else "0"


# --- waiting ------------------------------------------------------------------------------------


def _is_coroutine(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return isinstance(function, ast.AsyncFunctionDef)


def _gives_steps(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return function.returns is not None and "Steps" in ast.unparse(function.returns)


def _takes_callback(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether it has a parameter that is called with a result and returns nothing."""
    arguments = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    texts = (ast.unparse(one.annotation) for one in arguments if one.annotation is not None)
    return any(re.search(r"Callable\[.*, None\]", text) for text in texts)


STYLES: dict[str, Callable[[ast.FunctionDef | ast.AsyncFunctionDef], bool]] = {
    "coroutines": _is_coroutine,
    "generators of steps": _gives_steps,
    "functions with a callback": _takes_callback,
}
"""Each style of waiting, and how a function of that style is known."""


def twins(paths: list[Path]) -> int:
    """How many functions a class or module has twice, once to call and once as steps."""
    return sum(
        f"{name}_steps" in names
        for names in (_names_in(scope) for path in paths for scope in _scopes(path))
        for name in names
    )


def _scopes(path: Path) -> Iterator[ast.Module | ast.ClassDef]:
    module = tree(path)
    yield module
    yield from (node for node in ast.walk(module) if isinstance(node, ast.ClassDef))


def _names_in(scope: ast.Module | ast.ClassDef) -> set[str]:
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return {node.name for node in scope.body if isinstance(node, kinds)}


# --- repeated passages --------------------------------------------------------------------------


def repeated_passages(paths: list[Path]) -> tuple[int, int]:
    """How many passages of code stand elsewhere too, letter for letter, and their lines.

    Indentation, empty lines, comments, docstrings and imports do not count. Each copy counts.
    """
    code = {path: _code_lines(path) for path in paths}
    windows = Counter(window for lines in code.values() for window in _windows(lines))
    passages = covered = 0
    for lines in code.values():
        last = -1
        for start, window in enumerate(_windows(lines)):
            if windows[window] > 1:
                passages += start > last
                covered += start + PASSAGE_LINES - max(start, last)
                last = start + PASSAGE_LINES
    return passages, covered


def _windows(lines: list[str]) -> Iterator[tuple[str, ...]]:
    for start in range(len(lines) - PASSAGE_LINES + 1):
        yield tuple(lines[start : start + PASSAGE_LINES])


def _code_lines(path: Path) -> list[str]:
    left_out: set[int] = set()
    for node in ast.walk(tree(path)):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_text or isinstance(node, (ast.Import, ast.ImportFrom)):
            assert isinstance(node, ast.stmt)
            left_out.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return [
        text
        for number, line in enumerate(source(path).splitlines(), 1)
        if number not in left_out and (text := line.strip()) and not text.startswith("#")
    ]


def table(checkouts: list[Path]) -> str:
    """The figures of all checkouts side by side, in Markdown."""
    columns: list[dict[str, str]] = []
    for checkout in checkouts:
        look_at(checkout)
        columns.append(figures())
    names: dict[str, None] = {}
    for column in reversed(columns):
        names |= dict.fromkeys(column)
    cells: dict[str, list[str]] = defaultdict(list)
    for column in columns:
        for name in names:
            cells[name].append(column.get(name, "-"))
    head = " | ".join(("figure", *(checkout.name for checkout in checkouts)))
    lines = [f"| {head} |", f"|{'---|' * (len(columns) + 1)}"]
    lines += [f"| {name} | {' | '.join(values)} |" for name, values in cells.items()]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkouts", nargs="*", type=Path, metavar="CHECKOUT")
    arguments = parser.parse_args()
    missing = [str(one) for one in arguments.checkouts if not (one / "storage").is_dir()]
    if missing:
        parser.error(f"{missing[0]} is no checkout of Tidelog: it has no folder storage")
    sys.stdout.write(table([*arguments.checkouts, ROOT]))
    return 0


if __name__ == "__main__":
    sys.exit(main())

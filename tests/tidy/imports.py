"""The import graph of the packages: `python -m tests.tidy.imports` prints its figures.

Every import counts, also one inside a function or for types only: a reader follows them all.
"""

import ast
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.tidy.tree import PACKAGES, body_lines, python_files, source, tree

Graph = Mapping[str, set[str]]


def module_name(path: Path) -> str:
    """The dotted name of a file; a package's `__init__` is the package."""
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def import_graph() -> dict[str, set[str]]:
    """Each module of the packages with those of them that it imports."""
    files = {module_name(path): path for path in python_files(*PACKAGES)}
    graph: dict[str, set[str]] = {}
    for name, path in files.items():
        found: set[str] = set()
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    found.add(inner if inner in files else node.module)
        graph[name] = {other for other in found if other in files and other != name}
    return graph


def circles(graph: Graph) -> list[list[str]]:
    """Groups of modules that import one another, directly or not (Tarjan)."""
    numbers: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        numbers[name] = lowest[name] = len(numbers)
        stack.append(name)
        for other in graph[name]:
            if other not in numbers:
                visit(other)
                lowest[name] = min(lowest[name], lowest[other])
            elif other in stack:
                lowest[name] = min(lowest[name], numbers[other])
        if lowest[name] == numbers[name]:
            group = [stack.pop()]
            while group[-1] != name:
                group.append(stack.pop())
            if len(group) > 1:
                found.append(sorted(group))

    sys.setrecursionlimit(10_000)
    for name in graph:
        if name not in numbers:
            visit(name)
    return found


def children(graph: Graph, package: str) -> dict[str, set[str]]:
    """The graph between the direct children of `package`, sub-packages taken as one."""
    lifted: dict[str, set[str]] = defaultdict(set)
    prefix = f"{package}."
    for name, others in graph.items():
        if name.startswith(prefix):
            child = name.removeprefix(prefix).partition(".")[0]
            lifted[child] |= {
                other.removeprefix(prefix).partition(".")[0]
                for other in others
                if other.startswith(prefix)
            } - {child}
    return dict(lifted)


def floors(graph: Graph) -> int:
    """The longest chain of imports in a graph without circles, counted in nodes."""
    heights: dict[str, int] = {}

    def height(name: str) -> int:
        if name not in heights:
            heights[name] = 1 + max((height(other) for other in graph[name]), default=0)
        return heights[name]

    return max(map(height, graph), default=0)


def modules_per_folder() -> dict[str, int]:
    """Folder of the packages to the modules in it, `__init__` left out."""
    counts: dict[str, int] = defaultdict(int)
    for path in python_files(*PACKAGES):
        if path.name != "__init__.py":
            counts[str(path.parent)] += 1
    return dict(counts)


def _figures(paths: Iterable[Path]) -> str:
    paths = list(paths)
    lines = [source(path).count("\n") for path in paths]
    functions = sorted(
        body_lines(node)
        for path in paths
        for node in ast.walk(tree(path))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    )
    return (
        f"{len(paths)} | {sum(lines):,} | {sum(n > 450 for n in lines)} | "
        f"{statistics.median(functions):.0f} / {functions[len(functions) * 9 // 10]} / "
        f"{functions[-1]}"
    )


def main() -> int:
    """Print the table."""
    graph = import_graph()
    write = sys.stdout.write
    write(f"{len(graph)} modules, {len(circles(graph))} circles\n\n")
    write("| package | files | lines | over 450 lines | functions med / p90 / max | floors |\n")
    write("|---|---|---|---|---|---|\n")
    for package in PACKAGES:
        inner = children(graph, package)
        height = "circle" if circles(inner) else floors(inner)
        write(f"| {package} | {_figures(python_files(package))} | {height} |\n")
    write(f"| all | {_figures(python_files(*PACKAGES))} | |\n")
    tests, product = (
        sum(source(path).count("\n") for path in python_files(*folders))
        for folders in (("tests",), PACKAGES)
    )
    write(f"\ntests: {tests:,} lines, {tests / product:.2f} of the packages'\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

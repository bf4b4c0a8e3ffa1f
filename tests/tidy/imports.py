"""The import graph of the packages. `tests.tidy.figures` prints what it says.

Every import counts, also one inside a function or for types only: a reader follows them all.
"""

import ast
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from tests.tidy.tree import PACKAGES, python_files, tree

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


def within(graph: Graph, package: str) -> dict[str, set[str]]:
    """The graph between the modules of `package`."""
    inner = {name for name in graph if f"{name}.".startswith(f"{package}.")}
    return {name: graph[name] & inner for name in inner}


def floors(graph: Graph) -> int:
    """The longest chain of imports, counted in nodes. A circle is one node."""
    first_of = {name: circle[0] for circle in circles(graph) for name in circle}
    lifted: dict[str, set[str]] = defaultdict(set)
    for name, others in graph.items():
        node = first_of.get(name, name)
        lifted[node] |= {first_of.get(other, other) for other in others} - {node}
    heights: dict[str, int] = {}

    def height(name: str) -> int:
        if name not in heights:
            heights[name] = 1 + max((height(other) for other in lifted[name]), default=0)
        return heights[name]

    return max(map(height, list(lifted)), default=0)


def modules_per_folder() -> dict[str, int]:
    """Folder of the packages to the modules in it, `__init__` left out."""
    counts: dict[str, int] = defaultdict(int)
    for path in python_files(*PACKAGES):
        if path.name != "__init__.py":
            counts[str(path.parent)] += 1
    return dict(counts)

"""The tree as the tidy tests see it: tracked files, parsed once."""

import ast
import functools
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "values",
    "config",
    "protocol",
    "storage",
    "broker",
    "client",
    "cli",
    "console",
    "tidelog",
    "pipeline",
)


def look_at(root: Path) -> None:
    """Take the tree of another checkout for everything below, until the next call."""
    global ROOT
    ROOT = root.resolve()
    for cached in (tracked_files, source, tree):
        cached.cache_clear()


@functools.cache
def tracked_files() -> tuple[Path, ...]:
    """Files that git tracks or would track, relative to the root; all files without git."""
    try:
        listing = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        names = [Path(line) for line in listing.splitlines()]
    except (OSError, subprocess.CalledProcessError):
        names = [path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file()]
    return tuple(name for name in names if (ROOT / name).is_file())


def python_files(*folders: str) -> list[Path]:
    """Tracked Python files below `folders`, relative to the root."""
    return [name for name in tracked_files() if name.suffix == ".py" and name.parts[0] in folders]


def packages() -> list[str]:
    """Those of `PACKAGES` that the tree has."""
    return [name for name in PACKAGES if python_files(name)]


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """All functions and methods of a file, also those inside others."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [node for node in ast.walk(tree(path)) if isinstance(node, kinds)]


@functools.cache
def source(path: Path) -> str:
    """Text of the file at `path`, which is relative to the root."""
    return (ROOT / path).read_text(encoding="utf-8")


@functools.cache
def tree(path: Path) -> ast.Module:
    """Syntax tree of the Python file at `path`, which is relative to the root."""
    return ast.parse(source(path), filename=str(path))


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function from its signature on, without its docstring."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines

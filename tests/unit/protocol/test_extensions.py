"""A mix of compiled modules and sources starts, from the sources; a build makes all or none."""

import os
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from protocol.extensions import PATHS

ROOT = Path(__file__).parents[3]
MODULES = tuple(path.replace("/", ".") for path in PATHS)
SUFFIX = EXTENSION_SUFFIXES[0]
LOADED = """
import sys
from importlib import import_module
modules = [import_module(name) for name in sys.argv[1].split(",")]
print(sum(module.COMPILED for module in modules))
"""
SHARED = (MODULES[0], MODULES[5], MODULES[7])


def extension(root: Path, name: str) -> Path:
    return root.joinpath(*name.split(".")).with_suffix(SUFFIX)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The packages, with the extensions of this checkout."""
    wanted = ["broker", "config", "pipeline", "protocol", "storage"]
    quiet = shutil.ignore_patterns("__pycache__")
    for name in wanted:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=quiet)
    if not all(extension(tmp_path, name).exists() for name in MODULES):
        pytest.skip("not compiled here; the plain sources are what runs")
    return tmp_path


def compiled(tree: Path, names: tuple[str, ...]) -> int:
    """How many of `names` are compiled when they are imported in this order."""
    command = [sys.executable, "-c", LOADED, ",".join(names)]
    ended = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return int(ended.stdout)


def test_all_run_compiled_where_all_extensions_are(tree: Path) -> None:
    assert compiled(tree, MODULES) == len(MODULES)


@pytest.mark.parametrize("missing", [MODULES[6], *SHARED[::2], *MODULES[-2:]])
def test_without_one_extension_all_run_from_their_sources(tree: Path, missing: str) -> None:
    extension(tree, missing).unlink()
    assert compiled(tree, MODULES[::-1]) == 0


@pytest.mark.parametrize("only", SHARED)
def test_one_extension_alone_is_not_loaded(tree: Path, only: str) -> None:
    for name in MODULES:
        if name != only:
            extension(tree, name).unlink()
    assert compiled(tree, (*MODULES[-2:], *MODULES)) == 0


def test_a_build_that_fails_leaves_no_extension(tree: Path) -> None:
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree / name)
    # The compiler succeeds once.
    compiler = tree / "cc"
    compiler.write_text(
        "#!/bin/sh\n"
        'case "$*" in *entry_loops*) exit 1;; esac\n'
        'while [ "$1" != -o ]; do shift; done\n'
        ': > "$2"\n'
    )
    compiler.chmod(0o755)
    ended = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=tree,
        env=os.environ | {"CC": str(compiler), "LDSHARED": str(compiler)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "entry_loops could not be compiled" in ended.stdout
    assert list(tree.rglob(f"*{SUFFIX}")) == []

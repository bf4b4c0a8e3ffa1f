"""Which compiled modules an installation lacks; without a C compiler they run as plain Python."""

import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final

from protocol import extensions

_PREFIX: Final = __name__.rpartition("cli.")[0]  # empty in the checkout

NAMES: Final = tuple(_PREFIX + path.replace("/", ".") for path in extensions.PATHS)

_LOADED: Final[tuple[ModuleType, ...]] = tuple(
    import_module(name)
    for name in NAMES
    if not name.startswith(f"{_PREFIX}pipeline.")  # Spark's: a broker starts sooner without it
)

SLOWER: Final = f"{extensions.SLOWER} (tidelog docs install)"


def how_to_compile() -> str:
    """What to do so that the modules are compiled on this machine."""
    import shutil
    import sysconfig

    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "install Python's headers (on Debian and Ubuntu: python3-dev), then tidelog again"
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) or shutil.which("cc"):
        return "install tidelog again; TIDELOG_COMPILE=required says why it does not compile"
    return "install a C compiler, then tidelog again"


def missing_loops() -> Sequence[str]:
    """The names of the modules that are not compiled here: all or none (`protocol.extensions`)."""
    return () if all(module.COMPILED for module in _LOADED) else NAMES

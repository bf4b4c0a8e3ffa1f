"""Which compiled modules an installation lacks; without a C compiler they run as plain Python."""

from collections.abc import Sequence
from importlib import import_module
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


def missing_loops() -> Sequence[str]:
    """The names of the modules that are not compiled here: all or none (`protocol.extensions`)."""
    return () if all(module.COMPILED for module in _LOADED) else NAMES

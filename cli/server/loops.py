"""Which compiled modules an installation lacks; without a C compiler they run as plain Python."""

from importlib import import_module
from types import ModuleType
from typing import Final

from protocol import extensions

_PREFIX: Final = __name__.rpartition("cli.")[0]  # empty in the checkout

MODULES: Final[tuple[ModuleType, ...]] = tuple(
    import_module(_PREFIX + path.replace("/", "."))
    for path in extensions.PATHS
    if not path.startswith("pipeline/")  # needs what only Spark's users install
)

SLOWER: Final = f"{extensions.SLOWER} (tidelog docs install)"


def missing_loops() -> list[str]:
    """The names of the modules that are not compiled here."""
    return [module.__name__ for module in MODULES if not module.COMPILED]

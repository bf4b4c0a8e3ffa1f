"""Modules that are loaded at their first use: a start loads no code that most brokers never need.

    if TYPE_CHECKING:
        from broker.groups.share import records
    else:
        records = Later(".share.records")

Types are checked as for a usual import. Annotations with names of the module stand in quotes, since
an annotation that is evaluated would load it.
"""

from importlib import import_module
from typing import Any


class Later:
    """Stands for a module; the first name that is taken from it loads it."""

    def __init__(self, name: str) -> None:
        """`name` is relative to this package, whose own name the wheel changes."""
        self._name = name

    def __getattr__(self, name: str) -> Any:
        """A name of the module. Raises AttributeError, as the module does."""
        found = getattr(import_module(self._name, __package__), name)
        setattr(self, name, found)
        return found

"""Messages with something in every field, made from the declarations.

``sample`` fills what a version carries and leaves the rest at its default, so that a decoded
message equals the one that was encoded. Values differ from field to field: two fields that were
swapped would be noticed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

from protocol.api import NOT_DECLARED, message_class
from protocol.api_keys import SUPPORTED, ApiKey
from protocol.declare.primitives import (
    BOOL,
    FLOAT64,
    INT8,
    STRING,
    UUID,
    Direction,
    Element,
    FieldSpec,
    Scalar,
    Variable,
    field_specs,
    message_spec,
)

DECLARED = tuple(key for key in ApiKey if key not in NOT_DECLARED)


@dataclass(frozen=True, slots=True)
class Layout:
    """One (message class, version): what the codec has to get right byte for byte."""

    cls: type
    version: int

    @property
    def key(self) -> ApiKey:
        return message_spec(self.cls).api_key

    @property
    def direction(self) -> Direction:
        return message_spec(self.cls).direction

    @property
    def is_flexible(self) -> bool:
        return self.version >= message_spec(self.cls).flexible_since

    def __str__(self) -> str:
        return f"{self.cls.__name__}-v{self.version}"


def layouts() -> Iterator[Layout]:
    """Every declared layout, in key order; not those older than what is served."""
    for key in DECLARED:
        for direction in Direction:
            cls = message_class(key, direction)
            oldest = SUPPORTED[key].min
            for version in range(oldest, message_spec(cls).max_version + 1):
                yield Layout(cls, version)


LAYOUTS = tuple(layouts())


class Filler:
    """Makes messages; ``nulls`` puts null wherever a version allows it, ``length`` sizes arrays."""

    def __init__(self, version: int, *, nulls: bool = False, length: int = 2) -> None:
        self._version = version
        self._nulls = nulls
        self._length = length
        self._numbers = count(1)

    def fill(self, cls: type) -> Any:
        """A message or struct of type ``cls``."""
        values = {
            name: self._field(spec)
            for name, spec in field_specs(cls)
            if spec.present_in(self._version)
        }
        return cls(**values)

    def _field(self, spec: FieldSpec) -> Any:
        if self._nulls and spec.nullable_in(self._version):
            return None
        if spec.is_array:
            return [self._element(spec.element) for _ in range(self._length)]
        return self._element(spec.element)

    def _element(self, element: Element) -> Any:
        number = next(self._numbers)
        if isinstance(element, Scalar):
            return self._scalar(element, number)
        if isinstance(element, Variable):
            return f"text-é-{number}" if element is STRING else b"bytes-%d" % number
        return self.fill(element)

    @staticmethod
    def _scalar(element: Scalar, number: int) -> Any:
        if element is BOOL:
            return number % 3 != 0
        if element is UUID:
            return number.to_bytes(16, "little")
        if element is FLOAT64:
            return number + 0.5
        # Small enough for int8 and for every error code, never zero.
        return number % 100 + 1 if element is INT8 or element.size == 2 else number + 1000


def sample(layout: Layout, *, nulls: bool = False, length: int = 2) -> Any:
    """A message of ``layout`` with something in every field it carries."""
    return Filler(layout.version, nulls=nulls, length=length).fill(layout.cls)

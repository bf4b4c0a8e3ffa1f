"""The plan of a message in one version: which values follow each other, and how each travels.

`structure` derives it from the declarations of ``protocol.api``. Both codecs are made from it, so
each layout is stated once: ``protocol.declare.compiled`` writes straight-line code from it, and
``protocol.declare.schema`` makes the construct tree that explains faults. A plan is facts only, and
needs no construct.

Source: Kafka message specifications, KIP-482.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from protocol.declare import primitives
from protocol.declare.primitives import BYTES, FieldSpec, Scalar, Variable
from values.dataclasses import dataclass

MAX_STRING_BYTES: Final = 32767
"""Longest string of either encoding; the compact one could hold more, but Kafka refuses it."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """A value of fixed size: its letters in a big-endian ``struct`` format."""

    letters: str

    @property
    def size(self) -> int:
        """Bytes on the wire."""
        return struct.calcsize(f">{self.letters}")


class CompactLength:
    """A length or count of a flexible version: an unsigned varint, one more than the number."""

    __slots__ = ()


INT16: Final = Fixed("h")
INT32: Final = Fixed("i")
COMPACT: Final = CompactLength()


@dataclass(slots=True, eq=False)
class Blob:
    """Length-prefixed bytes: the types bytes and records, and the base of strings.

    Attributes:
        prefix: how the length travels; negative means null.
        nullable: whether null is legal in this version.
        is_records: whether compiled code may hand out a view instead of a copy.
    """

    prefix: Fixed | CompactLength
    nullable: bool
    is_records: bool = False


class Text(Blob):
    """A UTF-8 string of at most ``MAX_STRING_BYTES`` bytes."""

    __slots__ = ()


@dataclass(slots=True, eq=False)
class Sequence:
    """A counted array of one element type.

    Attributes:
        prefix: how the count travels; negative means null.
        element: the plan of one element.
        nullable: whether null is legal in this version.
        least: the fewest bytes one element can take, at least 1; bounds the count.
        pre_encoded: whether bytes may be encoded in place of an element.
    """

    prefix: Fixed | CompactLength
    element: Node
    nullable: bool
    least: int
    pre_encoded: bool


@dataclass(slots=True, eq=False)
class MaybeStructure:
    """A struct that may be null: one signed byte, negative for null, before the body."""

    body: Structure


@dataclass(slots=True, eq=False)
class Tagged:
    """One declared tagged field: its number, attribute, plan and the value that is not sent."""

    tag: int
    name: str
    node: Node
    default: Any


@dataclass(slots=True, eq=False)
class Structure:
    """A dataclass in one version: its plain fields in order, then its tag section if flexible.

    Attributes:
        cls: the dataclass that is built from, or taken apart into, the fields.
        members: (attribute, plan) of every untagged field this version carries.
        tags: the tagged fields this version knows, in ascending order of tag.
        flexible: whether a tag section follows; unknown tags in it are skipped.
    """

    cls: type
    members: tuple[tuple[str, Node], ...]
    tags: tuple[Tagged, ...]
    flexible: bool


Node = Fixed | Blob | Sequence | MaybeStructure | Structure


def fixed_format(node: Node | CompactLength) -> str | None:
    """The ``struct`` letters of a value of fixed size, None for any other."""
    return node.letters if isinstance(node, Fixed) else None


def least_size(node: Node | CompactLength) -> int:
    """The fewest bytes a value can take on the wire."""
    if isinstance(node, Fixed):
        return node.size
    if isinstance(node, Structure):
        return sum(least_size(member) for _, member in node.members) + node.flexible
    if isinstance(node, Blob | Sequence):
        return least_size(node.prefix)
    return 1


def structure(cls: type, version: int, message: type | None = None) -> Structure:
    """The plan of a declared message in ``version``.

    Of a nested struct, ``message`` is the one that it is in.
    """
    flexible = version >= primitives.layout_spec(message or cls).flexible_since
    return _structure(cls, version, flexible=flexible)


def _structure(cls: type, version: int, *, flexible: bool) -> Structure:
    members: list[tuple[str, Node]] = []
    tags: list[Tagged] = []
    for name, spec in primitives.field_specs(cls):
        if not spec.present_in(version):
            continue
        node = _field_node(spec, version, flexible=flexible)
        if spec.tag is None:
            members.append((name, node))
        elif flexible:
            tags.append(Tagged(spec.tag, name, node, getattr(cls(), name)))
    tags.sort(key=lambda tagged: tagged.tag)
    return Structure(cls, tuple(members), tuple(tags), flexible=flexible)


def _field_node(spec: FieldSpec, version: int, *, flexible: bool) -> Node:
    nullable = spec.nullable_in(version)
    if not spec.is_array:
        return _element_node(spec.element, version, nullable=nullable, flexible=flexible)
    element = _element_node(spec.element, version, nullable=False, flexible=flexible)
    prefix = COMPACT if flexible else INT32
    least = max(1, least_size(element))
    return Sequence(prefix, element, nullable=nullable, least=least, pre_encoded=spec.pre_encoded)


def _element_node(element: Any, version: int, *, nullable: bool, flexible: bool) -> Node:
    if isinstance(element, Scalar):
        return Fixed(element.format)
    if isinstance(element, Variable):
        if not element.wide:
            return Text(COMPACT if flexible else INT16, nullable=nullable)
        prefix = COMPACT if flexible else INT32
        return Blob(prefix, nullable=nullable, is_records=element is not BYTES)
    body = _structure(element, version, flexible=flexible)
    return MaybeStructure(body) if nullable else body

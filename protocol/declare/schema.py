"""The construct codec of every message, derived from its declaration.

This is the only importer of construct. It turns the declarations of ``protocol.api`` into a tree of
construct nodes, one tree per (class, version): plain ``FormatField`` and ``Bytes`` for values of
fixed size, and seven nodes of our own for encodings that are specific to Kafka. The nodes yield our
dataclasses rather than construct's containers.

The tree serves three purposes. Interpreted, it is the reference codec: short enough to be checked
against the specification by eye, and the oracle in every test of the faster ones. It also explains
faults: when fast code fails on a broken message, the same bytes are run through the tree, which
knows the path and position of the fault. And it is the plan from which
``protocol.declare.compiled`` writes straight-line code, so each layout is stated once. Interpreting
is an order of magnitude slower than the compiled form and never on the path of a valid message.

No claimed size is allocated unchecked. A count is compared with the remaining bytes divided by the
smallest size of an element, a length with the remaining bytes. Nesting is as deep as the
declaration and no deeper.

Source: Kafka message specifications, KIP-482; construct 2.10 documentation.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any, Final

import construct

from protocol.declare import primitives, varint
from protocol.declare.primitives import BYTES, FieldSpec, Scalar, Variable
from protocol.errors import MalformedRequest

MAX_STRING_BYTES: Final = 32767
"""Longest string of either encoding; the compact one could hold more, but Kafka refuses it."""


class UnsignedVarint(construct.Construct):  # type: ignore[misc]
    """An unsigned number of up to 32 bits in one to five bytes."""

    def _parse(self, stream: Any, context: Any, path: str) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte: int = construct.stream_read(stream, 1, path)[0]
            value |= (byte & 127) << shift
            if byte < 128:
                if value > varint.MAX_UNSIGNED:
                    raise construct.IntegerError(f"varint {value} exceeds 32 bits", path=path)
                return value
        raise construct.IntegerError("varint longer than 5 bytes", path=path)

    def _build(self, obj: int, stream: Any, context: Any, path: str) -> int:
        try:
            data = varint.encode_unsigned(obj)
        except ValueError as error:
            raise construct.IntegerError(str(error), path=path) from error
        construct.stream_write(stream, data, len(data), path)
        return obj


class CompactLength(construct.Construct):  # type: ignore[misc]
    """A length or count of a flexible version: stored plus one, so that zero can mean null."""

    _parse_raw = UnsignedVarint()

    def _parse(self, stream: Any, context: Any, path: str) -> int:
        return int(self._parse_raw._parse(stream, context, path)) - 1

    def _build(self, obj: int, stream: Any, context: Any, path: str) -> int:
        self._parse_raw._build(obj + 1, stream, context, path)
        return obj


_STRUCTURES: Final[dict[tuple[type, int, bool], Structure]] = {}
_INT8: Final = construct.FormatField(">", "b")
_INT16: Final = construct.FormatField(">", "h")
_INT32: Final = construct.FormatField(">", "l")
_COMPACT: Final = CompactLength()
_VARINT: Final = UnsignedVarint()


@dataclass(eq=False)
class _Node(construct.Construct):  # type: ignore[misc]
    """A node of ours, with its facts as fields."""

    def __post_init__(self) -> None:
        super().__init__()


@dataclass(eq=False)
class Blob(_Node):
    """Length-prefixed bytes: the types bytes and records, and the base of strings.

    Attributes:
        prefix: how the length travels; negative means null.
        nullable: whether null is legal in this version.
        is_records: whether compiled code may hand out a view instead of a copy.
    """

    prefix: Any
    nullable: bool
    is_records: bool = False

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        length = self.prefix._parse(stream, context, path)
        if length < 0:
            _check_null(self.nullable, path)
            return None
        _check_room(length, stream, path)
        return construct.stream_read(stream, length, path)

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        if obj is None:
            _check_null(self.nullable, path)
            self.prefix._build(-1, stream, context, path)
            return obj
        try:
            data = bytes(memoryview(obj))
        except TypeError as error:
            raise construct.StringError(f"not bytes: {type(obj).__name__}", path=path) from error
        self.prefix._build(len(data), stream, context, path)
        construct.stream_write(stream, data, len(data), path)
        return obj


class Text(Blob):
    """A UTF-8 string of at most ``MAX_STRING_BYTES`` bytes."""

    def _parse(self, stream: Any, context: Any, path: str) -> str | None:
        data = super()._parse(stream, context, path)
        if data is None:
            return None
        _check_string_length(len(data), path)
        try:
            return str(data, "utf-8")
        except UnicodeDecodeError as error:
            raise construct.StringError(f"not UTF-8: {error.reason}", path=path) from error

    def _build(self, obj: str | None, stream: Any, context: Any, path: str) -> str | None:
        if obj is None:
            super()._build(None, stream, context, path)
            return None
        try:
            data = obj.encode()
        except (AttributeError, UnicodeEncodeError) as error:
            raise construct.StringError("not encodable text", path=path) from error
        _check_string_length(len(data), path)
        super()._build(data, stream, context, path)
        return obj


@dataclass(eq=False)
class Sequence(_Node):
    """A counted array of one element type.

    Attributes:
        prefix: how the count travels; negative means null.
        element: the node of one element.
        nullable: whether null is legal in this version.
        least: the fewest bytes one element can take, at least 1; bounds the count.
        pre_encoded: whether bytes may be built instead of an element.
    """

    prefix: Any
    element: Any
    nullable: bool
    least: int
    pre_encoded: bool

    def _parse(self, stream: Any, context: Any, path: str) -> list[Any] | None:
        count = self.prefix._parse(stream, context, path)
        if count < 0:
            _check_null(self.nullable, path)
            return None
        _check_room(count * self.least, stream, path)
        return [self.element._parse(stream, context, f"{path}[{index}]") for index in range(count)]

    def _build(self, obj: list[Any] | None, stream: Any, context: Any, path: str) -> Any:
        if obj is None:
            _check_null(self.nullable, path)
            self.prefix._build(-1, stream, context, path)
            return obj
        self.prefix._build(len(obj), stream, context, path)
        for index, item in enumerate(obj):
            if self.pre_encoded and isinstance(item, bytes):
                construct.stream_write(stream, item, len(item), path)
            else:
                self.element._build(item, stream, context, f"{path}[{index}]")
        return obj


@dataclass(eq=False)
class MaybeStructure(_Node):
    """A struct that may be null: one signed byte, negative for null, before the body."""

    body: Structure

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        if _INT8._parse(stream, context, path) < 0:
            return None
        return self.body._parse(stream, context, path)

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        _INT8._build(-1 if obj is None else 1, stream, context, path)
        if obj is not None:
            self.body._build(obj, stream, context, path)
        return obj


@dataclass(frozen=True, slots=True)
class Tagged:
    """One declared tagged field: its number, attribute, codec and the value that is not sent."""

    tag: int
    name: str
    node: Any
    default: Any


@dataclass(eq=False)
class Structure(_Node):
    """A dataclass in one version: its plain fields in order, then its tag section if flexible.

    Attributes:
        cls: the dataclass that is built from, or taken apart into, the fields.
        members: (attribute, node) of every untagged field this version carries.
        tags: the tagged fields this version knows, in ascending order of tag.
        flexible: whether a tag section follows; unknown tags in it are skipped.
    """

    cls: type
    members: tuple[tuple[str, Any], ...]
    tags: tuple[Tagged, ...]
    flexible: bool

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        values = {
            name: node._parse(stream, context, f"{path}.{name}") for name, node in self.members
        }
        if self.flexible:
            values.update(self._parse_tags(stream, context, path))
        return self.cls(**values)

    def _parse_tags(self, stream: Any, context: Any, path: str) -> dict[str, Any]:
        known = {tagged.tag: tagged for tagged in self.tags}
        values = {}
        count = _VARINT._parse(stream, context, path)
        _check_room(count * 2, stream, path)
        for _ in range(count):
            tag = _VARINT._parse(stream, context, path)
            size = _VARINT._parse(stream, context, path)
            _check_room(size, stream, path)
            end = stream.tell() + size
            tagged = known.get(tag)
            if tagged is None:
                stream.seek(end)
                continue
            place = f"{path}.{tagged.name}"
            values[tagged.name] = tagged.node._parse(stream, context, place)
            if stream.tell() != end:
                raise construct.ValidationError(f"tag {tag} is not {size} bytes long", path=place)
        return values

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        if not isinstance(obj, self.cls):
            raise construct.ValidationError(
                f"expected {self.cls.__name__}, found {type(obj).__name__}", path=path
            )
        for name, node in self.members:
            node._build(getattr(obj, name), stream, context, f"{path}.{name}")
        if self.flexible:
            self._build_tags(obj, stream, context, path)
        return obj

    def _build_tags(self, obj: Any, stream: Any, context: Any, path: str) -> None:
        sent = [t for t in self.tags if getattr(obj, t.name) != t.default]
        _VARINT._build(len(sent), stream, context, path)
        for tagged in sent:
            place = f"{path}.{tagged.name}"
            body = io.BytesIO()
            tagged.node._build(getattr(obj, tagged.name), body, context, place)
            data = body.getvalue()
            _VARINT._build(tagged.tag, stream, context, place)
            _VARINT._build(len(data), stream, context, place)
            construct.stream_write(stream, data, len(data), place)


def _check_null(nullable: bool, path: str) -> None:
    # Any negative length is null, as in Kafka; only -1 is ever written.
    if not nullable:
        raise construct.ValidationError("null is not allowed here", path=path)


def _check_room(needed: int, stream: Any, path: str) -> None:
    left = len(stream.getbuffer()) - stream.tell()
    if needed > left:
        raise construct.StreamError(f"claims at least {needed} bytes, {left} are left", path=path)


def _check_string_length(length: int, path: str) -> None:
    if length > MAX_STRING_BYTES:
        raise construct.StringError(
            f"string of {length} bytes exceeds {MAX_STRING_BYTES}", path=path
        )


def fixed_format(node: Any) -> str | None:
    """The ``struct`` letters of a node of fixed size, None for any other node."""
    if isinstance(node, construct.FormatField):
        return str(node.fmtstr[1:])
    if isinstance(node, construct.Bytes):
        return f"{node.length}s"
    return None


def least_size(node: Any) -> int:
    """The fewest bytes a value of this node can take on the wire."""
    if isinstance(node, Structure):
        return sum(least_size(member) for _, member in node.members) + node.flexible
    if isinstance(node, (Blob, Sequence)):
        return 1 if node.prefix is _COMPACT else int(node.prefix.length)
    if isinstance(node, MaybeStructure):
        return 1
    return int(node.sizeof())


def structure(cls: type, version: int, message: type | None = None) -> Structure:
    """The tree of a declared message in ``version``; built at first use, then kept.

    Of a nested struct, ``message`` is the one that it is in.
    """
    flexible = version >= primitives.layout_spec(message or cls).flexible_since
    known = _STRUCTURES.get((cls, version, flexible))
    if known is None:
        known = _structure(cls, version, flexible=flexible)
        _STRUCTURES[cls, version, flexible] = known
    return known


def _structure(cls: type, version: int, *, flexible: bool) -> Structure:
    members: list[tuple[str, Any]] = []
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


def _field_node(spec: FieldSpec, version: int, *, flexible: bool) -> Any:
    nullable = spec.nullable_in(version)
    if not spec.is_array:
        return _element_node(spec.element, version, nullable=nullable, flexible=flexible)
    element = _element_node(spec.element, version, nullable=False, flexible=flexible)
    prefix = _COMPACT if flexible else _INT32
    least = max(1, least_size(element))
    return Sequence(prefix, element, nullable=nullable, least=least, pre_encoded=spec.pre_encoded)


def _element_node(element: Any, version: int, *, nullable: bool, flexible: bool) -> Any:
    if isinstance(element, Scalar):
        if element is primitives.UUID:
            return construct.Bytes(element.size)
        return construct.FormatField(">", _CONSTRUCT_LETTERS.get(element.format, element.format))
    if isinstance(element, Variable):
        if not element.wide:
            return Text(_COMPACT if flexible else _INT16, nullable=nullable)
        prefix = _COMPACT if flexible else _INT32
        return Blob(prefix, nullable=nullable, is_records=element is not BYTES)
    body = _structure(element, version, flexible=flexible)
    return MaybeStructure(body) if nullable else body


_CONSTRUCT_LETTERS: Final = {"i": "l"}
"""construct spells a 32-bit integer with the letter that is 32 bits wide in standard sizes."""


def decode(cls: type, version: int, buf: memoryview, position: int) -> tuple[Any, int]:
    """The message at ``position`` and the position after it, by interpreting the tree.

    Raises:
        MalformedRequest: the bytes do not match the layout; names message, field and position.
    """
    stream = io.BytesIO(buf)
    stream.seek(position)
    try:
        value = structure(cls, version)._parse(stream, None, "")
    except construct.ConstructError as error:
        raise _explained(cls, version, stream.tell(), error) from error
    return value, stream.tell()


def encode(value: Any, version: int, message: type | None = None) -> bytes:
    """The bytes of ``value``, by interpreting the tree: a message, or a struct of ``message``.

    Raises:
        MalformedRequest: a value does not fit its declared type; names message and field.
    """
    stream = io.BytesIO()
    try:
        structure(type(value), version, message)._build(value, stream, None, "")
    except construct.ConstructError as error:
        raise _explained(type(value), version, stream.tell(), error) from error
    return stream.getvalue()


def _explained(
    cls: type, version: int, position: int, error: construct.ConstructError
) -> MalformedRequest:
    field = (error.path or "").removeprefix(".")
    problem = str(error).rpartition("\n")[2]
    return MalformedRequest(f"{cls.__name__} v{version}", field, position, problem)

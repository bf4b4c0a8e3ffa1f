"""The construct codec of every message, made from its plan.

This is the only importer of construct. It turns a plan of ``protocol.declare.layout`` into a tree
of construct nodes, one tree per (class, version): plain ``FormatField`` and ``Bytes`` for values of
fixed size, and seven nodes of our own for encodings that are specific to Kafka. The nodes yield our
dataclasses rather than construct's containers.

The tree serves two purposes. Interpreted, it is the reference codec: short enough to be checked
against the specification by eye, and the oracle in every test of the faster ones. It also explains
faults: when fast code fails on a broken message, the same bytes are run through the tree, which
knows the path and position of the fault. Interpreting is an order of magnitude slower than the
compiled form and never on the path of a valid message, so a broker imports construct with the first
broken one.

No claimed size is allocated unchecked. A count is compared with the remaining bytes divided by the
smallest size of an element, a length with the remaining bytes. Nesting is as deep as the
declaration and no deeper.

Source: Kafka message specifications, KIP-482; construct 2.10 documentation.
"""

from __future__ import annotations

import io
from functools import cache
from typing import Any, Final

import construct

from protocol.declare import layout, varint
from protocol.declare.layout import MAX_STRING_BYTES
from protocol.errors import MalformedRequest


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


_INT8: Final = construct.FormatField(">", "b")
_COMPACT: Final = CompactLength()
_VARINT: Final = UnsignedVarint()


class _Blob(construct.Construct):  # type: ignore[misc]
    """See `layout.Blob`."""

    def __init__(self, plan: layout.Blob) -> None:
        super().__init__()
        self.prefix = node_of(plan.prefix)
        self.nullable = plan.nullable

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


class _Text(_Blob):
    """See `layout.Text`."""

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


class _Sequence(construct.Construct):  # type: ignore[misc]
    """See `layout.Sequence`."""

    def __init__(self, plan: layout.Sequence) -> None:
        super().__init__()
        self.prefix = node_of(plan.prefix)
        self.element = node_of(plan.element)
        self.nullable = plan.nullable
        self.least = plan.least
        self.pre_encoded = plan.pre_encoded

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


class _MaybeStructure(construct.Construct):  # type: ignore[misc]
    """See `layout.MaybeStructure`."""

    def __init__(self, plan: layout.MaybeStructure) -> None:
        super().__init__()
        self.body = _Structure(plan.body)

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        if _INT8._parse(stream, context, path) < 0:
            return None
        return self.body._parse(stream, context, path)

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        _INT8._build(-1 if obj is None else 1, stream, context, path)
        if obj is not None:
            self.body._build(obj, stream, context, path)
        return obj


class _Structure(construct.Construct):  # type: ignore[misc]
    """See `layout.Structure`."""

    def __init__(self, plan: layout.Structure) -> None:
        super().__init__()
        self.cls = plan.cls
        self.members = [(name, node_of(member)) for name, member in plan.members]
        self.tags = [(tagged, node_of(tagged.node)) for tagged in plan.tags]
        self.flexible = plan.flexible

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        values = {
            name: node._parse(stream, context, f"{path}.{name}") for name, node in self.members
        }
        if self.flexible:
            values.update(self._parse_tags(stream, context, path))
        return self.cls(**values)

    def _parse_tags(self, stream: Any, context: Any, path: str) -> dict[str, Any]:
        known = {tagged.tag: (tagged.name, node) for tagged, node in self.tags}
        values = {}
        count = _VARINT._parse(stream, context, path)
        _check_room(count * 2, stream, path)
        for _ in range(count):
            tag = _VARINT._parse(stream, context, path)
            size = _VARINT._parse(stream, context, path)
            _check_room(size, stream, path)
            end = stream.tell() + size
            if tag not in known:
                stream.seek(end)
                continue
            name, node = known[tag]
            place = f"{path}.{name}"
            values[name] = node._parse(stream, context, place)
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
        sent = [it for it in self.tags if getattr(obj, it[0].name) != it[0].default]
        _VARINT._build(len(sent), stream, context, path)
        for tagged, node in sent:
            place = f"{path}.{tagged.name}"
            body = io.BytesIO()
            node._build(getattr(obj, tagged.name), body, context, place)
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


def node_of(plan: layout.Node | layout.CompactLength) -> Any:
    """The construct node of one value."""
    if isinstance(plan, layout.CompactLength):
        return _COMPACT
    if isinstance(plan, layout.Fixed):
        if plan.letters.endswith("s"):
            return construct.Bytes(plan.size)
        return construct.FormatField(">", _CONSTRUCT_LETTERS.get(plan.letters, plan.letters))
    return _NODES[type(plan)](plan)


_NODES: Final[dict[type, Any]] = {
    layout.Blob: _Blob,
    layout.Text: _Text,
    layout.Sequence: _Sequence,
    layout.MaybeStructure: _MaybeStructure,
    layout.Structure: _Structure,
}

_CONSTRUCT_LETTERS: Final = {"i": "l"}
"""construct spells a 32-bit integer with the letter that is 32 bits wide in standard sizes."""


@cache
def tree(cls: type, version: int, message: type | None = None) -> Any:
    """The construct tree of a declared message in ``version``; built at first use, then kept.

    Of a nested struct, ``message`` is the one that it is in.
    """
    return _Structure(layout.structure(cls, version, message))


def decode(cls: type, version: int, buf: memoryview, position: int) -> tuple[Any, int]:
    """The message at ``position`` and the position after it, by interpreting the tree.

    Raises:
        MalformedRequest: the bytes do not match the layout; names message, field and position.
    """
    stream = io.BytesIO(buf)
    stream.seek(position)
    try:
        value = tree(cls, version)._parse(stream, None, "")
    except construct.ConstructError as error:
        raise _explained(cls, version, stream.tell(), error) from error
    return value, stream.tell()


def encode(value: Any, version: int, message: type | None = None) -> bytes:
    """The bytes of ``value``, by interpreting the tree: a message, or a struct of ``message``.

    Raises:
        MalformedRequest: a value does not fit its declared type; names message and field.
    """
    stream = io.BytesIO()
    cls: type = type(value)
    try:
        tree(cls, version, message)._build(value, stream, None, "")
    except construct.ConstructError as error:
        raise _explained(cls, version, stream.tell(), error) from error
    return stream.getvalue()


def _explained(
    cls: type, version: int, position: int, error: construct.ConstructError
) -> MalformedRequest:
    field = (error.path or "").removeprefix(".")
    problem = str(error).rpartition("\n")[2]
    return MalformedRequest(f"{cls.__name__} v{version}", field, position, problem)

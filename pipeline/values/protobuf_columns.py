"""Protobuf messages as columns.

A field with presence that is not set is null, one without has its default. Enums are their names,
unsigned numbers have a type that holds all of them, and what no column can be is JSON text:
messages that contain themselves, `Any`, `Struct` and messages without fields.

Source: Protocol Buffers language guide; Spark 4.3 `from_protobuf` for the types.
"""

import datetime as dt
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from client.serde.errors import BadValue
from client.serde.protobuf import ProtobufSchema
from pipeline.values.shapes import TIMESTAMP, Convert, Shape, list_shape

_REPEATED: Final = 3
_GROUP_AND_MESSAGE: Final = (10, 11)
_ENUM: Final = 14
_UINT64: Final = (4, 6)
_SCALARS: Final[dict[int, pa.DataType]] = {
    1: pa.float64(), 2: pa.float32(), 3: pa.int64(), 5: pa.int32(), 7: pa.int64(), 8: pa.bool_(),
    9: pa.string(), 12: pa.binary(), 13: pa.int64(), 15: pa.int32(), 16: pa.int64(),
    17: pa.int32(), 18: pa.int64(),
}  # fmt: skip
"""By the numbers of `FieldDescriptorProto.Type`."""
_WELL_KNOWN: Final = "google.protobuf."
_WRAPPERS: Final = frozenset(
    f"{_WELL_KNOWN}{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_AS_JSON: Final = frozenset(
    f"{_WELL_KNOWN}{name}" for name in ("Any", "FieldMask", "ListValue", "Struct", "Value")
)


def protobuf_shape(schema: ProtobufSchema, kind: Any) -> Shape:
    """The column of a message type of the schema."""
    return _Shapes(schema).message(kind, ())


class _Shapes:
    """The shapes of one schema's types."""

    def __init__(self, schema: ProtobufSchema) -> None:
        self._pool = schema.pool

    def message(self, kind: Any, inside: tuple[str, ...]) -> Shape:
        name = kind.full_name
        if name == f"{_WELL_KNOWN}Timestamp":
            return Shape(TIMESTAMP, _micros, self._maker(kind, "FromDatetime"))
        if name == f"{_WELL_KNOWN}Duration":
            return Shape(pa.duration("us"), _micros, self._maker(kind, "FromTimedelta"))
        if name in _AS_JSON or name in inside or not kind.fields:
            return self._json(kind)
        if name in _WRAPPERS:
            inner = self.single(kind.fields_by_name["value"], inside)
            plain, wire, make = inner.plain or _same, inner.wire or _same, _class_of(kind)
            return Shape(
                inner.arrow, lambda one: plain(one.value), lambda value: make(value=wire(value))
            )
        return self._struct(kind, (*inside, name))

    def _struct(self, kind: Any, inside: tuple[str, ...]) -> Shape:
        from google.protobuf import descriptor_pb2

        proto = descriptor_pb2.DescriptorProto()
        kind.CopyToProto(proto)
        lists = {one.name for one in proto.field if one.label == _REPEATED}
        shapes = {
            field.name: (self._several if field.name in lists else self.single)(field, inside)
            for field in kind.fields
        }
        ways = [
            (field.name, field.name not in lists and field.has_presence, shapes[field.name].plain)
            for field in kind.fields
        ]
        wires = {name: shape.wire or _same for name, shape in shapes.items()}
        make = _class_of(kind)

        def plain(value: Any) -> dict[str, Any]:
            out = {}
            for name, has_presence, convert in ways:
                if has_presence and not value.HasField(name):
                    continue
                found = getattr(value, name)
                out[name] = convert(found) if convert else found
            return out

        def wire(value: dict[str, Any]) -> Any:
            out = {name: wires[name](one) for name, one in value.items() if one is not None}
            try:
                return make(**out)
            except (TypeError, ValueError) as error:
                raise BadValue(f"{kind.full_name}: {error}") from error

        arrow = pa.struct([pa.field(name, shape.arrow) for name, shape in shapes.items()])
        return Shape(arrow, plain, wire)

    def _several(self, field: Any, inside: tuple[str, ...]) -> Shape:
        """The column of a repeated field."""
        if field.message_type and field.message_type.GetOptions().map_entry:
            return self._map(field.message_type, inside)
        element = self.single(field, inside)
        return list_shape(
            element._replace(plain=element.plain or _same, wire=element.wire or _same)
        )

    def single(self, field: Any, inside: tuple[str, ...]) -> Shape:
        """The column of one value of a field."""
        if field.type in _GROUP_AND_MESSAGE:
            return self.message(field.message_type, inside)
        if field.type == _ENUM:
            names = {value.number: value.name for value in field.enum_type.values}
            # A number without a name is of a newer schema; it keeps its number.
            return Shape(
                pa.string(),
                lambda number: names.get(number, str(number)),
                lambda name: int(name) if name.lstrip("-").isdigit() else name,
            )
        if field.type in _UINT64:
            return Shape(pa.decimal128(20, 0), Decimal, int)
        return Shape(_SCALARS[field.type])

    def _map(self, entry: Any, inside: tuple[str, ...]) -> Shape:
        key = self.single(entry.fields_by_name["key"], inside)
        value = self.single(entry.fields_by_name["value"], inside)
        arrow = pa.map_(pa.field("key", key.arrow, nullable=False), pa.field("value", value.arrow))

        def pairs(source: Any, first: Convert | None, second: Convert | None) -> Any:
            convert_key, convert = first or _same, second or _same
            return [(convert_key(one), convert(other)) for one, other in source]

        return Shape(
            arrow,
            lambda found: pairs(found.items(), key.plain, value.plain),
            lambda found: dict(pairs(found, key.wire, value.wire)),
        )

    def _json(self, kind: Any) -> Shape:
        from google.protobuf import json_format

        make, pool = _class_of(kind), self._pool

        def plain(value: Any) -> str:
            try:
                text: str = json_format.MessageToJson(
                    value, indent=None, preserving_proto_field_name=True, descriptor_pool=pool
                )
            except (json_format.Error, TypeError, KeyError, RecursionError) as error:
                raise BadValue(f"{kind.full_name}: {error}") from error
            return text

        def wire(text: str) -> Any:
            try:
                return json_format.Parse(text, make(), descriptor_pool=pool)
            except json_format.Error as error:
                raise BadValue(f"{kind.full_name}: {error}") from error

        return Shape(pa.string(), plain, wire)

    def _maker(self, kind: Any, method: str) -> Convert:
        make = _class_of(kind)

        def build(value: dt.datetime | dt.timedelta) -> Any:
            message = make()
            getattr(message, method)(value)
            return message

        return build


def _class_of(kind: Any) -> Any:
    from google.protobuf import message_factory

    return message_factory.GetMessageClass(kind)


def _micros(value: Any) -> int:
    return int(value.seconds * 1_000_000 + value.nanos // 1000)


def _same(value: Any) -> Any:
    return value

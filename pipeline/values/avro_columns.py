"""Avro schemas as columns, with the types that Spark's own Avro reader gives them.

Differs from it where a value would lose its meaning: UUIDs, and decimals of more digits than Spark
has, are their text; times of day are numbers of their unit.

Source: Apache Avro 1.12 specification; Spark 4.3 `SchemaConverters` for the types.
"""

import datetime as dt
import uuid
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from client.serde.avro import AvroSchema, standalone
from client.serde.errors import BadSchema
from pipeline.values.shapes import (
    TIMESTAMP,
    Convert,
    Shape,
    list_shape,
    map_shape,
    struct_shape,
)

_PRIMITIVES: Final[dict[str, pa.DataType]] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_WIDENED: Final = {frozenset(("int", "long")): "long", frozenset(("float", "double")): "double"}
_DECIMAL_DIGITS: Final = 38


def _day_time(unit_us: int) -> Convert:
    def count(value: dt.time) -> int:
        seconds = value.hour * 3600 + value.minute * 60 + value.second
        return (seconds * 1_000_000 + value.microsecond) // unit_us

    return count


_LOGICAL: Final[dict[tuple[str, str], Shape]] = {
    ("int", "date"): Shape(pa.date32()),
    ("long", "timestamp-millis"): Shape(TIMESTAMP),
    ("long", "timestamp-micros"): Shape(TIMESTAMP),
    ("long", "local-timestamp-millis"): Shape(pa.timestamp("us")),
    ("long", "local-timestamp-micros"): Shape(pa.timestamp("us")),
    ("int", "time-millis"): Shape(pa.int32(), _day_time(1000)),
    ("long", "time-micros"): Shape(pa.int64(), _day_time(1)),
    ("string", "uuid"): Shape(pa.string(), str),
    ("fixed", "uuid"): Shape(
        pa.string(), lambda data: str(uuid.UUID(bytes=data)), lambda text: uuid.UUID(text).bytes
    ),
}
"""By the types of the bytes and of the meaning."""


def avro_shape(schema: AvroSchema) -> Shape:
    """The column of a schema.

    Raises:
        BadSchema: a type contains itself, which no column can.
    """
    return _shape(schema.tree, schema.named, ())


def _shape(node: Any, named: dict[str, Any], inside: tuple[str, ...]) -> Shape:
    if isinstance(node, list):
        return _union(node, named, inside)
    if isinstance(node, str):
        if node not in named:
            return Shape(_PRIMITIVES[node])
        if node in inside:
            raise BadSchema(f"the Avro type {node} contains itself, which no column can")
        node = named[node]
    kind = node["type"]
    logical = node.get("logicalType", "")
    if logical == "decimal":
        if node["precision"] > _DECIMAL_DIGITS:
            return Shape(pa.string(), str, Decimal)
        return Shape(pa.decimal128(node["precision"], node.get("scale", 0)))
    if isinstance(kind, str) and (kind, logical) in _LOGICAL:
        return _LOGICAL[kind, logical]
    return _compound(node, kind, named, inside)


def _compound(node: Any, kind: Any, named: dict[str, Any], inside: tuple[str, ...]) -> Shape:
    if kind in ("record", "error"):
        inner = (*inside, node["name"])
        return struct_shape(
            {field["name"]: _shape(field["type"], named, inner) for field in node["fields"]}
        )
    if kind == "array":
        return list_shape(_shape(node["items"], named, inside))
    if kind == "map":
        return map_shape(_shape(node["values"], named, inside))
    return _shape(kind, named, inside)


def _union(branches: list[Any], named: dict[str, Any], inside: tuple[str, ...]) -> Shape:
    """A nullable column; of several types a struct with one member for each."""
    others = [one for one in branches if one != "null"]
    if not others:
        return Shape(pa.null())
    if len(others) == 1:
        return _shape(others[0], named, inside)
    names = frozenset(one for one in others if isinstance(one, str))
    if len(names) == len(others) and names in _WIDENED:
        return Shape(_PRIMITIVES[_WIDENED[names]])
    members = {f"member{index}": _shape(one, named, inside) for index, one in enumerate(others)}
    tests = [standalone(one, named) for one in others]

    def plain(value: Any) -> dict[str, Any]:
        from fastavro.validation import validate

        for (name, shape), branch in zip(members.items(), tests, strict=True):
            if validate(value, branch, raise_errors=False):
                return {name: shape.plain(value) if shape.plain else value}
        raise BadSchema(f"a {type(value).__name__} is of no type of its union")

    def wire(value: dict[str, Any]) -> Any:
        for name, shape in members.items():
            if value.get(name) is not None:
                return shape.wire(value[name]) if shape.wire else value[name]
        return None

    arrow = pa.struct([pa.field(name, shape.arrow) for name, shape in members.items()])
    return Shape(arrow, plain, wire)

"""Avro values by the schemas of a registry: reading by two schemas, and writing.

Any producer may have written the bytes: lists of values without a byte are refused, because no size
bounds them, and a schema that contains itself is read by fastavro's decoder in Python, where deep
nesting is an error and not a crash.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from typing import Any, Final, NamedTuple

from client.serde.errors import BadSchema, BadValue
from client.serde.frame import FRAME_BYTES, framed

_LEVELS_MAX: Final = 100
"""Of lists and objects in the text of a schema."""


class AvroSchema(NamedTuple):
    """A parsed schema, and the records, enums and fixed types that it may name."""

    tree: Any
    named: dict[str, Any]


def parse_avro(files: Sequence[tuple[str, str]]) -> AvroSchema:
    """The last schema of `Registry.files_of`; those before it define types that it may name.

    Raises:
        BadSchema: one is no Avro schema, or allows endless values.
    """
    from fastavro.schema import SchemaParseException, UnknownType, parse_schema

    named: dict[str, Any] = {}
    tree: Any = None
    try:
        for _, text in files:
            tree = parse_schema(_bounded(json.loads(text)), named)
        if len(files) > 1:
            tree = standalone(tree, named)
    except (SchemaParseException, UnknownType, ValueError, TypeError, KeyError) as error:
        raise BadSchema(f"it is no Avro schema: {type(error).__name__}: {error}") from error
    except (AttributeError, RecursionError) as error:
        raise BadSchema(f"it is no Avro schema: {type(error).__name__}") from error
    _refuse_endless(tree, named)
    return AvroSchema(tree, named)


def _bounded(text: Any) -> Any:
    """`text`, if its lists and objects are not deeper than `_LEVELS_MAX`. Raises ValueError.

    fastavro walks a schema by recursion, and the limit of that depends on the process.
    """
    level, depth = [text], 0
    while level:
        if depth > _LEVELS_MAX:
            raise ValueError(f"it has more than {_LEVELS_MAX} levels of lists and objects")
        nested: list[Any] = []
        for node in level:
            if isinstance(node, dict):
                nested += node.values()
            elif isinstance(node, list):
                nested += node
        level, depth = nested, depth + 1
    return text


def avro_reader(writer: AvroSchema, reader: AvroSchema | None = None) -> Callable[[bytes], Any]:
    """A function from framed bytes of the schema `writer` to values of the schema `reader`.

    Avro's rules for schemas that have changed resolve one into the other. The function raises
    BadValue.
    """
    if _contains_itself(writer):
        from fastavro._read_py import schemaless_reader
    else:
        from fastavro import schemaless_reader
    wanted = None if reader is None else reader.tree

    def read(data: bytes) -> Any:
        try:
            return schemaless_reader(BytesIO(data[FRAME_BYTES:]), writer.tree, wanted)
        except (Exception, RecursionError) as error:
            raise BadValue(f"{type(error).__name__}: {error}") from error

    return read


def avro_writer(schema: AvroSchema, number: int) -> Callable[[Any], bytes]:
    """A function from values of a schema to bytes framed by its id; it raises BadValue."""
    from fastavro import schemaless_writer

    def write(value: Any) -> bytes:
        stream = BytesIO()
        try:
            schemaless_writer(stream, schema.tree, value)
        except (Exception, RecursionError) as error:
            raise BadValue(f"{type(error).__name__}: {error}") from error
        return framed(number, stream.getvalue())

    return write


def standalone(tree: Any, named: dict[str, Any]) -> Any:
    """A part of a parsed schema as a schema of its own, with the types that it names."""
    from fastavro.schema import parse_schema

    return parse_schema(_with_definitions(tree, named, set()))


def _with_definitions(node: Any, named: dict[str, Any], defined: set[str]) -> Any:
    """`node` with the definition of each imported type where it is first named."""
    if isinstance(node, str):
        is_import = node in named and node not in defined
        return _with_definitions(named[node], named, defined) if is_import else node
    if isinstance(node, list):
        return [_with_definitions(one, named, defined) for one in node]
    if not isinstance(node, dict):
        return node
    if "name" in node:
        defined.add(node["name"])
    out = {name: value for name, value in node.items() if not name.startswith("__")}
    for name in ("items", "values", "type"):
        if name in out:
            out[name] = _with_definitions(out[name], named, defined)
    if "fields" in out:
        fields = out["fields"]
        out["fields"] = [
            {**field, "type": _with_definitions(field["type"], named, defined)} for field in fields
        ]
    return out


def _contains_itself(schema: AvroSchema) -> bool:
    """Whether a named type has a value of its own type, directly or in others."""
    uses = {
        name: {node for node in _walk(one) if isinstance(node, str) and node in schema.named}
        for name, one in schema.named.items()
    }
    for name in uses:
        reached: set[str] = set()
        waiting = list(uses[name])
        while waiting:
            other = waiting.pop()
            if other not in reached:
                reached.add(other)
                waiting += uses[other]
        if name in reached:
            return True
    return False


def _walk(schema: Any) -> Iterator[Any]:
    waiting = [schema]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, dict):
            waiting += [node[name] for name in ("items", "values", "type") if name in node]
            waiting += [field.get("type") for field in node.get("fields", ())]


def _refuse_endless(tree: Any, named: dict[str, Any]) -> None:
    """Refuse a list whose elements take no bytes, so that no size bounds it."""
    known: dict[str, bool] = {}

    def takes_no_bytes(node: Any) -> bool:
        if isinstance(node, str):
            if node in named and node not in known:
                # While it is examined: a type that contains itself ends at a byte, or never.
                known[node] = False
                known[node] = takes_no_bytes(named[node])
            return known.get(node, node == "null")
        if not isinstance(node, dict):
            return False
        kind = node.get("type")
        if kind in ("record", "error"):
            return all(takes_no_bytes(field.get("type")) for field in node.get("fields", ()))
        if kind == "fixed":
            return not node.get("size")
        return kind not in ("array", "map", "enum") and takes_no_bytes(kind)

    for node in _walk([tree, *named.values()]):
        if isinstance(node, dict) and "items" in node and takes_no_bytes(node["items"]):
            raise BadSchema("its lists may hold values without a byte, which no size bounds")

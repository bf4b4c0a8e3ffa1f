"""JSON Schema as columns: objects, lists, maps, texts, numbers, booleans.

What has no one type of these (`oneOf`, mixed types, anything) is a column of JSON text. A value
must be of its column's type; other rules of the schema (patterns, bounds) are not checked, as
Confluent's readers do not check them by default.

Source: JSON Schema draft 2020-12.
"""

import json
from typing import Any, Final

import pyarrow as pa

from client.serde.errors import BadSchema, BadValue
from pipeline.values.shapes import Convert, Shape, list_shape, map_shape, optional

_SCALARS: Final[dict[str, tuple[pa.DataType, tuple[type, ...]]]] = {
    "string": (pa.string(), (str,)),
    "integer": (pa.int64(), (int,)),
    "number": (pa.float64(), (int, float)),
    "boolean": (pa.bool_(), (bool,)),
}
_REFERENCE: Final = "#/"


def json_shape(text: str) -> Shape:
    """The column of a schema.

    Raises:
        BadSchema: it is no JSON Schema of one type.
    """
    try:
        schema = json.loads(text)
        return _shape(schema, schema, "$", ())
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise BadSchema(f"it is no JSON Schema: {type(error).__name__}: {error}") from error


def _shape(node: Any, root: Any, path: str, inside: tuple[str, ...]) -> Shape:
    if not isinstance(node, dict):
        return _text()
    reference = node.get("$ref")
    if isinstance(reference, str):
        if not reference.startswith(_REFERENCE) or reference in inside:
            return _text()
        return _shape(_target(root, reference), root, path, (*inside, reference))
    for choice in ("oneOf", "anyOf"):
        if choice in node:
            others = [one for one in node[choice] if one != {"type": "null"}]
            return _shape(others[0], root, path, inside) if len(others) == 1 else _text()
    kind = node.get("type", "object" if "properties" in node else None)
    if isinstance(kind, list):
        kinds = [one for one in kind if one != "null"]
        kind = kinds[0] if len(kinds) == 1 else None
    if kind in _SCALARS:
        arrow, types = _SCALARS[kind]
        return Shape(arrow, _checked(types, path))
    return _compound(node, kind, root, path, inside)


def _target(root: Any, reference: str) -> Any:
    """What a reference into the same document names; {} where it names nothing."""
    for part in reference.removeprefix(_REFERENCE).split("/"):
        root = root.get(part, {}) if isinstance(root, dict) else {}
    return root


def _compound(node: Any, kind: Any, root: Any, path: str, inside: tuple[str, ...]) -> Shape:
    if kind == "array" and isinstance(node.get("items"), dict):
        element = _shape(node["items"], root, f"{path}[]", inside)
        return _guarded(list_shape(element), list, path)
    if kind == "object" and node.get("properties"):
        fields = {
            name: _shape(one, root, f"{path}.{name}", inside)
            for name, one in node["properties"].items()
        }
        return _object(fields, path)
    others = node.get("additionalProperties")
    if kind == "object" and isinstance(others, dict):
        return _guarded(map_shape(_shape(others, root, path, inside)), dict, path)
    return _text()


def _text() -> Shape:
    return Shape(pa.string(), json.dumps, json.loads)


def _checked(types: tuple[type, ...], path: str) -> Convert:
    def check(value: Any) -> Any:
        # True is an int in Python, and no number in JSON.
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise BadValue(f"{path} is {json.dumps(value)[:100]}, not a {types[0].__name__}")
        return value

    return check


def _guarded(shape: Shape, kind: type, path: str) -> Shape:
    check, plain = _checked((kind,), path), shape.plain
    return shape._replace(plain=lambda value: plain(check(value)) if plain else check(value))


def _object(fields: dict[str, Shape], path: str) -> Shape:
    check = _checked((dict,), path)

    def plain(value: Any) -> dict[str, Any]:
        check(value)
        return {
            name: optional(shape.plain, value.get(name)) if shape.plain else value.get(name)
            for name, shape in fields.items()
        }

    def wire(value: dict[str, Any]) -> dict[str, Any]:
        out = {}
        for name, inner in value.items():
            # A property without a value is absent: null is another value, and rarely allowed.
            if inner is not None:
                convert = fields[name].wire
                out[name] = convert(inner) if convert else inner
        return out

    arrow = pa.struct([pa.field(name, shape.arrow) for name, shape in fields.items()])
    return Shape(arrow, plain, wire)

"""What a schema is as a column: an Arrow type, and the way of a value into it and back."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa

Convert = Callable[[Any], Any]

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")

_WIDER: Final[dict[pa.DataType, frozenset[pa.DataType]]] = {
    pa.int16(): frozenset((pa.int8(),)),
    pa.int32(): frozenset((pa.int8(), pa.int16())),
    pa.int64(): frozenset((pa.int8(), pa.int16(), pa.int32())),
    pa.float64(): frozenset((pa.float32(),)),
}
"""Types by the narrower ones whose values they hold too."""


class Shape(NamedTuple):
    """A column's type and its conversions; neither is called with None.

    Attributes:
        arrow: the type.
        plain: from a decoded value to one that Arrow takes; None: it is one already.
        wire: from a value of an Arrow array to one that the encoder takes; None: it is one already.
    """

    arrow: pa.DataType
    plain: Convert | None = None
    wire: Convert | None = None


def optional(convert: Convert, value: Any) -> Any:
    """`value` converted, None as it is."""
    return None if value is None else convert(value)


def struct_shape(fields: Mapping[str, Shape]) -> Shape:
    """A struct of named fields; fields that a value lacks are null."""

    def conversion(converts: dict[str, Convert]) -> Convert | None:
        if not converts:
            return None

        def convert(value: dict[str, Any]) -> dict[str, Any]:
            out = dict(value)
            for name, inner in converts.items():
                if out.get(name) is not None:
                    out[name] = inner(out[name])
            return out

        return convert

    return Shape(
        pa.struct([pa.field(name, shape.arrow) for name, shape in fields.items()]),
        conversion({name: shape.plain for name, shape in fields.items() if shape.plain}),
        conversion({name: shape.wire for name, shape in fields.items() if shape.wire}),
    )


def list_shape(element: Shape) -> Shape:
    """A list of elements."""

    def conversion(convert: Convert | None) -> Convert | None:
        return convert and (lambda value: [optional(convert, one) for one in value])

    return Shape(
        pa.list_(pa.field("element", element.arrow)),
        conversion(element.plain),
        conversion(element.wire),
    )


def map_shape(value: Shape) -> Shape:
    """A map from texts."""
    plain, wire = value.plain or _same, value.wire or _same
    return Shape(
        pa.map_(pa.field("key", pa.string(), nullable=False), pa.field("value", value.arrow)),
        lambda pairs: [(key, optional(plain, one)) for key, one in pairs.items()],
        lambda pairs: {key: optional(wire, one) for key, one in pairs},
    )


def _same(value: Any) -> Any:
    return value


def misfits(have: pa.DataType, want: pa.DataType, name: str) -> list[str]:
    """Why a column of type `have` is not one of `want`: a sentence for each field."""
    if pa.types.is_struct(have) and pa.types.is_struct(want):
        found = []
        known = {field.name: field.type for field in want}
        for field in have:
            path = f"{name}.{field.name}"
            if field.name in known:
                found += misfits(field.type, known[field.name], path)
            else:
                found.append(f"{path} is not in the schema, which has {', '.join(known)}")
        return found
    if pa.types.is_list(have) and pa.types.is_list(want):
        return misfits(have.value_type, want.value_type, f"{name}[]")
    if pa.types.is_map(have) and pa.types.is_map(want):
        keys = misfits(have.key_type, want.key_type, f"{name} key")
        return keys + misfits(have.item_type, want.item_type, f"{name} value")
    if have == want or have in _WIDER.get(want, ()) or pa.types.is_null(have):
        return []
    return [f"{name} is {have}, and the schema takes {want}: cast it"]

"""For any message and any bytes: the compiled codec is the declared one, or our bug.

Messages are drawn from the declarations, so that a new API is covered by being declared.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import registry
from protocol.declare import compiled, schema
from protocol.declare.primitives import (
    DECODE_FAULTS,
    STRING,
    Decoder,
    Direction,
    Element,
    FieldSpec,
    Scalar,
    Variable,
    field_specs,
)
from protocol.errors import MalformedRequest
from tests.support.codec import decode_request, encode_body
from tests.unit.protocol.samples import LAYOUTS, Layout, sample

_INTEGERS = {"b": 8, "h": 16, "i": 32, "q": 64}
_LENGTHS = st.sampled_from([0, 1, 127, 128, 300])


def _scalars(element: Scalar) -> st.SearchStrategy[Any]:
    if element.format in _INTEGERS:
        bits = _INTEGERS[element.format] - 1
        return st.integers(-(2**bits), 2**bits - 1)
    if element.format == "H":
        return st.integers(0, 2**16 - 1)
    if element.format == "?":
        return st.booleans()
    if element.format == "d":
        return st.floats(allow_nan=False)
    return st.binary(min_size=element.size, max_size=element.size)


@cache
def _elements(element: Element, version: int) -> st.SearchStrategy[Any]:
    if isinstance(element, Scalar):
        return _scalars(element)
    if isinstance(element, Variable):
        if element is STRING:
            return st.text(max_size=9) | _LENGTHS.map(lambda length: "x" * length)
        return st.binary(max_size=9) | _LENGTHS.map(bytes)
    return structs(element, version)


def _fields(spec: FieldSpec, version: int) -> st.SearchStrategy[Any]:
    values = _elements(spec.element, version)
    if spec.is_array:
        values = st.lists(values, max_size=3)
    return st.none() | values if spec.nullable_in(version) else values


@cache
def structs(cls: type, version: int) -> st.SearchStrategy[Any]:
    """Any value of a declared dataclass, with defaults where the version carries nothing."""
    return st.builds(
        cls,
        **{
            name: _fields(spec, version)
            for name, spec in field_specs(cls)
            if spec.present_in(version)
        },
    )


@cache
def decoder(layout: Layout) -> Decoder:
    return compiled.write_decoder(layout.cls, layout.version)


@st.composite
def messages(draw: st.DrawFn) -> tuple[Layout, Any]:
    layout = draw(st.sampled_from(LAYOUTS))
    return layout, draw(structs(layout.cls, layout.version))


@settings(max_examples=300, deadline=None)
@given(messages())
def test_any_message_is_written_and_read_alike(drawn: tuple[Layout, Any]) -> None:
    layout, message = drawn
    data = schema.encode(message, layout.version)
    assert encode_body(message, layout.version) == data
    declared, end = schema.decode(layout.cls, layout.version, memoryview(data), 0)
    assert end == len(data)
    assert declared == message
    assert decoder(layout)(memoryview(data), 0, len(data)) == (message, end)


@st.composite
def damaged(draw: st.DrawFn) -> tuple[Layout, bytes]:
    """A healthy message with some bytes replaced, cut out, put in, or cut off."""
    layout = draw(st.sampled_from(LAYOUTS))
    message = sample(layout, nulls=draw(st.booleans()), length=draw(st.integers(0, 2)))
    data = bytearray(schema.encode(message, layout.version))
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.integers(0, 4)))
        data[start:end] = draw(st.binary(max_size=6))
    return layout, bytes(data[: draw(st.integers(0, len(data)))]) if draw(st.booleans()) else bytes(
        data
    )


@settings(max_examples=600, deadline=None)
@given(damaged())
def test_damaged_bytes_are_judged_alike(drawn: tuple[Layout, bytes]) -> None:
    layout, data = drawn
    try:
        fast, fast_end = decoder(layout)(memoryview(data), 0, len(data))
    except DECODE_FAULTS:
        with pytest.raises(MalformedRequest):
            schema.decode(layout.cls, layout.version, memoryview(data), 0)
        return
    declared, end = schema.decode(layout.cls, layout.version, memoryview(data), 0)
    assert fast_end == end
    # Compared as bytes, because a damaged float may be NaN, which equals nothing.
    assert schema.encode(fast, layout.version) == schema.encode(declared, layout.version)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(LAYOUTS), st.binary(max_size=60))
def test_arbitrary_bytes_raise_nothing_but_protocol_errors(layout: Layout, data: bytes) -> None:
    is_request = layout.direction is Direction.REQUEST
    with suppress(MalformedRequest):
        if is_request:
            decode_request(layout.key, layout.version, data)
        else:
            registry.decode_response(layout.key, layout.version, memoryview(data), 0)

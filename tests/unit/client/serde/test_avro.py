"""Avro by two schemas, and bytes and schemas that try to hurt the reader."""

import json
import struct
from io import BytesIO
from typing import Any

import fastavro
import pytest

from client.serde.avro import AvroSchema, avro_reader, avro_writer, parse_avro
from client.serde.errors import BadSchema, BadValue
from client.serde.frame import schema_id

FLIGHT: dict[str, Any] = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "tail", "type": "string"},
        {"name": "delay", "type": ["null", "int"]},
        {"name": "stops", "type": {"type": "array", "items": "string"}},
    ],
}
VALUE = {"tail": "N1", "delay": -3, "stops": ["JFK", "LGA"]}


def parsed(*schemas: object) -> AvroSchema:
    return parse_avro([("", json.dumps(schema)) for schema in schemas])


def framed(value: object, schema: Any = FLIGHT, number: int = 7) -> bytes:
    """As fastavro alone writes it."""
    stream = BytesIO()
    fastavro.schemaless_writer(stream, schema, value)
    return b"\0" + struct.pack(">i", number) + stream.getvalue()


def test_a_value_is_read_and_written_as_fastavro_does() -> None:
    schema = parsed(FLIGHT)
    assert avro_reader(schema)(framed(VALUE)) == VALUE
    assert avro_writer(schema, 7)(VALUE) == framed(VALUE)
    assert schema_id(framed(VALUE)) == 7
    assert schema_id(b"\1abcdef") is None
    assert schema_id(b"\0\0\0\0") is None


def test_a_schema_that_changed_is_resolved_into_the_readers() -> None:
    newer = {
        **FLIGHT,
        "fields": [
            {"name": "tail", "type": "string"},
            {"name": "delay", "type": ["null", "long"]},
            {"name": "airline", "type": "string", "default": "UA"},
        ],
    }
    found = avro_reader(parsed(FLIGHT), parsed(newer))(framed(VALUE))
    assert found == {"tail": "N1", "delay": -3, "airline": "UA"}
    back = avro_reader(parsed(newer), parsed(FLIGHT))
    # A long is no int, and the list has no default.
    with pytest.raises(BadValue, match=r"long.*not found"):
        back(framed({"tail": "N1", "delay": 1, "airline": "DL"}, newer))


def test_an_import_defines_a_type() -> None:
    delay = {"type": "record", "name": "a.Delay", "fields": [{"name": "m", "type": "int"}]}
    late = {"type": "record", "name": "b.Late", "fields": [{"name": "d", "type": "a.Delay"}]}
    schema = parsed(delay, late)
    data = avro_writer(schema, 1)({"d": {"m": 4}})
    assert data == b"\0\0\0\0\1\x08"
    assert avro_reader(schema)(data) == {"d": {"m": 4}}
    with pytest.raises(BadSchema, match="UnknownType"):
        parsed(late)


@pytest.mark.parametrize(
    "items",
    [
        "null",
        {"type": "record", "name": "Nothing", "fields": []},
        {"type": "fixed", "name": "F", "size": 0},
        {"type": "record", "name": "A", "fields": [{"name": "b", "type": "null"}]},
    ],
)
def test_a_list_of_nothing_is_refused(items: object) -> None:
    """A count of 2^40 elements without bytes would fill the memory."""
    with pytest.raises(BadSchema, match="without a byte"):
        parsed({"type": "array", "items": items})


def test_a_named_empty_type_is_found_by_its_name_and_in_an_import() -> None:
    empty = {"type": "record", "name": "E", "fields": []}
    fields = [{"name": "l", "type": {"type": "array", "items": "E"}}]
    inner = [{"name": "e", "type": empty}, *fields]
    with pytest.raises(BadSchema, match="without a byte"):
        parsed({"type": "record", "name": "R", "fields": inner})
    with pytest.raises(BadSchema, match="without a byte"):
        parsed(empty, {"type": "record", "name": "R", "fields": fields})


def test_types_that_double_at_each_level_take_no_time() -> None:
    """Each of forty types has two fields of the next: 2^40 ways through them."""
    schemas: list[object] = [{"type": "record", "name": "T0", "fields": []}]
    for level in range(1, 41):
        fields = [{"name": name, "type": f"T{level - 1}"} for name in "ab"]
        schemas.append({"type": "record", "name": f"T{level}", "fields": fields})
    avro_reader(parsed(*schemas))
    with pytest.raises(BadSchema, match="without a byte"):
        parsed(*schemas, {"type": "array", "items": "T40"})


CHAIN = {
    "type": "record",
    "name": "Chain",
    "fields": [{"name": "next", "type": ["null", "Chain"]}],
}


@pytest.mark.parametrize(
    "schemas", [[CHAIN], [CHAIN, {"type": "array", "items": "Chain"}]], ids=["itself", "in a list"]
)
def test_deep_nesting_ends_in_an_error(schemas: list[object]) -> None:
    """The decoder in C would end the process."""
    start = b"\x02" if len(schemas) > 1 else b""
    with pytest.raises(BadValue, match="RecursionError"):
        avro_reader(parsed(*schemas))(b"\0\0\0\0\1" + start + b"\x02" * 200_000)


def test_broken_bytes_and_broken_schemas_are_errors() -> None:
    with pytest.raises(BadValue, match=r"\w"):
        avro_reader(parsed(FLIGHT))(b"\0\0\0\0\1\xff\xff\xff")
    with pytest.raises(BadValue, match="tail"):
        avro_writer(parsed(FLIGHT), 1)({"delay": 1})
    for text in ("{", "[1]", '{"type": "record"}', '{"type": "flight"}', "7", "null"):
        with pytest.raises(BadSchema):
            parse_avro([("", text)])


@pytest.mark.parametrize("levels", [101, 500, 5000])
def test_a_schema_of_very_many_levels_is_refused(levels: int) -> None:
    """Whatever the limit of recursion is, which other libraries change."""
    text = '{"type":"array","items":' * levels + '"int"' + "}" * levels
    with pytest.raises(BadSchema):
        parse_avro([("", text)])
    parse_avro([("", '{"type":"array","items":' * 50 + '"int"' + "}" * 50)])

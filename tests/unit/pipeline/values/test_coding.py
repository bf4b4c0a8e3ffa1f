"""Columns by schemas of a registry, without Spark: every type, changed schemas, bad records."""

import datetime as dt
import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from client.serde.errors import BadSchema, BadValue, NoSuchSchema, RegistryUnreachable
from client.serde.registry import JSON, PROTOBUF, RegistryAddress
from pipeline.values.coding import Coder, find_schema
from tests.support.schema_registry import FakeRegistry, descriptor, fake_registry

UTC = dt.UTC
WHEN = dt.datetime(2013, 7, 4, 12, 30, 15, 250_000, UTC)


@pytest.fixture
def served() -> Iterator[FakeRegistry]:
    with fake_registry() as registry:
        yield registry


def coder(served: FakeRegistry, subject: str = "s", **options: Any) -> Coder:
    return Coder(find_schema(RegistryAddress(url=served.url), subject, **options))


def both(found: Coder, *data: bytes | None) -> tuple[list[Any], list[Any]]:
    """Values, and the bad ones."""
    array = found.decode(pa.array(data, pa.binary()))
    return array.field("value").to_pylist(), array.field("bad").to_pylist()


def there_and_back(found: Coder, value: Any) -> Any:
    """A value encoded and decoded again."""
    encoded = found.encode(pa.array([value, None], found.shape.arrow))
    assert encoded[1].as_py() is None
    values, bad = both(found, encoded[0].as_py(), None)
    assert bad == [None, None]
    assert values[1] is None
    return values[0]


def record(**fields: object) -> dict[str, Any]:
    named = [{"name": name, "type": kind} for name, kind in fields.items()]
    return {"type": "record", "name": "R", "fields": named}


AVRO_TYPES: list[tuple[Any, Any, pa.DataType]] = [
    ("string", "é", pa.string()),
    ("bytes", b"\0\xff", pa.binary()),
    ("int", -(2**31), pa.int32()),
    ("long", 2**63 - 1, pa.int64()),
    ("float", 0.5, pa.float32()),
    ("double", 1e300, pa.float64()),
    ("boolean", False, pa.bool_()),
    (["null", "int"], 4, pa.int32()),
    (["null", "int"], None, pa.int32()),
    (["int", "long"], 2**40, pa.int64()),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", pa.string()),
    ({"type": "fixed", "name": "F", "size": 2}, b"ab", pa.binary()),
    ({"type": "array", "items": "int"}, [1, 2], pa.list_(pa.field("element", pa.int32()))),
    ({"type": "map", "values": "long"}, [("a", 1)], None),
    ({"type": "array", "items": record(x="int")}, [{"x": 1}, {"x": 2}], None),
    ({"type": "int", "logicalType": "date"}, dt.date(2013, 7, 4), pa.date32()),
    ({"type": "long", "logicalType": "timestamp-millis"}, WHEN, pa.timestamp("us", "UTC")),
    ({"type": "long", "logicalType": "timestamp-micros"}, WHEN, pa.timestamp("us", "UTC")),
    (
        {"type": "long", "logicalType": "local-timestamp-micros"},
        WHEN.replace(tzinfo=None),
        pa.timestamp("us"),
    ),
    ({"type": "int", "logicalType": "time-millis"}, 86_399_999, pa.int32()),
    ({"type": "long", "logicalType": "time-micros"}, 86_399_999_999, pa.int64()),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
        Decimal("-12.34"),
        pa.decimal128(6, 2),
    ),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 45, "scale": 1},
        "1" * 44 + ".5",
        pa.string(),
    ),
    (
        {"type": "string", "logicalType": "uuid"},
        "12345678-1234-5678-1234-567812345678",
        pa.string(),
    ),
    (
        {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"},
        "12345678-1234-5678-1234-567812345678",
        pa.string(),
    ),
]


@pytest.mark.parametrize(("kind", "value", "arrow"), AVRO_TYPES, ids=lambda one: str(one)[:40])
def test_every_avro_type_is_a_column_and_comes_back(
    served: FakeRegistry, kind: Any, value: Any, arrow: pa.DataType | None
) -> None:
    served.register("s", {"type": "record", "name": "Top", "fields": [{"name": "f", "type": kind}]})
    found = coder(served)
    assert arrow is None or found.shape.arrow.field("f").type == arrow
    assert there_and_back(found, {"f": value}) == {"f": value}


def test_an_avro_union_of_several_types_is_a_struct_with_a_member_for_each(
    served: FakeRegistry,
) -> None:
    kinds = ["null", "string", "long", record(x="int"), {"type": "array", "items": "int"}]
    served.register(
        "s", {"type": "record", "name": "Top", "fields": [{"name": "f", "type": kinds}]}
    )
    found = coder(served)
    names = [field.name for field in found.shape.arrow.field("f").type]
    assert names == ["member0", "member1", "member2", "member3"]
    empty = dict.fromkeys(names)
    for member, value in zip(names, ("a", 7, {"x": 1}, [1, 2]), strict=True):
        assert there_and_back(found, {"f": {member: value}}) == {"f": {**empty, member: value}}
    assert there_and_back(found, {"f": None}) == {"f": None}


def test_an_avro_type_that_contains_itself_is_refused(served: FakeRegistry) -> None:
    served.register("s", record(next=["null", "R"]))
    with pytest.raises(BadSchema, match="R contains itself"):
        coder(served)


def test_older_and_newer_avro_records_have_the_columns_of_the_version_asked_for(
    served: FakeRegistry,
) -> None:
    old = record(tail="string", delay="int")
    new = record(tail="string", delay="long")
    new["fields"].append({"name": "airline", "type": "string", "default": "UA"})
    served.register("s", old)
    first = coder(served)
    data = [first.encode(pa.array([{"tail": "N1", "delay": 3}])).to_pylist()[0]]
    served.register("s", new)
    latest = coder(served)
    row = {"tail": "N2", "delay": 2**31, "airline": "DL"}
    data += latest.encode(pa.array([row])).to_pylist()
    values, bad = both(latest, *data)
    assert values == [{"tail": "N1", "delay": 3, "airline": "UA"}, row]
    assert bad == [None, None]
    # By the old version the newer record is a bad one: a long is no int.
    values, bad = both(coder(served, version=1), *data)
    assert values == [{"tail": "N1", "delay": 3}, None]
    assert (bad[1]["bytes"], bad[1]["schema_id"]) == (data[1], 2)


def test_bad_records_have_their_bytes_and_the_reason(served: FakeRegistry) -> None:
    number = served.register("s", record(tail="string", paid={
        "type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2,
    }))  # fmt: skip
    found = coder(served)
    good = found.encode(pa.array([{"tail": "N1", "paid": Decimal("1.00")}])).to_pylist()[0]
    text = served.register("other", '{"type": "object"}', JSON)
    frame = b"\0" + number.to_bytes(4, "big")
    wide = frame + b"\x04N9" + b"\x08\x7f\xff\xff\xff"
    data = [
        good, b"", b"plain text", frame, frame + b"\xff\xff", b"\0\0\0\x03\xe7x",
        b"\0" + text.to_bytes(4, "big") + b"{}", wide, None, good,
    ]  # fmt: skip
    values, bad = both(found, *data)
    row = {"tail": "N1", "paid": Decimal("1.00")}
    assert values == [row, *[None] * 8, row]
    for place, number_found, reason in (
        (1, None, "do not begin with 0"), (2, None, "do not begin with 0"),
        (3, number, "EOFError"), (4, number, "Error"), (5, 999, "404"),
        (6, text, f"schema {text} is JSON, not AVRO"), (7, number, "precision"),
    ):  # fmt: skip
        assert bad[place]["bytes"] == data[place]
        assert bad[place]["schema_id"] == number_found
        assert reason in bad[place]["error"], bad[place]
    assert [bad[place] for place in (0, 8, 9)] == [None] * 3


def test_missing_schemas_are_requested_once_a_batch_and_found_when_they_come(
    served: FakeRegistry,
) -> None:
    served.register("s", '"string"')
    found = coder(served)
    later = b"\0\0\0\0\2" + b"\x02a"
    served.asked.clear()
    assert both(found, *[later] * 50)[0] == [None] * 50
    assert served.asked == ["GET /schemas/ids/2"]
    served.register("s", {"type": "string", "doc": "newer"})
    for _ in range(2):
        assert both(found, *[later] * 50)[0] == ["a"] * 50
    assert served.asked == ["GET /schemas/ids/2"] * 2


def test_a_registry_that_fails_makes_no_record_bad(served: FakeRegistry) -> None:
    served.register("s", '"string"')
    found = coder(served)
    served.fails_with = 503
    with pytest.raises(RegistryUnreachable, match="503"):
        both(found, b"\0\0\0\0\2\x02a")
    served.fails_with = 0
    with pytest.raises(NoSuchSchema, match="Subject not found"):
        coder(served, "nothing")
    served.register("thrift", "struct", "THRIFT")
    with pytest.raises(BadSchema, match="THRIFT"):
        coder(served, "thrift")


DELAYS = """
    name: "delays.proto" package: "tide" syntax: "proto3"
    message_type {
      name: "Delay" field { name: "minutes" number: 1 label: LABEL_OPTIONAL type: TYPE_SINT32 }
    }
"""
FLIGHTS = """
    name: "flights.proto" package: "tide" syntax: "proto3"
    dependency: "delays.proto" dependency: "google/protobuf/timestamp.proto"
    dependency: "google/protobuf/duration.proto" dependency: "google/protobuf/wrappers.proto"
    dependency: "google/protobuf/struct.proto"
    message_type { name: "Other" field { name: "x" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING } }
    message_type {
      name: "Flight"
      nested_type {
        name: "Leg" field { name: "to" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
      }
      nested_type {
        name: "CrewEntry" options { map_entry: true }
        field { name: "key" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
        field { name: "value" number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE
                type_name: ".tide.Flight.Leg" }
      }
      enum_type {
        name: "State" value { name: "PLANNED" number: 0 } value { name: "AIRBORNE" number: 1 }
      }
      field { name: "tail" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
      field { name: "delay" number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".tide.Delay" }
      field { name: "at" number: 3 label: LABEL_OPTIONAL type: TYPE_MESSAGE
              type_name: ".google.protobuf.Timestamp" }
      field { name: "air" number: 4 label: LABEL_OPTIONAL type: TYPE_MESSAGE
              type_name: ".google.protobuf.Duration" }
      field { name: "gate" number: 5 label: LABEL_OPTIONAL type: TYPE_MESSAGE
              type_name: ".google.protobuf.UInt64Value" }
      field { name: "legs" number: 6 label: LABEL_REPEATED type: TYPE_MESSAGE
              type_name: ".tide.Flight.Leg" }
      field { name: "crew" number: 7 label: LABEL_REPEATED type: TYPE_MESSAGE
              type_name: ".tide.Flight.CrewEntry" }
      field { name: "state" number: 8 label: LABEL_OPTIONAL type: TYPE_ENUM
              type_name: ".tide.Flight.State" }
      field { name: "big" number: 9 label: LABEL_OPTIONAL type: TYPE_UINT64 }
      field { name: "extra" number: 10 label: LABEL_OPTIONAL type: TYPE_MESSAGE
              type_name: ".google.protobuf.Struct" }
      field { name: "before" number: 11 label: LABEL_OPTIONAL type: TYPE_MESSAGE
              type_name: ".tide.Flight" }
      field { name: "codes" number: 12 label: LABEL_REPEATED type: TYPE_FIXED32 }
      field { name: "maybe" number: 13 label: LABEL_OPTIONAL type: TYPE_INT32 proto3_optional: true
              oneof_index: 0 }
      field { name: "raw" number: 14 label: LABEL_OPTIONAL type: TYPE_BYTES }
      oneof_decl { name: "_maybe" }
    }
"""  # noqa: E501
FLIGHT: dict[str, Any] = {
    "tail": "N1",
    "delay": {"minutes": -5},
    "at": WHEN,
    "air": dt.timedelta(hours=5, microseconds=3),
    "gate": Decimal(2**64 - 1),
    "legs": [{"to": "JFK"}, {"to": "LGA"}],
    "crew": [("captain", {"to": "ORD"})],
    "state": "AIRBORNE",
    "big": Decimal(2**63),
    "extra": '{"a": [1.0, null]}',
    "before": '{"tail": "N0"}',
    "codes": [2**32 - 1],
    "maybe": 0,
    "raw": b"\xff\0",
}


@pytest.fixture
def flights(served: FakeRegistry) -> FakeRegistry:
    served.register("delays", descriptor(DELAYS), PROTOBUF)
    imports = [{"name": "delays.proto", "subject": "delays", "version": 1}]
    served.register("s", descriptor(FLIGHTS), PROTOBUF, imports)
    return served


def test_every_protobuf_type_is_a_column_and_comes_back(flights: FakeRegistry) -> None:
    found = coder(flights, message="Flight")
    assert there_and_back(found, FLIGHT) == FLIGHT
    encoded = found.encode(pa.array([FLIGHT], found.shape.arrow)).to_pylist()[0]
    # Type 1 of the file: a path of one step.
    assert encoded[5:7] == b"\x02\x02"
    assert coder(flights, message="tide.Flight").shape.arrow == found.shape.arrow
    assert there_and_back(coder(flights), {"x": "hi"}) == {"x": "hi"}
    assert there_and_back(coder(flights, message="Flight.Leg"), {"to": "SFO"}) == {"to": "SFO"}


def test_what_a_protobuf_message_does_not_set_is_null_or_its_default(flights: FakeRegistry) -> None:
    found = coder(flights, message="Flight")
    empty = there_and_back(found, dict.fromkeys(FLIGHT))
    unset = dict.fromkeys(("delay", "at", "air", "gate", "extra", "before", "maybe"))
    defaults = {
        "tail": "", "legs": [], "crew": [], "state": "PLANNED", "big": Decimal(0), "codes": [],
        "raw": b"",
    }  # fmt: skip
    assert empty == {**unset, **defaults}


def test_protobuf_records_of_other_types_and_versions(flights: FakeRegistry) -> None:
    newer = FLIGHTS.replace('type_name: ".google.protobuf.UInt64Value" }', (
        'type_name: ".google.protobuf.UInt64Value" }\n'
        'field { name: "added" number: 99 label: LABEL_OPTIONAL type: TYPE_STRING }'
    )).replace('name: "AIRBORNE" number: 1', 'name: "LANDED" number: 2')  # fmt: skip
    old = coder(flights, message="Flight")
    imports = [{"name": "delays.proto", "subject": "delays", "version": 1}]
    flights.register("s", descriptor(newer), PROTOBUF, imports)
    new = coder(flights, message="Flight")
    row = {"tail": "N2", "added": "x", "state": "LANDED"}
    (later,) = new.encode(pa.array([row])).to_pylist()
    (first,) = old.encode(pa.array([{"tail": "N1"}])).to_pylist()
    assert [one["added"] for one in both(new, first, later)[0]] == ["", "x"]
    # An enum's number without a name stays a number.
    assert [one["state"] for one in both(old, first, later)[0]] == ["PLANNED", "2"]
    (other,) = coder(flights, message="Other").encode(pa.array([{"x": "hi"}])).to_pylist()
    values, bad = both(old, other, first[:6] + b"\xff", b"\0\0\0\0\2\x02\x40", first[:5])
    assert values == [None] * 4
    reasons = [one["error"] for one in bad]
    assert "it is a tide.Other, not a tide.Flight" in reasons[0]
    assert "cut off" in reasons[1]
    assert "do not fit" in reasons[2]
    assert "cut off" in reasons[3]
    with pytest.raises(BadSchema, match="it has no message 'Nothing': it has Other, Flight"):
        coder(flights, message="Nothing")
    with pytest.raises(BadValue, match="LOST"):
        old.encode(pa.array([{"state": "LOST"}]))


JSON_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "tail": {"type": "string"},
        "delay": {"type": ["null", "integer"]},
        "paid": {"oneOf": [{"type": "null"}, {"type": "number"}]},
        "late": {"type": "boolean"},
        "stops": {"type": "array", "items": {"$ref": "#/$defs/stop"}},
        "crew": {"type": "object", "additionalProperties": {"type": "integer"}},
        "extra": {},
        "either": {"type": ["string", "integer"]},
    },
    "required": ["tail"],
    "$defs": {"stop": {"type": "object", "properties": {"at": {"type": "string"}}}},
}


def test_json_is_columns_and_comes_back(served: FakeRegistry) -> None:
    number = served.register("s", JSON_SCHEMA, JSON)
    found = coder(served)
    row = {
        "tail": "N1", "delay": 2**40, "paid": 1.5, "late": True, "stops": [{"at": "JFK"}],
        "crew": [("captain", 1)], "extra": '{"a": [null]}', "either": '"x"',
    }  # fmt: skip
    assert there_and_back(found, row) == row
    encoded = found.encode(pa.array([{"tail": "N1", "delay": None}])).to_pylist()[0]
    assert encoded == b"\0" + number.to_bytes(4, "big") + b'{"tail": "N1"}'
    frame = encoded[:5]
    data = [
        {"tail": "N1", "unknown": 1, "paid": 2}, {"tail": 7}, {"late": 1}, {"delay": True},
        {"delay": 2**63}, [1], {"stops": [{"at": 1}]}, {"crew": {"a": "b"}},
    ]  # fmt: skip
    values, bad = both(found, *(frame + json.dumps(one).encode() for one in data), frame + b"{")
    assert values == [{**dict.fromkeys(row), "tail": "N1", "paid": 2.0}, *[None] * 8]
    reasons = [one and one["error"] for one in bad]
    assert reasons[0] is None
    for reason, part in zip(
        reasons[1:],
        ("$.tail is 7", "$.late is 1", "$.delay is true", "", "$ is [1]", "$.stops[].at is 1",
         '$.crew is "b"', "no JSON"),
        strict=True,
    ):  # fmt: skip
        assert part in reason


def test_a_json_schema_that_contains_itself_is_text_where_it_does(served: FakeRegistry) -> None:
    node = {
        "type": "object",
        "properties": {"v": {"type": "integer"}, "next": {"$ref": "#/$defs/n"}},
    }
    served.register("s", {"$ref": "#/$defs/n", "$defs": {"n": node}}, JSON)
    found = coder(served)
    assert there_and_back(found, {"v": 1, "next": '{"v": 2}'}) == {"v": 1, "next": '{"v": 2}'}
    for text in ("{", "[1]", '{"type": "object", "properties": 1}'):
        served.register(text, text, JSON)
    with pytest.raises(BadSchema, match="no JSON Schema"):
        coder(served, "{")


def test_what_does_not_fit_a_schema_is_named_field_by_field(served: FakeRegistry) -> None:
    texts, numbers = {"type": "array", "items": "string"}, {"type": "map", "values": "int"}
    served.register("s", record(a="int", b=texts, c=numbers, d="long"))
    found = coder(served)
    have = pa.struct([
        ("a", pa.int64()), ("b", pa.list_(pa.int32())), ("c", pa.map_(pa.string(), pa.bool_())),
        ("d", pa.int16()), ("e", pa.int32()),
    ])  # fmt: skip
    assert found.misfits(have, "value") == [
        "value.a is int64, and the schema takes int32: cast it",
        "value.b[] is int32, and the schema takes string: cast it",
        "value.c value is bool, and the schema takes int32: cast it",
        "value.e is not in the schema, which has a, b, c, d",
    ]
    with pytest.raises(BadValue, match="a"):
        found.encode(pa.array([{"d": 1}]))


def test_fastavro_agrees_with_what_is_written(served: FakeRegistry) -> None:
    from io import BytesIO

    schema = record(at={"type": "long", "logicalType": "timestamp-millis"})
    served.register("s", schema)
    (data,) = coder(served).encode(pa.array([{"at": WHEN}])).to_pylist()
    assert fastavro.schemaless_reader(BytesIO(data[5:]), schema, None) == {"at": WHEN}

"""Keys and values as people read them, and bytes that try to hurt the reader."""

import asyncio
import base64
import json
import struct
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import BytesIO
from threading import Thread
from typing import Any

import fastavro
import msgpack
import pytest
from google.protobuf import descriptor_pb2, text_format
from hypothesis import given
from hypothesis import strategies as st

from console.data.decoders import (
    SHOWN_BYTES,
    portable,
    preview,
    shown,
    structure_of,
    text_of,
)
from console.data.registry import Registry

FLIGHT: dict[str, Any] = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "tail", "type": "string"},
        {"name": "delay", "type": ["null", "int"]},
        {"name": "stops", "type": {"type": "array", "items": "string"}},
    ],
}


def framed(value: object, schema: Any = FLIGHT, number: int = 7) -> bytes:
    stream = BytesIO()
    fastavro.schemaless_writer(stream, schema, value)
    return b"\0" + struct.pack(">i", number) + stream.getvalue()


@pytest.mark.parametrize(
    ("data", "name", "text"),
    [
        (b'{"a": [1, 2.5, null]}', "json", '{\n  "a": [\n    1,\n    2.5,\n    null\n  ]\n}'),
        (b"12345678901234567890", "json", "12345678901234567890"),
        (b"high water", "text", "high water"),
        ("Flut, Größe".encode(), "text", "Flut, Größe"),
        (b"", "text", ""),
        (msgpack.packb({"a": b"\xff", "b": [1]}), "msgpack", None),
        (b"\x00\x01\x02", "hex", None),
        (b"\xff\xfe", "hex", None),
        (b"line\x00end", "hex", None),
    ],
)
def test_guesses_the_format(data: bytes, name: str, text: str | None) -> None:
    found = shown(data)
    assert found["format"] == name
    assert text is None or found["text"] == text
    assert found["size"] == len(data)


def test_null_is_not_empty() -> None:
    assert shown(None)["format"] == "null"


def test_a_format_of_choice_that_does_not_fit_says_so() -> None:
    found = shown(b"\xff\xff", "json")
    assert found["format"] == "hex"
    assert "not json" in found["note"]
    assert shown(b"abc", "hex")["text"].startswith("00000000  61 62 63")


@pytest.mark.parametrize("data", [b"abc\xc2", b'{"a": 1}\xe2\x82', b"\xf0\x9f\x98"])
def test_bytes_that_end_in_a_part_of_a_character_are_no_text(data: bytes) -> None:
    """Else the last bytes would not be seen: two values that differ would look the same."""
    assert shown(data)["format"] == "hex"
    assert shown(data, "text")["note"] == "these bytes are not text"
    assert preview(data) == f"0x{data.hex()}"
    assert text_of(data) == data.hex()


def test_large_values_are_cut_and_small_characters_stay_whole() -> None:
    data = ("é" * SHOWN_BYTES).encode()
    found = shown(data)
    assert found["is_cut"]
    assert found["format"] == "text"
    assert found["size"] == 2 * SHOWN_BYTES
    assert shown(b"a" + data)["format"] == "text"


def test_deep_json_does_not_recurse() -> None:
    for deep in (b"[" * 200_000, b'{"a":' * 50_000, b"[" * 100 + b"]" * 100):
        assert shown(deep)["format"] == "text"
        assert structure_of(deep) is None
    assert shown(b"[" * 60 + b"]" * 60)["format"] == "json"
    assert shown(json.dumps("[" * 500).encode())["format"] == "json"


def test_deep_or_lying_msgpack_is_hex() -> None:
    assert shown(b"\x91" * 5000 + b"\xc0")["format"] == "hex"
    assert shown(b"\xdd\xff\xff\xff\xff")["format"] == "hex"  # claims 4 billion elements
    assert shown(b"\x93\x01\x02")["format"] != "msgpack"
    assert shown(msgpack.packb({"a": 1}) + b"x")["format"] != "msgpack"


def descriptor(text: str) -> str:
    file = text_format.Parse(text, descriptor_pb2.FileDescriptorProto())
    return base64.b64encode(file.SerializeToString()).decode()


DELAYS = """
    name: "default" package: "tide" syntax: "proto3"
    message_type {
      name: "Delay"
      field { name: "minutes" number: 1 label: LABEL_OPTIONAL type: TYPE_SINT32 }
    }
"""
FLIGHTS = """
    name: "default" package: "tide" syntax: "proto3"
    dependency: "delays.proto" dependency: "google/protobuf/timestamp.proto"
    message_type { name: "Other" field { name: "x" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING } }
    message_type {
      name: "Flights"
      nested_type {
        name: "Flight"
        field { name: "tail_number" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
        field { name: "delay" number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".tide.Delay" }
        field { name: "at" number: 3 label: LABEL_OPTIONAL type: TYPE_MESSAGE
                type_name: ".google.protobuf.Timestamp" }
      }
    }
    message_type {
      name: "Chain"
      field { name: "next" number: 1 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".tide.Chain" }
    }
"""  # noqa: E501
IMPORTS = [{"name": "delays.proto", "subject": "a/delays", "version": 3}]
PROTOBUF_SCHEMAS: dict[str, dict[str, Any]] = {
    f"{path}{query}": {
        "schemaType": "PROTOBUF",
        "schema": descriptor(text) if query else 'syntax = "proto3";',
        "references": references,
    }
    for path, text, references in (
        ("/schemas/ids/20", FLIGHTS, IMPORTS),
        ("/subjects/a%2Fdelays/versions/3", DELAYS, []),
        ("/schemas/ids/21", FLIGHTS, []),
    )
    for query in ("", "?format=serialized")
}
PROTOBUF_SCHEMAS["/schemas/ids/22"] = PROTOBUF_SCHEMAS["/schemas/ids/20"]
# A registry that does not know the format, and answers with the text.
PROTOBUF_SCHEMAS["/schemas/ids/22?format=serialized"] = PROTOBUF_SCHEMAS["/schemas/ids/20"]


class _Registry(BaseHTTPRequestHandler):
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if self.path.endswith("/302"):
            self.send_response(302)
            self.send_header("Location", "/schemas/ids/7")
            self.end_headers()
            return
        document = PROTOBUF_SCHEMAS.get(self.path, {"schema": json.dumps(FLIGHT)})
        body = json.dumps(document).encode()
        is_known = self.path.endswith("/7") or self.path in PROTOBUF_SCHEMAS
        self.send_response(200 if is_known else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def registry() -> Iterator[str]:
    _Registry.asked = []
    server = HTTPServer(("127.0.0.1", 0), _Registry)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def test_avro_is_decoded_by_the_registrys_schema_asked_once(registry: str) -> None:
    value: dict[str, object] = {"tail": "N1", "delay": None, "stops": []}
    asker = Registry(registry)
    for _ in range(3):
        found = asyncio.run(asker.shown(framed(value)))
        assert found["format"] == "avro"
        assert json.loads(found["text"]) == value
    assert _Registry.asked == ["/schemas/ids/7"]


def test_registry_redirect_is_not_followed(registry: str) -> None:
    value: dict[str, object] = {"tail": "N1", "delay": None, "stops": []}
    found = asyncio.run(Registry(registry).shown(framed(value, number=302)))
    assert found["format"] == "hex"
    assert "302" in found["note"]
    assert _Registry.asked == ["/schemas/ids/302"]


def test_a_missing_schema_shows_hex_and_the_reason(registry: str) -> None:
    value: dict[str, object] = {"tail": "N1", "delay": None, "stops": []}
    found = asyncio.run(Registry(registry).shown(framed(value, number=9)))
    assert found["format"] == "hex"
    assert "404" in found["note"]
    without = asyncio.run(Registry(None).shown(framed(value), "avro"))
    assert "--schema-registry" in without["note"]


FLIGHT_BYTES = b"\x0a\x02N1\x12\x02\x08\x09\x1a\x02\x08\x05"


def protobuf(number: int, body: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + body


def test_protobuf_is_decoded_with_its_imports_and_its_nested_type(registry: str) -> None:
    asker = Registry(registry)
    for _ in range(2):
        # The path: two steps, type 1, then nested type 0.
        found = asyncio.run(asker.shown(protobuf(20, b"\x04\x02\x00" + FLIGHT_BYTES)))
        assert found["format"] == "protobuf", found["note"]
        assert json.loads(found["text"]) == {
            "tail_number": "N1",
            "delay": {"minutes": -5},
            "at": "1970-01-01T00:00:05Z",
        }
    assert len(_Registry.asked) == 4
    first = asyncio.run(asker.shown(protobuf(20, b"\x00\x0a\x02hi")))
    assert json.loads(first["text"]) == {"x": "hi"}


@pytest.mark.parametrize(
    ("number", "body", "note"),
    [
        (20, b"", "cut off"),
        (20, b"\x04\x02", "cut off"),
        (20, b"\xff\xff\xff\xff\xff\xff", "cut off"),
        (20, b"\xfe\x01", "127 steps"),
        (20, b"\x02\x7f", "do not fit"),
        (20, b"\x00\x0a\xff", "DecodeError"),
        (21, b"\x00", "do not fit"),
        (22, b"\x00", "no descriptors"),
    ],
)
def test_broken_protobuf_shows_hex_and_the_reason(
    registry: str, number: int, body: bytes, note: str
) -> None:
    found = asyncio.run(Registry(registry).shown(protobuf(number, body)))
    assert found["format"] == "hex"
    assert note in found["note"]


def test_deep_protobuf_is_an_error(registry: str) -> None:
    chain = b""
    for _ in range(3000):
        size = len(chain)
        length = bytes([size & 127 | 128, size >> 7 & 127 | 128, size >> 14])
        chain = b"\x0a" + length + chain
    found = asyncio.run(Registry(registry).shown(protobuf(20, b"\x02\x04" + chain)))
    assert found["format"] == "hex"
    assert "DecodeError" in found["note"]


def test_previews_are_one_short_line() -> None:
    assert preview(b'{\n "a": 1\n}') == '{ "a": 1 }'
    assert preview(b"\xff\x00") == "0xff00"
    assert preview(msgpack.packb({"a": 1})) == '{"a": 1}'
    assert len(preview(b"x" * 10_000) or "") == 300
    assert preview(None) is None


def test_exported_bytes_come_back() -> None:
    assert portable(b"text") == "text"
    assert portable(b"\xff") == {"base64": "/w=="}
    assert portable(None) is None


def test_numbers_and_repeated_names_stay_as_they_are_written() -> None:
    text = shown(b'{"cost":1.10,"cost":1e400,"id":12345678901234567890,"no":[],"none":{}}')["text"]
    assert text == (
        '{\n  "cost": 1.10,\n  "cost": 1e400,\n  "id": 12345678901234567890,\n'
        '  "no": [],\n  "none": {}\n}'
    )


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(tree=TREES, is_ascii=st.booleans())
def test_json_has_a_line_for_each_part(tree: Any, is_ascii: bool) -> None:
    text = json.dumps(tree, ensure_ascii=is_ascii)
    indented = json.dumps(tree, ensure_ascii=False, indent=2)
    assert shown(text.encode(), "json")["text"] == indented


def test_half_a_surrogate_pair_stays_the_escape_that_it_was() -> None:
    text = shown(b'{"a": "\\ud800", "b": "\\ud83d\\udeeb"}')["text"]
    assert text.encode() == '{\n  "a": "\\ud800",\n  "b": "\U0001f6eb"\n}'.encode()

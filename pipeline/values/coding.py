"""Arrow arrays of framed bytes to columns and back, by the schemas of a registry.

A record whose bytes do not fit is a row of its own kind: null, with its bytes and the reason beside
it. A registry that gives no answer is an error instead: the task fails and may be repeated, and no
good record is taken for a bad one.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from client.serde.avro import avro_reader, avro_writer, parse_avro
from client.serde.errors import BadSchema, BadValue, NoSuchSchema
from client.serde.frame import FRAME_BYTES, framed, schema_id
from client.serde.protobuf import ProtobufSchema, protobuf_reader, protobuf_writer
from client.serde.registry import (
    AVRO,
    JSON,
    KINDS,
    LATEST,
    PROTOBUF,
    Registry,
    RegistryAddress,
    Schema,
)
from pipeline.values.avro_columns import avro_shape
from pipeline.values.json_columns import json_shape
from pipeline.values.protobuf_columns import protobuf_shape
from pipeline.values.shapes import misfits

BAD_TYPE: Final = pa.struct(
    [("bytes", pa.binary()), ("schema_id", pa.int64()), ("error", pa.string())]
)
"""Of a record that does not fit: what it is, which schema it names, and the reason."""

_Read = Callable[[bytes], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueSchema:
    """The schema of a column, as the driver found it; executors ask for those of records only.

    Attributes:
        address: of the registry.
        kind: AVRO, PROTOBUF or JSON.
        files: the schema after all that it imports, with their names.
        number: its id.
        message: of PROTOBUF the name of the message type; "" for the first.
    """

    address: RegistryAddress
    kind: str
    files: tuple[tuple[str, str], ...]
    number: int
    message: str = ""


def find_schema(
    address: RegistryAddress,
    subject: str,
    *,
    version: int | str = LATEST,
    message: str = "",
    register: Schema | None = None,
) -> ValueSchema:
    """A version of a subject, or the schema that is to become one.

    Raises:
        BadSchema: it cannot be a column, or the registry refuses it.
        NoSuchSchema: the registry has no such subject or version.
        RegistryUnreachable: it gave no answer.
    """
    registry = Registry(address)
    if register is not None:
        found = registry.schema(registry.register(subject, register))
    else:
        found = registry.version(subject, version)
    if found.kind not in KINDS:
        raise BadSchema(f"{subject} is {found.kind}: there are {', '.join(KINDS)}")
    if found.kind == JSON and found.imports:
        raise BadSchema(f"{subject} imports other JSON schemas: register one that holds them")
    files = tuple(registry.files_of(found))
    schema = ValueSchema(
        address=address, kind=found.kind, files=files, number=found.number, message=message
    )
    # Parsed here, so that a schema that cannot be a column is refused in the driver.
    coder_of(schema)
    return schema


@lru_cache(maxsize=16)
def coder_of(schema: ValueSchema) -> "Coder":
    """One for each schema and process, so that writers' schemas are requested once."""
    return Coder(schema)


class Coder:
    """Decodes into the column of a schema, and encodes out of it."""

    def __init__(self, schema: ValueSchema) -> None:
        """Parse the schema; raises BadSchema."""
        self._registry = Registry(schema.address)
        self._schema = schema
        self._readers: dict[int, _Read] = {}
        if schema.kind == AVRO:
            self._avro = parse_avro(schema.files)
            self.shape = avro_shape(self._avro)
        elif schema.kind == PROTOBUF:
            self._protobuf = ProtobufSchema(schema.files)
            named = schema.message
            self._type = self._protobuf.type_named(named) if named else self._protobuf.type_at((0,))
            self.shape = protobuf_shape(self._protobuf, self._type)
        else:
            self.shape = json_shape(schema.files[-1][1])

    def decode(self, column: pa.Array) -> pa.StructArray:
        """(value, bad) for framed bytes: a value is null where its bytes do not fit.

        Raises:
            RegistryUnreachable: a schema that a record names could not be requested.
        """
        values: list[Any] = []
        bad: list[dict[str, Any] | None] = []
        # What is missing now may be registered later, so it is remembered for these records only.
        missing: dict[int, str] = {}
        for data in column.to_pylist():
            value, error = self._decoded(data, missing)
            values.append(value)
            bad.append(None if error is None else self._refused(data, error))
        arrow = self.shape.arrow
        try:
            array = pa.array(values, arrow)
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            # One value that its type does not hold, such as a number of too many digits.
            array = self._one_by_one(column, values, bad)
        fields = [pa.field("value", arrow), pa.field("bad", BAD_TYPE)]
        return pa.StructArray.from_arrays([array, pa.array(bad, BAD_TYPE)], fields=fields)

    def _decoded(self, data: bytes | None, missing: dict[int, str]) -> tuple[Any, str | None]:
        if data is None:
            return None, None
        number = schema_id(data)
        if number is None:
            return None, "no schema: the bytes do not begin with 0 and a schema's id"
        if number in missing:
            return None, missing[number]
        try:
            read = self._readers.get(number) or self._reader(number)
        except (NoSuchSchema, BadSchema) as error:
            missing[number] = str(error)
            return None, str(error)
        try:
            value = read(data)
            plain = self.shape.plain
            return (plain(value) if plain and value is not None else value), None
        except (BadValue, BadSchema, ValueError, OverflowError) as error:
            return None, str(error)

    def _reader(self, number: int) -> _Read:
        registry = self._registry
        found = registry.schema(number)
        if found.kind != self._schema.kind:
            raise BadSchema(f"schema {number} is {found.kind}, not {self._schema.kind}")
        read: _Read
        if found.kind == AVRO:
            read = avro_reader(parse_avro(registry.files_of(found)), self._avro)
        elif found.kind == PROTOBUF:
            read = protobuf_reader(ProtobufSchema(registry.files_of(found)), self._type)
        else:
            read = _read_json
        self._readers[number] = read
        return read

    def _one_by_one(self, column: pa.Array, values: list[Any], bad: list[Any]) -> pa.Array:
        for row, value in enumerate(values):
            try:
                pa.array([value], self.shape.arrow)
            except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
                values[row] = None
                bad[row] = self._refused(column[row].as_py(), str(error))
        return pa.array(values, self.shape.arrow)

    @staticmethod
    def _refused(data: bytes, error: str) -> dict[str, Any]:
        return {"bytes": data, "schema_id": schema_id(data), "error": error}

    def misfits(self, have: pa.DataType, name: str) -> list[str]:
        """Why a column cannot be encoded by the schema: a sentence for each field."""
        return misfits(have, self.shape.arrow, name)

    def encode(self, column: pa.Array) -> pa.Array:
        """The framed bytes of each value, null for null.

        Raises:
            BadValue: a value is not of the schema; the message names it.
        """
        write, wire = self._writer(), self.shape.wire
        out: list[bytes | None] = []
        for value in column.to_pylist():
            if value is None:
                out.append(None)
                continue
            out.append(write(wire(value) if wire else value))
        return pa.array(out, pa.binary())

    def _writer(self) -> Callable[[Any], bytes]:
        number = self._schema.number
        if self._schema.kind == AVRO:
            return avro_writer(self._avro, number)
        if self._schema.kind == PROTOBUF:
            return protobuf_writer(self._protobuf, self._type, number)
        return lambda value: framed(number, json.dumps(value).encode())


def _read_json(data: bytes) -> Mapping[str, Any]:
    try:
        found: Mapping[str, Any] = json.loads(data[FRAME_BYTES:])
    except (ValueError, RecursionError) as error:
        raise BadValue(f"it is no JSON: {error}") from error
    return found

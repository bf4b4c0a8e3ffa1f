"""Serializers and deserializers of values whose schema is in a registry.

Objects that are called with one value each, for a producer or a consumer. What they have to ask the
registry for they ask once, in `prepare`, which blocks: a client calls it in a thread. The bytes are
framed as by Confluent's serializers, so that each can read what the other wrote.
"""

from __future__ import annotations

import base64
import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final

from client.checks import check_text
from client.errors import ClientError, InvalidType
from client.serde.avro import avro_reader, avro_writer, parse_avro
from client.serde.errors import BadSchema, BadValue, NoSuchSchema
from client.serde.frame import FRAME_BYTES, framed, schema_id
from client.serde.plain import json_deserializer, json_serializer
from client.serde.protobuf import ProtobufSchema, protobuf_reader, protobuf_writer
from client.serde.registry import AVRO, JSON, KINDS, PROTOBUF, Registry, RegistryAddress, Schema

_KNOWN_FILES: Final = "google/protobuf/"
"""Imports that need no registry: every Protobuf library has them."""


class Converter(ABC):
    """A serializer or deserializer that may have to ask a registry first."""

    def __init__(self, registry: Registry | RegistryAddress | str) -> None:
        """Ask a registry, which may be shared, or be given as its address; nothing is sent yet.

        Raises:
            InvalidType: neither a registry nor an address.
            InvalidUse: an address that is none.
        """
        if isinstance(registry, str):
            registry = RegistryAddress(url=registry)
        if isinstance(registry, RegistryAddress):
            registry = Registry(registry)
        if not isinstance(registry, Registry):
            raise InvalidType(f"registry={registry!r} is none: give its URL or a RegistryAddress")
        self._registry = registry

    @abstractmethod
    def __call__(self, value: Any) -> Any:
        """The value converted; raises BadValue."""

    @abstractmethod
    def is_ready(self, value: Any) -> bool:
        """Whether this value can be converted without the registry."""

    @abstractmethod
    def prepare(self, value: Any) -> None:
        """Ask the registry what this value needs; blocks.

        Raises:
            RegistryUnreachable: it gave no answer; another attempt may succeed.
            NoSuchSchema, BadSchema: serializers alone: their subject has no usable schema.
        """


class _Serializer(Converter):
    """Writes values of one subject's schema; which, is known after `prepare`."""

    kind: str

    def __init__(
        self,
        registry: Registry | RegistryAddress | str,
        subject: str,
        schema: Schema | None,
    ) -> None:
        super().__init__(registry)
        check_text("subject", subject)
        self._subject = subject
        self._schema = schema
        self._write: Callable[[Any], bytes] | None = None

    def is_ready(self, value: Any) -> bool:
        """Whether the subject's schema is known."""
        return self._write is not None

    def prepare(self, value: Any) -> None:
        """Register the schema that was given, or get the subject's latest; raises as the class."""
        if self._schema is None:
            found = self._registry.version(self._subject)
        else:
            found = self._schema
            found = found._replace(number=self._registry.register(self._subject, found))
        if found.kind != self.kind:
            raise BadSchema(f"{self._subject} is {found.kind}, not {self.kind}")
        self._write = self._writer(found)

    @abstractmethod
    def _writer(self, schema: Schema) -> Callable[[Any], bytes]:
        """What turns a value into framed bytes."""

    def __call__(self, value: Any) -> bytes:
        """The framed bytes of a value; asks the registry at first use.

        Raises:
            BadValue: it does not fit the schema.
            RegistryUnreachable, NoSuchSchema, BadSchema: as `prepare`.
        """
        if self._write is None:
            self.prepare(value)
        assert self._write is not None
        return self._write(value)


class _DocumentSerializer(_Serializer):
    """Writes dicts, lists, texts and numbers; its schema may be given as a text or as these."""

    def __init__(
        self,
        registry: Registry | RegistryAddress | str,
        subject: str,
        schema: str | dict[str, Any] | None = None,
    ) -> None:
        """`schema` is registered under `subject`; without one the latest of the subject is used.

        Raises:
            InvalidType, InvalidUse: an argument of the wrong type, or no address of a registry.
            BadSchema: `schema` is no Avro schema, for `AvroSerializer`.
        """
        given = _given(self.kind, schema)
        if given is not None and self.kind == AVRO:
            parse_avro([("", given.text)])
        super().__init__(registry, subject, given)


class AvroSerializer(_DocumentSerializer):
    """Writes Avro: values are dicts, lists, texts and numbers as the schema says."""

    kind = AVRO

    def _writer(self, schema: Schema) -> Callable[[Any], bytes]:
        return avro_writer(parse_avro(self._registry.files_of(schema)), schema.number)


class JsonSerializer(_DocumentSerializer):
    """Writes JSON under a schema's id; whether it fits the schema is not checked here."""

    kind = JSON

    def _writer(self, schema: Schema) -> Callable[[Any], bytes]:
        return lambda value: framed(schema.number, json_serializer(value))


class ProtobufSerializer(_Serializer):
    """Writes messages of one generated class."""

    kind = PROTOBUF

    def __init__(
        self,
        registry: Registry | RegistryAddress | str,
        subject: str,
        message_type: Any,
        *,
        register: bool = True,
    ) -> None:
        """Of a class that ``protoc`` generated.

        With `register` its file is registered under `subject`; without, the latest of the subject
        is used, which has to have a message of this name.

        Raises:
            InvalidType, InvalidUse: an argument of the wrong type, or no address of a registry.
            BadSchema: its file imports others, which cannot be registered with it.
        """
        self._descriptor = _descriptor_of(message_type)
        super().__init__(registry, subject, _file_schema(self._descriptor) if register else None)

    def _writer(self, schema: Schema) -> Callable[[Any], bytes]:
        known = ProtobufSchema(self._registry.files_of(schema))
        name = self._descriptor.full_name
        write = protobuf_writer(known, known.type_named(name), schema.number)

        def checked(value: Any) -> bytes:
            found = getattr(getattr(value, "DESCRIPTOR", None), "full_name", type(value).__name__)
            if found != name:
                raise BadValue(f"it is a {found}, not a {name}")
            return write(value)

        return checked


class SchemaDeserializer(Converter):
    """Reads Avro, Protobuf and JSON by the id of the schema at the front of the bytes.

    Values of Avro and JSON are dicts, lists, texts and numbers; of Protobuf, messages.
    """

    def __init__(
        self,
        registry: Registry | RegistryAddress | str,
        *,
        schema: str | dict[str, Any] | None = None,
        message_type: Any = None,
    ) -> None:
        """`schema` is the Avro schema to read as, by Avro's rules for schemas that have changed.

        `message_type` is the generated class of Protobuf to read into; without it messages have a
        class made from the registry's descriptor.

        Raises:
            InvalidType, InvalidUse: an argument of the wrong type, or no address of a registry.
            BadSchema: `schema` is no Avro schema.
        """
        super().__init__(registry)
        given = _given(AVRO, schema)
        self._avro = None if given is None else parse_avro([("", given.text)])
        self._type = None if message_type is None else _descriptor_of(message_type)
        self._readers: dict[int, Callable[[bytes], Any]] = {}
        self._missing: dict[int, ClientError] = {}

    def is_ready(self, value: Any) -> bool:
        """Whether the schema that the bytes name is known, or they name none."""
        number = schema_id(value)
        return number is None or number in self._readers or number in self._missing

    def prepare(self, value: Any) -> None:
        """Get the schema that the bytes name; raises RegistryUnreachable."""
        number = schema_id(value)
        if number is None:
            return
        try:
            self._readers[number] = self._reader(self._registry.schema(number))
        except (NoSuchSchema, BadSchema) as error:
            self._missing[number] = error

    def __call__(self, data: bytes) -> Any:
        """The value; asks the registry for a schema that is not known yet.

        Raises:
            BadValue: the bytes name no schema, or do not fit it.
            NoSuchSchema, BadSchema: the registry lacks the schema, or it is not usable.
            RegistryUnreachable: it gave no answer.
        """
        number = schema_id(data)
        if number is None:
            raise BadValue("it names no schema: the bytes do not begin with 0 and a schema's id")
        if not self.is_ready(data):
            self.prepare(data)
        if number in self._missing:
            # What is missing now may be registered later: the next record asks again.
            raise self._missing.pop(number)
        return self._readers[number](data)

    def _reader(self, schema: Schema) -> Callable[[bytes], Any]:
        if schema.kind == AVRO:
            return avro_reader(parse_avro(self._registry.files_of(schema)), self._avro)
        if schema.kind == JSON:
            return lambda data: json_deserializer(data[FRAME_BYTES:])
        if schema.kind == PROTOBUF:
            return protobuf_reader(ProtobufSchema(self._registry.files_of(schema)), self._type)
        raise BadSchema(f"schema {schema.number} is {schema.kind}: there are {', '.join(KINDS)}")


def _given(kind: str, schema: str | dict[str, Any] | None) -> Schema | None:
    """A schema that a user gives as text or as what its JSON says, as a registry takes it."""
    if schema is None:
        return None
    return Schema(kind, schema if isinstance(schema, str) else json.dumps(schema))


def _descriptor_of(message_type: Any) -> Any:
    descriptor = getattr(message_type, "DESCRIPTOR", None)
    if not isinstance(message_type, type) or descriptor is None:
        raise InvalidType(f"message_type={message_type!r} is no generated class of Protobuf")
    return descriptor


def _file_schema(descriptor: Any) -> Schema:
    """The file of a message type, as a registry takes it."""
    from google.protobuf import descriptor_pb2

    proto = descriptor_pb2.FileDescriptorProto()
    descriptor.file.CopyToProto(proto)
    others = [name for name in proto.dependency if not name.startswith(_KNOWN_FILES)]
    if others:
        raise BadSchema(
            f"{descriptor.file.name} imports {', '.join(others)}: register it with its imports by "
            "the registry's own tools, and give register=False"
        )
    return Schema(PROTOBUF, base64.b64encode(proto.SerializeToString()).decode())

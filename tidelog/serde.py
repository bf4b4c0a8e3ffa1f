"""Serializers and deserializers for `Producer` and `Consumer`.

Text and JSON need nothing; Avro, Protobuf and JSON under a schema's id need a schema registry, and
Avro and Protobuf the extra ``tidelog[serde]``.
"""

from client.serde.converters import (
    AvroSerializer,
    JsonSerializer,
    ProtobufSerializer,
    SchemaDeserializer,
)
from client.serde.plain import (
    json_deserializer,
    json_serializer,
    text_deserializer,
    text_serializer,
)
from client.serde.registry import Registry, RegistryAddress

__all__ = [
    "AvroSerializer",
    "JsonSerializer",
    "ProtobufSerializer",
    "Registry",
    "RegistryAddress",
    "SchemaDeserializer",
    "json_deserializer",
    "json_serializer",
    "text_deserializer",
    "text_serializer",
]

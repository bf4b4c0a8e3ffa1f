"""Protobuf values by the descriptors that a schema registry serves.

A registry gives a schema as a `FileDescriptorProto` in base64, so that no parser of ``.proto``
texts is needed.
"""

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Any

from client.serde.errors import BadSchema, BadValue
from client.serde.frame import FRAME_BYTES, framed, parse_path, path_bytes


class ProtobufSchema:
    """The message types of one schema and of all that it imports.

    Attributes:
        pool: its types; one for each schema, since two may give one name to different types.
        file: the descriptor of the schema itself.
    """

    def __init__(self, files: Sequence[tuple[str, str]]) -> None:
        """Of descriptors in base64, each with its name for importers, as `Registry.files_of`.

        Raises:
            BadSchema: they are no descriptors, or do not fit each other.
        """
        from google.protobuf import (
            any_pb2,
            descriptor_pb2,
            descriptor_pool,
            duration_pb2,
            empty_pb2,
            field_mask_pb2,
            message,
            struct_pb2,
            timestamp_pb2,
            wrappers_pb2,
        )

        known = (
            any_pb2, descriptor_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2,
            timestamp_pb2, wrappers_pb2,
        )  # fmt: skip
        self.pool: Any = descriptor_pool.DescriptorPool()
        for module in known:
            self.pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
        names = {module.DESCRIPTOR.name for module in known}
        own = ""
        try:
            for name, text in files:
                file = descriptor_pb2.FileDescriptorProto.FromString(
                    base64.b64decode(text, validate=True)
                )
                own = file.name = name or file.name
                if own not in names:
                    self.pool.Add(file)
                    names.add(own)
            self.file: Any = self.pool.FindFileByName(own)
        except binascii.Error:
            raise BadSchema("the registry serves no descriptors (format=serialized)") from None
        except message.Error as error:
            raise BadSchema(f"{type(error).__name__}: {error}") from error
        except (TypeError, KeyError, RecursionError) as error:
            raise BadSchema(f"its descriptors do not fit: {error}") from error
        # In the order of the file, which the numbers of a path count.
        proto = descriptor_pb2.FileDescriptorProto()
        self.file.CopyToProto(proto)
        self._order = [one.name for one in proto.message_type]

    def type_at(self, path: Sequence[int]) -> Any:
        """The descriptor of the message type at a path of numbers.

        Raises:
            BadValue: there is none.
        """
        try:
            if min(path) < 0:
                raise IndexError(f"{min(path)} is no number of a type")
            kind = self.file.message_types_by_name[self._order[path[0]]]
            for step in path[1:]:
                kind = kind.nested_types[step]
        except IndexError as error:
            raise BadValue(f"its descriptors do not fit: {error}") from error
        return kind

    def type_named(self, name: str) -> Any:
        """The descriptor of a message type by its full name, or by its name in the package.

        Raises:
            BadSchema: there is none; the message has the names that there are.
        """
        package = f"{self.file.package}." if self.file.package else ""
        for full in (name, package + name):
            try:
                kind = self.pool.FindMessageTypeByName(full)
            except KeyError:
                continue
            if kind.file.name == self.file.name:
                return kind
        raise BadSchema(f"it has no message {name!r}: it has {', '.join(self._order)}")

    def path_of(self, kind: Any) -> tuple[int, ...]:
        """The numbers that lead to a message type of this file."""
        path: list[int] = []
        while kind.containing_type is not None:
            siblings = [one.full_name for one in kind.containing_type.nested_types]
            path.append(siblings.index(kind.full_name))
            kind = kind.containing_type
        return (self._order.index(kind.name), *reversed(path))


def parse_message(kind: Any, body: bytes) -> Any:
    """The message of a type in bytes; raises BadValue."""
    from google.protobuf import message, message_factory

    try:
        return message_factory.GetMessageClass(kind).FromString(body)
    except (message.Error, RecursionError) as error:
        raise BadValue(f"{type(error).__name__}: {error}") from error


def protobuf_reader(writer: ProtobufSchema, reader: Any = None) -> Callable[[bytes], Any]:
    """A function from framed bytes to messages; it raises BadValue.

    `reader` is the message type to read as: fields that it lacks are left out. Without it each
    value has the type that its frame names.
    """

    def read(data: bytes) -> Any:
        path, start = parse_path(data, FRAME_BYTES)
        kind = writer.type_at(path)
        if reader is not None:
            if kind.full_name != reader.full_name:
                raise BadValue(f"it is a {kind.full_name}, not a {reader.full_name}")
            kind = reader
        return parse_message(kind, data[start:])

    return read


def protobuf_writer(schema: ProtobufSchema, kind: Any, number: int) -> Callable[[Any], bytes]:
    """A function from messages of a type of the schema to framed bytes; it raises BadValue."""
    from google.protobuf import message

    path = path_bytes(schema.path_of(kind))

    def write(value: Any) -> bytes:
        try:
            return framed(number, path + value.SerializeToString())
        except message.Error as error:
            raise BadValue(f"{type(error).__name__}: {error}") from error

    return write


def protobuf_tree(schema: ProtobufSchema, value: Any) -> dict[str, Any]:
    """A message as JSON's types, with the names of its fields; raises BadValue."""
    from google.protobuf import json_format

    try:
        found = json_format.MessageToDict(
            value, preserving_proto_field_name=True, descriptor_pool=schema.pool
        )
    except (json_format.Error, TypeError, KeyError, RecursionError) as error:
        raise BadValue(f"{type(error).__name__}: {error}") from error
    return found if isinstance(found, dict) else {"value": found}

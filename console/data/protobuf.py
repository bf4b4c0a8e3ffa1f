"""Protobuf values by the descriptors that a schema registry serves.

A registry with Confluent's interface gives a schema as a `FileDescriptorProto`, so that no parser
of ``.proto`` texts is needed. The bytes after the schema's id begin with the path to the message
type: how many numbers, then the numbers of nested types, all zigzag varints; one 0 stands for the
first type.
"""

import base64
import binascii
from collections.abc import Sequence
from typing import Any, Final

PATH_MAX: Final = 64
_VARINT_BYTES: Final = 5


def parse_path(data: bytes) -> tuple[list[int], int]:
    """The numbers of the message type, and how many bytes they take.

    Raises:
        ValueError: they are cut off or endless.
    """
    count, position = _zigzag(data, 0)
    if count == 0:
        return [0], position
    if not 0 < count <= PATH_MAX:
        raise ValueError(f"the path to its message type has {count} steps")
    path = []
    for _ in range(count):
        step, position = _zigzag(data, position)
        path.append(step)
    return path, position


def _zigzag(data: bytes, position: int) -> tuple[int, int]:
    number = 0
    for index, byte in enumerate(data[position : position + _VARINT_BYTES]):
        number |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position + index + 1
    raise ValueError("the path to its message type is cut off")


def decode_protobuf(data: bytes, files: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The value in bytes without magic byte and id, as JSON's types.

    `files` are descriptors in base64, each with the name under which others import it ("": its
    own): those that others import first, the record's schema last.

    Raises:
        ValueError: the bytes are not of this schema, or the descriptors are none.
    """
    from google.protobuf import (
        any_pb2,
        descriptor_pb2,
        descriptor_pool,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        json_format,
        message,
        message_factory,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    )

    known = (
        any_pb2, descriptor_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2,
        timestamp_pb2, wrappers_pb2,
    )  # fmt: skip
    path, start = parse_path(data)
    # A pool for each value: two schemas may give one name to different types.
    pool = descriptor_pool.DescriptorPool()
    for module in known:
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    try:
        parsed = []
        names = {module.DESCRIPTOR.name for module in known}
        for name, text in files:
            file = descriptor_pb2.FileDescriptorProto.FromString(
                base64.b64decode(text, validate=True)
            )
            file.name = name or file.name
            parsed.append(file)
            if file.name not in names:
                pool.Add(file)
                names.add(file.name)
        kind = pool.FindFileByName(parsed[-1].name).message_types_by_name[
            parsed[-1].message_type[path[0]].name
        ]
        for step in path[1:]:
            kind = kind.nested_types[step]
        value = message_factory.GetMessageClass(kind).FromString(data[start:])
        found = json_format.MessageToDict(
            value, preserving_proto_field_name=True, descriptor_pool=pool
        )
    except binascii.Error:
        raise ValueError("the registry serves no descriptors (format=serialized)") from None
    except (message.Error, json_format.Error) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    except (TypeError, KeyError, IndexError, RecursionError) as error:
        raise ValueError(f"its descriptors do not fit: {error}") from error
    return found if isinstance(found, dict) else {"value": found}

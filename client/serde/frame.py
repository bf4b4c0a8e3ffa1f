"""The bytes before a value that name its schema, as Confluent's serializers write them.

One byte 0, the schema's id in four bytes, and for Protobuf the path to the message type in its
file: how many numbers, then the numbers of nested types, all zigzag varints; one byte 0 stands for
the first type.
"""

from collections.abc import Sequence
from typing import Final

from client.serde.errors import BadValue

FRAME_BYTES: Final = 5
PATH_MAX: Final = 64
_VARINT_BYTES: Final = 5


def schema_id(data: bytes) -> int | None:
    """The id of the schema that the bytes name, None without a frame."""
    if len(data) < FRAME_BYTES or data[0] != 0:
        return None
    return int.from_bytes(data[1:FRAME_BYTES], "big")


def framed(number: int, body: bytes) -> bytes:
    """The body of a value with the id of its schema."""
    return b"\0" + number.to_bytes(FRAME_BYTES - 1, "big") + body


def parse_path(data: bytes, position: int = FRAME_BYTES) -> tuple[tuple[int, ...], int]:
    """The numbers of the Protobuf message type at `position`, and where they end.

    Raises:
        BadValue: they are cut off or too many.
    """
    count, position = _zigzag(data, position)
    if count == 0:
        return (0,), position
    if not 0 < count <= PATH_MAX:
        raise BadValue(f"the path to its message type has {count} steps")
    path = []
    for _ in range(count):
        step, position = _zigzag(data, position)
        path.append(step)
    return tuple(path), position


def path_bytes(path: Sequence[int]) -> bytes:
    """The path to a Protobuf message type as bytes."""
    if tuple(path) == (0,):
        return b"\0"
    out = bytearray()
    for number in (len(path), *path):
        rest = number << 1
        while rest >= 0x80:
            out.append(rest & 0x7F | 0x80)
            rest >>= 7
        out.append(rest)
    return bytes(out)


def _zigzag(data: bytes, position: int) -> tuple[int, int]:
    number = 0
    for index, byte in enumerate(data[position : position + _VARINT_BYTES]):
        number |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position + index + 1
    raise BadValue("the path to its message type is cut off")

"""Variable-length integers, as plain functions over a buffer and a position.

Seven bits per byte, least significant group first, the high bit means "more follows". Flexible
messages use them for lengths, counts and tags. Records have signed ones, which only the compiled
loops read and write (`protocol.records.record_loops`, `encode_loops`).

Invariant: no more bytes are read than 32 bits can need, five, so a run of ``0x80`` bytes cannot
make a reader spin, and no larger number is ever returned.

Source: Kafka ``ByteUtils``; Protocol Buffers encoding guide.
"""

from typing import Final

from protocol.declare.primitives import Buffer

MAX_UNSIGNED: Final = 0xFFFFFFFF
"""The largest value; Kafka uses this form for 32-bit numbers only."""

_BYTES_MAX: Final = 5
ONE_BYTE_END: Final = 0x80
"""The first value that takes more than one byte."""

ONE_BYTE: Final = tuple(bytes([value]) for value in range(ONE_BYTE_END))
"""The encoding of each value below `ONE_BYTE_END`, for callers that spare themselves a call."""


def encode_unsigned(value: int) -> bytes:
    """``value`` (0..2**32-1) in one to five bytes.

    >>> encode_unsigned(300).hex()
    'ac02'

    Raises:
        ValueError: negative, or more than 32 bits.
    """
    if 0 <= value < ONE_BYTE_END:
        return ONE_BYTE[value]
    # Lengths of record batches take two to four bytes; spelled out they cost a third of the loop.
    if 0 <= value < 0x4000:
        return bytes((value & 127 | 128, value >> 7))
    if 0 <= value < 0x20_0000:
        return bytes((value & 127 | 128, value >> 7 & 127 | 128, value >> 14))
    if not 0 <= value <= MAX_UNSIGNED:
        raise ValueError(f"{value} is outside 0..{MAX_UNSIGNED}")
    return _encode_groups(value)


def decode_unsigned(buf: Buffer, position: int) -> tuple[int, int]:
    """The value at ``position`` and the position after it.

    >>> decode_unsigned(bytes.fromhex("ac02"), 0)
    (300, 2)

    Raises:
        IndexError: the buffer ends inside the number.
        ValueError: more than five bytes, or more than 32 bits.
    """
    value = buf[position]
    if value < 128:
        return value, position + 1
    second = buf[position + 1]
    if second < 128:
        return value & 127 | second << 7, position + 2
    third = buf[position + 2]
    if third < 128:
        return value & 127 | (second & 127) << 7 | third << 14, position + 3
    value, position = _decode_groups(buf, position)
    if value > MAX_UNSIGNED:
        raise ValueError(f"varint {value} does not fit 32 bits")
    return value, position


def skip_tags(buf: Buffer, position: int, count: int) -> int:
    """The position after ``count`` unknown tagged fields.

    Cost is linear in the bytes present, not in ``count``: every field takes at least two.

    Raises:
        IndexError: a field claims more bytes than are left.
        ValueError: a number inside is broken.
    """
    for _ in range(count):
        _, position = decode_unsigned(buf, position)
        size, position = decode_unsigned(buf, position)
        position += size
        if position > len(buf):
            raise IndexError(position)
    return position


def _encode_groups(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _decode_groups(buf: Buffer, position: int) -> tuple[int, int]:
    value = 0
    for count in range(_BYTES_MAX):
        byte = buf[position + count]
        value |= (byte & 127) << (7 * count)
        if byte < 128:
            return value, position + count + 1
    raise ValueError(f"varint longer than {_BYTES_MAX} bytes")

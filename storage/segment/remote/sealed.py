"""How an object ends in a store: a text that describes it, and the proof that all of it arrived.

A sealed object is its content, a text in JSON, and a tail: the size of the text, the CRC-32C of
content, text and that size, and 8 bytes that name the kind of object. Segments have their `.log`
before the sealed part, entries of the journal are sealed as a whole. Refuses to know what the text
says.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final

from protocol.records.checksums import crc32c
from storage.disk.files import Bytes

_TAIL: Final = Struct(">II8s")

TAIL_BYTES: Final = _TAIL.size
"""The least size of a sealed object."""


def seal(content: Sequence[Bytes], text: bytes, magic: bytes) -> list[Bytes]:
    """The parts of an object: those of its content, none of which is copied, and what follows.

    `magic` has 8 bytes.
    """
    crc = 0
    for part in (*content, text):
        crc = crc32c(part, crc)
    tail = _TAIL.pack(len(text), _checksum_after(crc, len(text)), magic)
    return [*content, text + tail]


def unseal(data: Bytes, magic: bytes) -> tuple[memoryview, bytes] | None:
    """Content and text of an object; None when it is not what was written, or of another kind."""
    view = memoryview(data)
    if len(view) < TAIL_BYTES:
        return None
    body, tail = view[:-TAIL_BYTES], view[-TAIL_BYTES:]
    text_bytes, crc, found = _TAIL.unpack(tail)
    if found != magic or text_bytes > len(body) or _checksum_after(crc32c(body), text_bytes) != crc:
        return None
    at = len(body) - text_bytes
    return body[:at], bytes(body[at:])


def _checksum_after(body_crc: int, text_bytes: int) -> int:
    return crc32c(text_bytes.to_bytes(4, "big"), body_crc)

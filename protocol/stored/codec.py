"""From bytes to declared records and back: a version number, then the body of that version.

A key or value of an internal topic is an int16 version and a body; a record of the metadata log is
a frame version, a kind and a version, each an unsigned varint, and a body. Bodies are declared with
`protocol.declare.primitives` and go through the compiled codec. Bytes after a complete body are
ignored: that is how Kafka's formats of group members are extended.

Source: KIP-482; Kafka ``MessageUtil.toVersionPrefixedBytes``, ``MetadataRecordSerde``.
"""

import struct
from typing import Any, Final, TypeVar

from protocol.declare.primitives import DECODE_FAULTS, Buffer, Decoder, Encoder, stored_spec
from protocol.declare.varint import decode_unsigned, encode_unsigned

_VERSION: Final = struct.Struct(">h")
_FRAME_VERSION: Final = 1
_Record = TypeVar("_Record")
_decoders: dict[tuple[type, int], Decoder] = {}
_encoders: dict[tuple[type, int], Encoder] = {}


class UnknownRecord(ValueError):
    """A key or value of a version that this release does not know, or too short for its version."""


def encode(record: Any, version: int) -> bytes:
    """Version and body of a declared record."""
    return _VERSION.pack(version) + _body(record, version)


def decode(cls: type[_Record], data: bytes) -> _Record:
    """The record in `data`, of any declared version.

    Raises:
        UnknownRecord: a version that is not declared, or bytes that do not match it.
    """
    version = version_of(data)
    if not 0 <= version <= stored_spec(cls).max_version:
        raise UnknownRecord(f"{cls.__name__} version {version}")
    return decode_body(cls, version, data, _VERSION.size)


def version_of(data: bytes) -> int:
    """The version that `data` begins with.

    Raises:
        UnknownRecord: fewer than two bytes.
    """
    if len(data) < _VERSION.size:
        raise UnknownRecord(f"a record of {len(data)} bytes has no version")
    return int(_VERSION.unpack_from(data)[0])


def decode_body(cls: type[_Record], version: int, data: bytes, position: int) -> _Record:
    """The record whose body of `version` begins at `position` of `data`.

    Raises:
        UnknownRecord: the bytes do not match the declaration.
    """
    try:
        record: _Record = _decoder(cls, version)(memoryview(data), position, len(data))[0]
    except DECODE_FAULTS as error:
        raise UnknownRecord(
            f"{len(data)} bytes are no {cls.__name__} of version {version}: {error}"
        ) from error
    return record


def encode_framed(record: Any, kind: int, version: int) -> bytes:
    """A record of the metadata log: frame, kind, version and body."""
    head = b"".join(map(encode_unsigned, (_FRAME_VERSION, kind, version)))
    return head + _body(record, version)


def decode_frame(data: bytes) -> tuple[int, int, int]:
    """Kind and version of a record of the metadata log, and the position of its body.

    Raises:
        UnknownRecord: another frame, or fewer bytes than one has.
    """
    position = 0
    numbers = []
    try:
        for _ in range(3):
            number, position = decode_unsigned(data, position)
            numbers.append(number)
    except (IndexError, ValueError) as error:
        raise UnknownRecord(f"{len(data)} bytes are no record frame: {error}") from error
    frame, kind, version = numbers
    if frame != _FRAME_VERSION:
        raise UnknownRecord(f"expected a record frame of version {_FRAME_VERSION}, found {frame}")
    return kind, version, position


def _body(record: Any, version: int) -> bytes:
    parts: list[Buffer] = []
    _encoder(type(record), version)(record, parts.append)
    return b"".join(parts)


def _decoder(cls: type, version: int) -> Decoder:
    known = _decoders.get((cls, version))
    if known is None:
        from protocol.declare import compiled  # a new directory starts without it

        known = _decoders[cls, version] = compiled.write_decoder(cls, version)
    return known


def _encoder(cls: type, version: int) -> Encoder:
    known = _encoders.get((cls, version))
    if known is None:
        from protocol.declare import compiled

        known = _encoders[cls, version] = compiled.write_encoder(cls, version)
    return known

"""The codec's entry point: (key, version) and bytes on one side, messages on the other.

For each (class, version) the registry holds a decoder and an encoder, written by
``protocol.declare.compiled`` from the declared layout when first needed. When one of them fails,
the same input goes through the construct tree of ``protocol.declare.schema``. The tree is slow and
reports exactly what is wrong.

Invariants: decoding allocates a small multiple of the bytes present. The further cost of a
request's array elements is bounded by their number (`REQUEST_ELEMENTS_MAX`). A records payload is
never copied: decoded, it is a view of the frame and keeps that alive; in an encoded response it is
a part of the list. Every fault of a peer's bytes is a ``ProtocolError``; any other error is our
bug.

``protocol.declare.compiled`` is imported inside functions because a broker should be listening
before it pays for it, ``protocol.declare.schema`` because it imports construct, which only a fault
needs.

This module does not know which versions the *broker* honours: see ``protocol.api_keys.SUPPORTED``.
"""

from collections.abc import Callable
from functools import cache
from struct import Struct
from typing import Any, Final

from protocol import headers
from protocol.api import message_class
from protocol.declare.primitives import (
    DECODE_FAULTS,
    ENCODE_FAULTS,
    RECORDS,
    REQUEST_ELEMENTS_MAX,
    Buffer,
    Decoder,
    Direction,
    Encoder,
    TooManyElements,
    field_specs,
    message_spec,
)
from protocol.errors import MalformedRequest, UnsupportedVersion

SCATTER_FROM_BYTES: Final = 1024
"""Parts of a response at least this long stay parts of their own; shorter ones are joined."""

EXPLAINED_BYTES_MAX: Final = 8192
"""Longer input is refused without a reason: the tree takes a thousand times the time it took."""

_SIZE_BYTES: Final = 4
_CORRELATION_ID_BYTES: Final = 4

_decoders: dict[tuple[type, int], Decoder] = {}
_encoders: dict[tuple[type, int], Encoder] = {}


def request_class(api_key: int) -> type:
    """The request dataclass of ``api_key``; raises ``UnsupportedVersion`` for an unknown API."""
    return message_class(api_key, Direction.REQUEST)


def response_class(api_key: int) -> type:
    """The response dataclass of ``api_key``; raises ``UnsupportedVersion`` for an unknown API."""
    return message_class(api_key, Direction.RESPONSE)


def decode_response(api_key: int, version: int, buf: memoryview, position: int) -> Any:
    """The response whose body begins at ``position`` and ends with ``buf``.

    Records fields are views of ``buf``, valid until it is changed.

    Raises:
        UnsupportedVersion: no layout is declared for this key and version.
        MalformedRequest: the bytes do not match the layout, or some are left over.
    """
    cls = message_class(api_key, Direction.RESPONSE)
    message, end = _decode(cls, version, buf, position)
    left = len(buf) - end
    if left:
        raise MalformedRequest(f"{cls.__name__} v{version}", "", end, f"{left} bytes after the end")
    return message


def encode_request(message: Any, version: int) -> bytes:
    """The body of a request.

    Raises:
        UnsupportedVersion: the message has no such version.
        MalformedRequest: a value does not fit its declared type.
    """
    cls = type(message)
    encode = _encoders.get((cls, version)) or _encoder(cls, version)
    parts: list[Buffer] = []
    try:
        encode(message, parts.append)
    except ENCODE_FAULTS as error:
        raise _why_unencodable(message, version) from error
    return b"".join(parts)


@cache
def struct_encoder(message: type, struct: type, version: int) -> Callable[[Any], Any]:
    """The function that makes bytes of a `struct`, to stand for it in an array of `message`.

    The array is declared as `pre_encoded`. The function raises MalformedRequest for a value that
    does not fit its declared type.

    Raises:
        UnsupportedVersion: the message has no such version.
    """
    _check_version(message, version)
    from protocol.declare import compiled

    encode = compiled.write_encoder(struct, version, message)

    def encoded(value: Any) -> bytes:
        parts: list[Buffer] = []
        try:
            encode(value, parts.append)
        except ENCODE_FAULTS as error:
            raise _why_unencodable(value, version, message) from error
        return b"".join(parts)

    return encoded


class ServerCodec:
    """One version of one API for a server, with all lookups done beforehand.

    It reads and writes whole frames: header and body of a request, size, header and body of its
    answer.
    """

    __slots__ = (
        "_answer_start",
        "_decode",
        "_encode",
        "_header_has_tags",
        "_is_scattered",
        "_request",
        "version",
    )

    def __init__(self, api_key: int, version: int) -> None:
        """Make the two functions of this version. Raises UnsupportedVersion."""
        self._request = request_class(api_key)
        self.version = version
        self._decode = _decoder(self._request, version)
        response = response_class(api_key)
        self._encode = _encoder(response, version)
        self._is_scattered = _has_long_parts(response)
        self._header_has_tags = version >= headers.flexible_since(api_key)
        header_bytes = len(headers.encode_response_header(api_key, version, 0))
        # Size of the frame after it, correlation id, and a tag section if the header has one.
        self._answer_start = Struct(f">ii{header_bytes - _CORRELATION_ID_BYTES}x")

    def decode(
        self, frame: bytearray | memoryview, elements_max: int = REQUEST_ELEMENTS_MAX
    ) -> tuple[str | None, Any]:
        """The client id and the message of a request frame without its size.

        Records fields are views of `frame`: they are writable when it is, and valid until it is
        changed. Bytes after a complete body are ignored, as in Kafka: librdkafka 2.16 leaves three
        of them when it requests the metadata of all topics.

        `elements_max` bounds the work: decoding stops at the first array element or tagged field
        beyond it.

        Raises:
            MalformedRequest: the bytes do not match the layout.
            TooManyElements: there are more than `elements_max`, which is below
                `REQUEST_ELEMENTS_MAX`.
        """
        client_id, position = headers.decode_client_id(frame, self._header_has_tags)
        buf = memoryview(frame)
        try:
            return client_id, self._decode(buf, position, len(buf), elements_max)[0]
        except DECODE_FAULTS as error:
            if isinstance(error, TooManyElements) and elements_max < REQUEST_ELEMENTS_MAX:
                raise
            return client_id, _decode(self._request, self.version, buf, position)[0]

    def encode(self, correlation_id: int, message: Any) -> list[Buffer]:
        """The frame of an answer, its size included, as buffers to be sent one after the other.

        Record payloads and pre-encoded structs of ``SCATTER_FROM_BYTES`` and more are the message's
        own objects, not copies. They must not change until they have been sent.

        Raises:
            MalformedRequest: a value does not fit its declared type.
        """
        parts: list[Buffer] = []
        try:
            self._encode(message, parts.append)
        except ENCODE_FAULTS as error:
            raise _why_unencodable(message, self.version) from error
        start = self._answer_start
        after_size = start.size - _SIZE_BYTES
        if not self._is_scattered:
            body = b"".join(parts)
            return [start.pack(after_size + len(body), correlation_id) + body]
        size = after_size + sum(map(len, parts))
        return join_short([start.pack(size, correlation_id), *parts])


def join_short(parts: list[Buffer]) -> list[Buffer]:
    """``parts`` with runs of short ones joined; the bytes in order are the same."""
    sizes = list(map(len, parts))
    longest = max(sizes, default=0)
    if longest >= SCATTER_FROM_BYTES > sum(sizes) - longest:
        # Nearly always one is long: the records of one partition.
        index = sizes.index(longest)
        around = (b"".join(parts[:index]), parts[index], b"".join(parts[index + 1 :]))
        return [part for part in around if part]
    joined: list[Buffer] = []
    begin = 0
    for index, size in enumerate(sizes):
        if size >= SCATTER_FROM_BYTES:
            if begin < index:
                joined.append(b"".join(parts[begin:index]))
            joined.append(parts[index])
            begin = index + 1
    if begin < len(parts):
        joined.append(b"".join(parts[begin:]))
    return joined


def _decode(cls: type, version: int, buf: memoryview, position: int) -> tuple[Any, int]:
    """The message and the position after it."""
    decode = _decoders.get((cls, version)) or _decoder(cls, version)
    try:
        return decode(buf, position, len(buf))
    except TooManyElements as error:
        problem = (
            "its arrays and tag sections hold more elements than a request may: "
            f"{REQUEST_ELEMENTS_MAX}"
        )
        raise MalformedRequest(f"{cls.__name__} v{version}", "", -1, problem) from error
    except DECODE_FAULTS as error:
        raise _why_undecodable(cls, version, buf, position) from error


def _decoder(cls: type, version: int) -> Decoder:
    _check_version(cls, version)
    from protocol.declare import compiled

    decoder = _decoders[cls, version] = compiled.write_decoder(cls, version)
    return decoder


def _encoder(cls: type, version: int) -> Encoder:
    _check_version(cls, version)
    from protocol.declare import compiled

    encoder = _encoders[cls, version] = compiled.write_encoder(cls, version)
    return encoder


def _check_version(cls: type, version: int) -> None:
    spec = message_spec(cls)
    if not 0 <= version <= spec.max_version:
        raise UnsupportedVersion(spec.api_key, version)


def _why_undecodable(cls: type, version: int, buf: memoryview, position: int) -> Exception:
    from protocol.declare import schema

    if len(buf) - position > EXPLAINED_BYTES_MAX:
        problem = f"{len(buf) - position} bytes do not match the layout"
        return MalformedRequest(f"{cls.__name__} v{version}", "", -1, problem)
    try:
        schema.decode(cls, version, buf, position)
    except MalformedRequest as error:
        return error
    return AssertionError(f"{cls.__name__} v{version}: fast and declared codec disagree")


def _why_unencodable(value: Any, version: int, message: type | None = None) -> Exception:
    from protocol.declare import schema

    try:
        schema.encode(value, version, message)
    except MalformedRequest as error:
        return error
    return AssertionError(f"{type(value).__name__} v{version}: codecs disagree")


def _has_long_parts(cls: type) -> bool:
    return any(
        spec.element is RECORDS
        or spec.pre_encoded
        or (isinstance(spec.element, type) and _has_long_parts(spec.element))
        for _, spec in field_specs(cls)
    )

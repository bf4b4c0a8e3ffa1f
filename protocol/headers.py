"""The headers between the frame's size and the message, of requests and responses.

    request header    v1 (inflexible)             v2 (flexible)
    ================  ==========================  =====================================
    api_key           int16                       int16
    api_version       int16                       int16
    correlation_id    int32                       int32
    client_id         nullable string, int16 size nullable string, int16 size (sic)
    tag section       absent                      present, all tags skipped

    response header   v0 (inflexible)             v1 (flexible)
    ================  ==========================  =====================================
    correlation_id    int32                       int32
    tag section       absent                      present

The header is flexible when the message after it is, with two exceptions. ``client_id`` always keeps
its two-byte length. The answer to ApiVersions always has header v0, because a client that does not
know the broker yet cannot know which one to expect.

An undeclared API is read with header v1: enough to log the peer and close. Request header v0
existed for the one request ControlledShutdown v0, which no client sends.

Source: Kafka ``RequestHeader.json``, ``ResponseHeader.json``, ``ApiKeys.responseHeaderVersion``,
KIP-482, KIP-511.
"""

import struct
from typing import Final

from protocol.api import message_class
from protocol.api_keys import ApiKey
from protocol.declare import varint
from protocol.declare.primitives import NEVER, Buffer, Direction, message_spec
from protocol.errors import MalformedRequest, UnsupportedVersion
from values.dataclasses import dataclass

_FIXED: Final = struct.Struct(">hhih")
_CLIENT_ID_SIZE: Final = struct.Struct(">h")
_CLIENT_ID_SIZE_AT: Final = 8
_CLIENT_ID_AT: Final = 10
_CORRELATION: Final = struct.Struct(">i")
_NULL: Final = -1
_NO_TAGS: Final = b"\0"

TAGS_MAX: Final = 1_000
"""Tagged fields that one header may have; Kafka has defined none so far."""

_flexible_since: dict[int, int] = {}


@dataclass(slots=True, kw_only=True)
class RequestHeader:
    """The header of a request.

    Attributes:
        api_key: the API, not necessarily one that exists.
        api_version: the version, not necessarily one that is served.
        correlation_id: echoed unchanged in the answer; any int32.
        client_id: the client's own name, for logs and quotas; not authenticated.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def flexible_since(api_key: int) -> int:
    """First flexible version of ``api_key``; ``NEVER`` when there is none or no declaration."""
    known = _flexible_since.get(api_key)
    if known is None:
        try:
            known = message_spec(message_class(api_key, Direction.REQUEST)).flexible_since
        except UnsupportedVersion:
            return NEVER  # not kept: a peer must not be able to grow this table
        _flexible_since[api_key] = known
    return known


def decode_client_id(buf: Buffer, has_tags: bool) -> tuple[str | None, int]:
    """The client id of a request's header, and the position where the body begins.

    Raises:
        MalformedRequest: the frame ends early, or the client id is not text.
    """
    try:
        (size,) = _CLIENT_ID_SIZE.unpack_from(buf, _CLIENT_ID_SIZE_AT)
    except struct.error:
        raise MalformedRequest("RequestHeader", "", 0, f"only {len(buf)} bytes") from None
    position = _CLIENT_ID_AT
    client_id = None
    if size >= 0:
        end = position + size
        if end > len(buf):
            raise MalformedRequest(
                "RequestHeader",
                "client_id",
                position,
                f"claims {size} bytes, {len(buf) - position} are left",
            )
        try:
            client_id = str(buf[position:end], "utf-8")
        except UnicodeDecodeError as error:
            raise MalformedRequest(
                "RequestHeader", "client_id", position, f"not UTF-8: {error.reason}"
            ) from error
        position = end
    if has_tags:
        if position < len(buf) and buf[position] == 0:
            return client_id, position + 1
        position = _skip_tags(buf, position, "RequestHeader")
    return client_id, position


def encode_request_header(header: RequestHeader) -> bytes:
    """The bytes of ``header``, flexible when its version is."""
    client_id = b"" if header.client_id is None else header.client_id.encode()
    size = _NULL if header.client_id is None else len(client_id)
    fixed = _FIXED.pack(header.api_key, header.api_version, header.correlation_id, size)
    if header.api_version >= flexible_since(header.api_key):
        return fixed + client_id + _NO_TAGS
    return fixed + client_id


def encode_response_header(api_key: int, api_version: int, correlation_id: int) -> bytes:
    """The header of the answer to a request of this key and version."""
    if _has_response_tags(api_key, api_version):
        return _CORRELATION.pack(correlation_id) + _NO_TAGS
    return _CORRELATION.pack(correlation_id)


def decode_response_header(buf: Buffer, api_key: int, api_version: int) -> tuple[int, int]:
    """The correlation id of an answer, and the position where its body begins.

    Raises:
        MalformedRequest: the frame ends early.
    """
    try:
        (correlation_id,) = _CORRELATION.unpack_from(buf, 0)
    except struct.error:
        raise MalformedRequest("ResponseHeader", "", 0, f"only {len(buf)} bytes") from None
    position = _CORRELATION.size
    if _has_response_tags(api_key, api_version):
        position = _skip_tags(buf, position, "ResponseHeader")
    return correlation_id, position


def _has_response_tags(api_key: int, api_version: int) -> bool:
    return api_key != ApiKey.API_VERSIONS and api_version >= flexible_since(api_key)


def _skip_tags(buf: Buffer, position: int, message: str) -> int:
    try:
        count, after = varint.decode_unsigned(buf, position)
        if count > TAGS_MAX:
            problem = f"{count} tagged fields, at most {TAGS_MAX} are accepted"
            raise MalformedRequest(message, "tags", position, problem)
        return varint.skip_tags(buf, after, count)
    except (IndexError, ValueError) as error:
        raise MalformedRequest(message, "tags", position, "broken tag section") from error

"""The server's side of the codec without a connection: bodies of requests and of responses.

Everything goes through `protocol.registry.ServerCodec`, as in the broker.
"""

import struct
from functools import cache
from typing import Any

from protocol import headers, registry
from protocol.declare.primitives import Buffer, Direction, message_spec
from protocol.headers import RequestHeader
from protocol.registry import ServerCodec

codec = cache(ServerCodec)


def request_head(api_key: int, version: int) -> bytes:
    """The header of a request by a client without a name."""
    return headers.encode_request_header(
        RequestHeader(api_key=api_key, api_version=version, correlation_id=0, client_id=None)
    )


def decode_request(api_key: int, version: int, body: Buffer) -> Any:
    """The request with this body. Positions in errors count from the start of the header."""
    frame = bytearray(request_head(api_key, version))
    frame += body
    return codec(api_key, version).decode(frame)[1]


def encode_response(message: Any, version: int) -> list[Buffer]:
    """The body of a response, as the buffers that the broker sends, without size and header."""
    api_key = message_spec(type(message)).api_key
    first, *others = codec(api_key, version).encode(0, message)
    head = 4 + len(headers.encode_response_header(api_key, version, 0))
    return [memoryview(first)[head:], *others]


def encode_body(message: Any, version: int) -> bytes:
    """The body of a request or a response."""
    if message_spec(type(message)).direction is Direction.REQUEST:
        return registry.encode_request(message, version)
    return b"".join(encode_response(message, version))


def decode_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """The header at the start of a frame, and the position where the body begins.

    Raises:
        MalformedRequest: the frame ends early, or the client id is not text.
    """
    api_version = int.from_bytes(frame[2:4], "big", signed=True)
    api_key = int.from_bytes(frame[:2], "big", signed=True)
    has_tags = api_version >= headers.flexible_since(api_key)
    client_id, position = headers.decode_client_id(frame, has_tags)
    _, _, correlation_id = struct.unpack_from(">hhi", frame)
    header = RequestHeader(
        api_key=api_key,
        api_version=api_version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    return header, position

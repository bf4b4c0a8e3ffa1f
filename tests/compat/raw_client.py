"""A blocking client of a few lines on our own codec, for tests that need many requests.

The codec itself is judged elsewhere, byte for byte against independent ones; here it saves the
overhead of a whole client. Requests may be sent ahead of their answers: the broker answers in
order.
"""

import itertools
import socket
from collections import deque
from typing import Any

from protocol import registry
from protocol.api_keys import ApiKey
from protocol.frames import FrameDecoder, encode_frame
from protocol.headers import RequestHeader, decode_response_header, encode_request_header

MAX_RESPONSE_BYTES = 64 << 20
RECEIVE_BYTES = 1 << 18


class RawClient:
    """One connection; `send` then `receive`, or `ask` for both."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), 30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._decoder = FrameDecoder(MAX_RESPONSE_BYTES)
        self._correlation_ids = itertools.count(1)
        self._sent: deque[tuple[ApiKey, int, int]] = deque()

    def close(self) -> None:
        self._socket.close()

    def ask(self, api_key: ApiKey, message: Any, version: int) -> Any:
        """The decoded response to a request."""
        self.send(api_key, message, version)
        return self.receive()

    def send(self, api_key: ApiKey, message: Any, version: int) -> None:
        """Sends a request; its response is due at a later `receive`."""
        correlation_id = next(self._correlation_ids)
        header = RequestHeader(
            api_key=api_key, api_version=version, correlation_id=correlation_id, client_id="raw"
        )
        body = registry.encode_request(message, version)
        parts = encode_frame([encode_request_header(header), body])
        self._socket.sendall(b"".join(parts))
        self._sent.append((api_key, version, correlation_id))

    def receive(self) -> Any:
        """The decoded response to the oldest request that has none yet."""
        frame = self._decoder.next_frame()
        while frame is None:
            received = self._socket.recv(RECEIVE_BYTES)
            assert received, "the broker closed the connection"
            self._decoder.feed(received)
            frame = self._decoder.next_frame()
        api_key, version, expected = self._sent.popleft()
        view = memoryview(frame)
        correlation_id, position = decode_response_header(view, api_key, version)
        assert correlation_id == expected, "answers come in the order of their requests"
        return registry.decode_response(api_key, version, view, position)

"""Messages between two worker processes, over a pair of connected Unix sockets.

Owns the framing and the matching of answers to calls. A message is a JSON object after its size in
four bytes; it may carry one open file descriptor. The pair is made by the parent process and
inherited, so no other process can connect.

    {"call": 7, "marker": {...}}    a call, to be answered
    {"reply": 7, "value": ...}      its answer
    {"change": [...], "seq": 12}    a message without answer

Messages arrive in the order in which they were sent. What is sent waits in memory until the peer
reads it; the peer is our own process. Loop thread only.
"""

import asyncio
import json
import os
import socket
import struct
from array import array
from collections import deque
from collections.abc import Callable
from typing import Any, Final

Message = dict[str, Any]

_SIZE: Final = struct.Struct(">I")
_RECEIVE_BYTES: Final = 256 * 1024
_DESCRIPTORS_MAX: Final = 64
_CALL: Final = "call"
_REPLY: Final = "reply"
_DESCRIPTOR: Final = "descriptor"


class Link:
    """One end of a pair. `on_message(message, descriptor)` gets what is no reply."""

    def __init__(
        self,
        connected: socket.socket,
        on_message: Callable[[Message, int | None], object],
        on_lost: Callable[[], object],
    ) -> None:
        """Own the socket. Messages can be sent at once; `open` begins to receive."""
        self._socket = connected
        connected.setblocking(False)
        self._on_message = on_message
        self._on_lost = on_lost
        self._out: deque[tuple[memoryview, int | None]] = deque()
        self._received = bytearray()
        self._descriptors: deque[int] = deque()
        self._calls: dict[int, Callable[[Any], object]] = {}
        self._last_call = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_writing = False
        self.is_lost = False

    def open(self) -> None:
        """Receive, in the running loop."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket.fileno(), self._readable)
        self._write()

    def flush(self, timeout_s: float) -> None:
        """Send now what is waiting, without the loop, as far as the peer reads it in that time."""
        self._socket.settimeout(timeout_s)
        try:
            self._write()
        finally:
            if not self.is_lost:
                self._socket.setblocking(False)

    def send(self, message: Message, descriptor: int | None = None) -> None:
        """Send a message, after earlier ones. The descriptor is closed when it is sent."""
        if self.is_lost:
            if descriptor is not None:
                os.close(descriptor)
            return
        if descriptor is not None:
            message = {**message, _DESCRIPTOR: True}
        body = json.dumps(message, separators=(",", ":")).encode()
        self._out.append((memoryview(_SIZE.pack(len(body)) + body), descriptor))
        if not self._is_writing:
            self._write()

    def call(self, message: Message, answer: Callable[[Any], object]) -> None:
        """Send a call; `answer` gets the value of the reply, or None if the link is lost."""
        if self.is_lost:
            answer(None)
            return
        self._last_call += 1
        self._calls[self._last_call] = answer
        self.send({_CALL: self._last_call, **message})

    def reply(self, message: Message, value: Any) -> None:
        """Answer a call."""
        self.send({_REPLY: message[_CALL], "value": value})

    def close(self) -> None:
        """Close this end; calls without a reply get None."""
        if self.is_lost:
            return
        self.is_lost = True
        if self._loop is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._loop.remove_writer(self._socket.fileno())
        self._socket.close()
        for _, descriptor in self._out:
            if descriptor is not None:
                os.close(descriptor)
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._out.clear()
        calls, self._calls = self._calls, {}
        for answer in calls.values():
            answer(None)

    def _lose(self) -> None:
        if not self.is_lost:
            self.close()
            self._on_lost()

    def _write(self) -> None:
        self._is_writing = False
        while self._out:
            data, descriptor = self._out[0]
            try:
                if descriptor is None:
                    sent = self._socket.send(data)
                else:
                    sent = socket.send_fds(self._socket, [data], [descriptor])
            except (BlockingIOError, TimeoutError):
                self._is_writing = self._loop is not None
                break
            except OSError:
                # Not at once: the caller is in the middle of something.
                if self._loop is not None:
                    self._loop.call_soon(self._lose)
                return
            if descriptor is not None:
                os.close(descriptor)
            if sent < len(data):
                self._out[0] = (data[sent:], None)
            else:
                self._out.popleft()
        if self._loop is None:
            return
        if self._is_writing:
            self._loop.add_writer(self._socket.fileno(), self._write)
        else:
            self._loop.remove_writer(self._socket.fileno())

    def _readable(self) -> None:
        try:
            data, ancillary, _, _ = self._socket.recvmsg(
                _RECEIVE_BYTES, socket.CMSG_SPACE(_DESCRIPTORS_MAX * array("i").itemsize)
            )
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._lose()
            return
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                numbers = array("i")
                numbers.frombytes(content[: len(content) - len(content) % numbers.itemsize])
                self._descriptors.extend(numbers)
        if not data:
            self._lose()
            return
        self._received += data
        while not self.is_lost and (message := self._cut()) is not None:
            self._deliver(message)

    def _cut(self) -> Message | None:
        received = self._received
        if len(received) < _SIZE.size:
            return None
        end = _SIZE.size + _SIZE.unpack_from(received)[0]
        if len(received) < end:
            return None
        message: Message = json.loads(received[_SIZE.size : end])
        del received[:end]
        return message

    def _deliver(self, message: Message) -> None:
        if _REPLY in message:
            self._calls.pop(message[_REPLY])(message["value"])
            return
        descriptor = self._descriptors.popleft() if message.get(_DESCRIPTOR) else None
        self._on_message(message, descriptor)

"""The outermost layer: a stream of bytes cut into frames, and frames given their size.

| offset | size | meaning                                            |
|--------|------|----------------------------------------------------|
| 0      | 4    | size of what follows, int32 big-endian, not itself |
| 4      | size | header and body of one request or response         |

``FrameDecoder`` owns the bytes between two reads of a socket and knows nothing of the socket. Its
three-way contract: ``next_frame`` returns a frame, or None when more bytes are needed; ``feed``
raises when no further bytes can repair the stream.

Invariants: the cost is linear in the bytes fed, independent of the sizes of reads and frames. Each
byte is copied once, into the buffer of its frame. That buffer grows with the bytes that really
arrive, so a peer that claims a hundred megabytes and sends ten bytes costs ten bytes. Every frame
has a buffer of its own, which the receiver may keep and write to (the broker stamps offsets into
the record batches of a Produce frame in place).

Source: Kafka protocol guide, "Protocol Primitive Types" and ``socket.request.max.bytes``.
"""

import struct
from collections import deque
from collections.abc import Sequence
from typing import Final

from protocol.declare.primitives import Buffer
from protocol.errors import MalformedFrame

PREFIX_BYTES: Final = 4
"""Bytes of the size prefix of every frame."""

_PREFIX: Final = struct.Struct(">i")


class FrameDecoder:
    """Cuts one connection's byte stream into frames; used by one reader, in order."""

    __slots__ = ("_fault", "_frame", "_max_frame_bytes", "_missing", "_prefix", "_ready")

    def __init__(self, max_frame_bytes: int) -> None:
        """Accept frames of up to ``max_frame_bytes``, not counting the prefix."""
        assert max_frame_bytes > 0
        self._max_frame_bytes = max_frame_bytes
        self._prefix = bytearray()
        self._frame = bytearray()
        self._missing = -1  # bytes the open frame still needs; -1 while its prefix is incomplete
        self._ready: deque[bytearray] = deque()
        self._fault: MalformedFrame | None = None

    @property
    def buffered_bytes(self) -> int:
        """Bytes held for the incomplete frame, its prefix not counted."""
        return len(self._frame)

    def feed(self, data: Buffer) -> None:
        """Take the next bytes of the stream; ``data`` is copied, not kept.

        Raises:
            MalformedFrame: a size is negative or above the limit. The decoder stays broken and
                raises the same fault on every later call; frames completed before it can still
                be taken.
        """
        if self._fault is not None:
            raise self._fault
        view = memoryview(data)
        position = 0
        while position < len(view):
            if self._missing < 0:
                position = self._read_prefix(view, position)
                if self._missing < 0:
                    return
            taken = min(self._missing, len(view) - position)
            self._frame += view[position : position + taken]
            position += taken
            self._missing -= taken
            if self._missing == 0:
                self._ready.append(self._frame)
                self._frame = bytearray()
                self._missing = -1

    def next_frame(self) -> bytearray | None:
        """The oldest complete frame, without its prefix and now the caller's own; None if none."""
        return self._ready.popleft() if self._ready else None

    def _read_prefix(self, view: memoryview, position: int) -> int:
        """Complete the prefix if the bytes suffice, open its frame; the position after it."""
        end = min(len(view), position + PREFIX_BYTES - len(self._prefix))
        self._prefix += view[position:end]
        if len(self._prefix) < PREFIX_BYTES:
            return end
        (size,) = _PREFIX.unpack(self._prefix)
        self._prefix.clear()
        # An empty frame cannot hold a header, so zero is as impossible as a negative size.
        if not 0 < size <= self._max_frame_bytes:
            self._fault = MalformedFrame(size, self._max_frame_bytes)
            raise self._fault
        self._missing = size
        return end


def encode_frame(parts: Sequence[Buffer]) -> list[Buffer]:
    """``parts`` with a prefix of their total size; the parts themselves are not copied.

    Raises:
        MalformedFrame: the parts add up to more than an int32 can hold.
    """
    size = sum(map(len, parts))
    if size > 2**31 - 1:
        raise MalformedFrame(size, 2**31 - 1)
    return [_PREFIX.pack(size), *parts]

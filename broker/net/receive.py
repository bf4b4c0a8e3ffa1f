# cython: language_level=3
# mypy: disable-error-code="untyped-decorator,valid-type,no-any-return"
"""From bytes to frames with as few copies as possible: the buffers for received bytes.

The sans-I/O half of a connection's input. The transport calls `buffer()` for the place of the next
bytes and reports their number with `received(n)`. It returns frames, each in a `bytearray` of its
own that belongs to the request from then on (a batch is stamped and written from it).

There are two places:

* the *scratch*, one per process and shared by all connections, while no frame has begun. A read
  into it is split into frames before control returns to the event loop, so no two connections use
  it at once. Small frames are copied out of it once; an idle connection owns no buffer at all.
* the *frame's own buffer*, as soon as a frame is known to continue past the scratch: the kernel
  then copies straight into the place the request will be served from.

The memory of a large frame is reused for the next one (`recycle`), once there is no view of it: a
fresh megabyte costs its zeroing and 256 page faults. Each process keeps one spare.

A size prefix is only a claim. The frame's buffer starts at `FIRST_STEP_BYTES` (or the largest frame
this peer has completed before) and doubles as bytes arrive. A peer that claims 100 MiB and sends 10
bytes costs 64 KiB.

Source: the frame format of the Kafka protocol guide: int32 size, then that many bytes.
"""

from __future__ import annotations

from collections import deque
from struct import Struct

from protocol.errors import MalformedFrame

try:
    import cython
except ImportError:  # A wheel built without a compiler, on a machine without Cython.
    from protocol.records import cython_shim as cython

COMPILED: bool = bool(cython.compiled)
"""Whether this module was compiled to machine code."""

SCRATCH_BYTES = 256 * 1024
"""Also the largest read: libuv suggests 64 KiB; more saves system calls under load."""

SCRATCH_OF_LARGE_BYTES = 16 * 1024
"""The scratch of a peer that has sent a frame above `SCRATCH_BYTES`.

Bytes read here are copied out, and the rest of such a frame goes to its own memory.
"""

FIRST_STEP_BYTES = 64 * 1024

FRAMES_AT_ONCE = 512
"""Frames cut in one step, about half a millisecond; a read may hold 60,000."""

SPARE_BYTES_MAX = 4 * 1024 * 1024
"""The largest frame whose memory is kept for the next one."""

_PREFIX = Struct(">i")
_PREFIX_BYTES = 4
SCRATCH = memoryview(bytearray(SCRATCH_BYTES))
_SCRATCH_OF_LARGE = SCRATCH[:SCRATCH_OF_LARGE_BYTES]
_spares: deque[bytearray] = deque(maxlen=1)


def recycle(frame: memoryview) -> None:
    """Offer the memory of a large frame to a later one; `frame` is invalid after this.

    Views of it stay valid. The check for views comes with the reuse, because the transport has one
    until this read is over.
    """
    memory = frame.obj
    frame.release()
    if isinstance(memory, bytearray) and len(memory) <= SPARE_BYTES_MAX:
        _spares.append(memory)


def _memory_of(size: int) -> bytearray:
    """At least `size` bytes, the spare's if it is not much larger and has no views."""
    if _spares and size <= len(_spares[0]) <= 2 * size:
        spare = _spares.popleft()
        try:
            # A bytearray refuses to change its size while it has views.
            spare.append(0)
        except BufferError:
            return bytearray(size)
        spare.pop()
        return spare
    return bytearray(size)


class FrameReceiver:
    """The receiving state of one connection.

    After an exception the stream is meaningless and the connection must close.
    """

    __slots__ = (
        "_filled",
        "_frame",
        "_prefix",
        "_size",
        "_trusted_bytes",
        "held_bytes",
        "is_mid_frame",
        "max_frame_bytes",
        "rest",
    )

    def __init__(self, max_frame_bytes: int) -> None:
        """Refuse frames above `max_frame_bytes`; `held_bytes` is the unfinished frame's memory.

        `is_mid_frame` is whether a frame has begun and not ended: an attribute, as each read asks.
        `rest` holds the bytes that `cut_rest` has yet to cut; no more may be received before that.
        """
        self.held_bytes = 0
        self.is_mid_frame = False
        self.rest = b""
        self.max_frame_bytes = max_frame_bytes
        self._frame: bytearray | None = None
        self._filled = 0
        self._size = 0
        self._prefix = b""
        self._trusted_bytes = FIRST_STEP_BYTES

    def buffer(self) -> memoryview:
        """Where the next bytes go; never empty, valid until `received`."""
        frame = self._frame
        if frame is None:
            return SCRATCH if self._trusted_bytes <= SCRATCH_BYTES else _SCRATCH_OF_LARGE
        return memoryview(frame)[self._filled : self._size]

    def received(
        self, count: cython.Py_ssize_t, served: cython.Py_ssize_t = 0
    ) -> list[bytearray | memoryview]:
        """The frames completed by the `count` bytes read into `buffer()`, or the first of many.

        The first `served` bytes are frames that were served where they are.

        Raises:
            MalformedFrame: the first size prefix is negative or above the limit. After frames that
                are whole a later one is left in `rest`.
        """
        frame = self._frame
        if frame is None:
            return self._take_apart(SCRATCH[served:] if served else SCRATCH, count - served)
        self._filled += count
        if self._filled == self._size:
            self._frame = None
            self.held_bytes = 0
            self.is_mid_frame = False
            self._trusted_bytes = max(self._trusted_bytes, self._size)
            return [memoryview(frame)[: self._size]]
        if self._filled == len(frame):
            self._frame = bytearray(min(self._size, 2 * len(frame)))
            self._frame[: self._filled] = frame
            self.held_bytes = len(self._frame)
        return []

    def cut_rest(self) -> list[bytearray | memoryview]:
        """The next frames of `rest`. Raises as `received`."""
        rest, self.rest = self.rest, b""
        return self._take_apart(memoryview(rest), len(rest)) if rest else []

    def _take_apart(self, data: memoryview, end: cython.Py_ssize_t) -> list[bytearray | memoryview]:
        """Cut the first `end` bytes of `data` into frames.

        The last, unfinished one moves into a buffer of its own.
        """
        if self._prefix:
            data = memoryview(self._prefix + data[:end])
            end = len(data)
            self._prefix = b""
            self.is_mid_frame = False
        frames: list[bytearray | memoryview] = []
        position = 0
        while end - position >= _PREFIX_BYTES:
            (size,) = _PREFIX.unpack_from(data, position)
            if not 0 <= size <= self.max_frame_bytes:
                if not frames:
                    raise MalformedFrame(size, self.max_frame_bytes)
                self.rest = bytes(data[position:end])
                return frames
            position += _PREFIX_BYTES
            if position + size > end:
                self._begin_frame(data[position:end], size)
                return frames
            frames.append(bytearray(data[position : position + size]))
            position += size
            if len(frames) >= FRAMES_AT_ONCE:
                self.rest = bytes(data[position:end])
                return frames
        if position < end:
            self._prefix = bytes(data[position:end])
            self.is_mid_frame = True
        return frames

    def _begin_frame(self, data: memoryview, size: cython.longlong) -> None:
        """Move the beginning of a frame of `size` bytes into a buffer of its own."""
        available = len(data)
        frame = _memory_of(min(size, max(self._trusted_bytes, 2 * available)))
        frame[:available] = data
        self._frame = frame
        self._filled = available
        self._size = size
        self.held_bytes = len(frame)
        self.is_mid_frame = True

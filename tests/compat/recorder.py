"""Notes which versions of which requests each client sends, on their way to the broker.

A proxy on loopback that the broker advertises as its own address, so that every connection of a
client passes through it. It reads the first eight bytes of each request, size, key and version, and
changes nothing. A connection belongs to the client whose program runs when it is opened; what
the harness itself opens in between belongs to no client. Used by `tests.compat.report`.
"""

import contextlib
import socket
import struct
import threading
from collections import defaultdict
from collections.abc import Iterator

_REQUEST_START = struct.Struct(">ihh")
_SIZE_BYTES = 4
_CHUNK_BYTES = 1 << 16


class Recorder:
    """One proxy; `versions` is what it has seen: client name -> {(api key, version)}."""

    def __init__(self) -> None:
        self.versions: dict[str, set[tuple[int, int]]] = defaultdict(set)
        self._client = ""
        self._broker = ("", 0)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def serve(self, bootstrap: str) -> None:
        """Passes everything on to the broker at `bootstrap` from now on."""
        host, _, port = bootstrap.rpartition(":")
        self._broker = (host, int(port))
        threading.Thread(target=self._accept, daemon=True).start()

    @contextlib.contextmanager
    def attributing(self, client: str) -> Iterator[None]:
        """Connections that are opened inside belong to `client`."""
        before, self._client = self._client, client
        try:
            yield
        finally:
            self._client = before

    def _accept(self) -> None:
        while True:
            near, _ = self._listener.accept()
            far = socket.create_connection(self._broker)
            for connection in (near, far):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            seen = self.versions[self._client] if self._client else None
            for source, target, noted in ((near, far, seen), (far, near, None)):
                arguments = (source, target, noted)
                threading.Thread(target=_pass_on, args=arguments, daemon=True).start()


def _pass_on(
    source: socket.socket, target: socket.socket, seen: set[tuple[int, int]] | None
) -> None:
    """Copies until one side ends, then ends both."""
    head, left = bytearray(), 0
    with contextlib.suppress(OSError):
        while chunk := source.recv(_CHUNK_BYTES):
            if seen is not None:
                left = _note(chunk, head, left, seen)
            target.sendall(chunk)
    for connection in (source, target):
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
    source.close()


def _note(chunk: bytes, head: bytearray, left: int, seen: set[tuple[int, int]]) -> int:
    """Adds the requests that begin in `chunk`; how much of the last one is still to come.

    `head` holds the first bytes of a request that was cut before its version.
    """
    position = 0
    while position < len(chunk):
        if left:
            step = min(left, len(chunk) - position)
            position, left = position + step, left - step
            continue
        taken = chunk[position : position + _REQUEST_START.size - len(head)]
        head += taken
        position += len(taken)
        if len(head) == _REQUEST_START.size:
            size, api_key, version = _REQUEST_START.unpack(head)
            seen.add((api_key, version))
            left = size - (_REQUEST_START.size - _SIZE_BYTES)
            head.clear()
    return left


_recorder: Recorder | None = None


def start() -> Recorder:
    """The recorder of this process, which brokers and clients use from now on."""
    global _recorder
    _recorder = Recorder()
    return _recorder


def running() -> Recorder | None:
    """The recorder of this process, or None where none was asked for."""
    return _recorder


def attributing(client: str) -> contextlib.AbstractContextManager[None]:
    """As `Recorder.attributing`; nothing without a recorder."""
    return contextlib.nullcontext() if _recorder is None else _recorder.attributing(client)

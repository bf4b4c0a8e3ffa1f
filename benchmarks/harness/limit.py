"""The least that a durable broker on uvloop could do: receive frames, append them, answer.

It reads nothing of a request but its length and its correlation id, appends the whole frame to
one file, and answers with the correlation id alone. With `--sync` it answers after an fdatasync
that covers the frame; frames that arrive during a sync share the next one, as they do in Tidelog.
What Tidelog reaches with the same bytes from the same sender, divided by this, says how much of
the machine it leaves on the table. `python -m benchmarks.harness.limit PORT FOLDER [--sync]`
"""

import argparse
import asyncio
import os
from pathlib import Path
from typing import cast

import uvloop

_PREFIX = 4
_CORRELATION_ID = slice(8, 12)  # after the length: api key, api version


class Appender:
    """One file; with `synced`, appends are over when a shared fdatasync has covered them."""

    def __init__(self, path: Path, *, synced: bool) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._synced = synced
        self._waiting: list[tuple[asyncio.Transport, bytes]] = []
        self._syncing = False

    def append(self, frame: memoryview, transport: asyncio.Transport) -> None:
        """Writes a frame and answers it, at once or after its sync."""
        os.write(self._fd, frame)
        answer = b"\0\0\0\4" + bytes(frame[_CORRELATION_ID])
        if not self._synced:
            transport.write(answer)
            return
        self._waiting.append((transport, answer))
        if not self._syncing:
            self._start_sync()

    def _start_sync(self) -> None:
        self._syncing = True
        covered, self._waiting = self._waiting, []
        loop = asyncio.get_running_loop()
        sync = loop.run_in_executor(None, os.fdatasync, self._fd)
        sync.add_done_callback(lambda _: self._finish_sync(covered))

    def _finish_sync(self, covered: list[tuple[asyncio.Transport, bytes]]) -> None:
        self._syncing = False
        for transport, answer in covered:
            transport.write(answer)
        if self._waiting:
            self._start_sync()


class Receiver(asyncio.BufferedProtocol):
    """Cuts a connection into frames without copying more than the receive buffer's rest."""

    def __init__(self, appender: Appender) -> None:
        self._appender = appender
        self._buffer = bytearray(4 << 20)
        self._filled = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        start = 0
        view = memoryview(self._buffer)
        while self._filled - start >= _PREFIX:
            size = _PREFIX + int.from_bytes(view[start : start + _PREFIX], "big")
            assert size <= len(self._buffer), "the sender's requests fit the buffer"
            if self._filled - start < size:
                break
            self._appender.append(view[start : start + size], self._transport)
            start += size
        rest = self._filled - start
        if start and rest:
            self._buffer[:rest] = self._buffer[start : self._filled]
        self._filled = rest


async def serve(port: int, folder: Path, *, synced: bool) -> None:
    """Listens on a port of 127.0.0.1 until it is cancelled."""
    appender = Appender(folder / "frames.log", synced=synced)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Receiver(appender), "127.0.0.1", port)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.harness.limit")
    parser.add_argument("port", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sync", action="store_true")
    options = parser.parse_args()
    uvloop.run(serve(options.port, options.folder, synced=options.sync))


if __name__ == "__main__":
    main()

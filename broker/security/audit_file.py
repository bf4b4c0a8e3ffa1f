"""The audit log as a file of JSON lines, `audit.log.file`: written by a thread, reopened at SIGHUP.

A line is one JSON object in ASCII, so no name can end it or hide text of it. It is appended whole,
so several workers may share a file. The loop never waits for the disk: during a write further lines
are collected, and a write that fails is tried again each second. With `LINES_MAX` lines waiting
more are left out and counted, except changes by administrators, each of which has cost a sync; the
next line says how many are missing. Lines that the last write, at the stop, cannot append are
counted as lost and reported in the broker's own log.

The file is not rotated here. After a move, lines are written to the moved file until SIGHUP. Lines
are not synced: after a power cut the last ones may be missing.
"""

import json
import logging
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from broker.clocks.clock import Clock
from broker.errors import StartError
from broker.threads import Pool

logger = logging.getLogger("tidelog.broker.security.audit_file")

LINES_MAX: Final = 10_000
RETRY_MS: Final = 1_000
SETTING: Final = "audit.log.file"
_MODE: Final = 0o600


class AuditFile:
    """One open file. Loop thread only, but for the writes, which keep what they leave over."""

    def __init__(self, path: str, thread: Pool, clock: Clock) -> None:
        """Open the file for appending, and make it if there is none; `thread` is one thread.

        Raises:
            StartError: it cannot be written.
        """
        assert thread.size == 1, "writes have an order"
        self.path = path
        self.lost = 0
        """Lines that were left out since the start."""
        self._thread = thread
        self._clock = clock
        self._waiting: list[bytes] = []
        self._unwritten = b""
        self._error: OSError | None = None
        self._under_way = self._unsaid = 0
        self._is_busy = self._is_torn = self._has_failed = self._is_closed = False
        try:
            self._file = _open(path)
        except OSError as error:
            raise StartError(
                f"{SETTING}: cannot write {path}: {error.strerror}",
                "name a file in a directory that the broker may write",
            ) from error

    def write(self, fields: Mapping[str, Any], *, is_kept: bool) -> None:
        """Append a line soon; one that `is_kept` also if too many wait."""
        if len(self._waiting) + self._under_way >= LINES_MAX and not is_kept:
            self.lost += 1
            self._unsaid += 1
            return
        if self._unsaid:
            self._waiting.append(self._lines_lost())
        self._waiting.append(self._line(fields))
        if not self._is_busy:
            self._begin()

    def reopen(self) -> None:
        """Append to the file that has the path now; if it cannot be opened, to the former one."""
        try:
            fresh = _open(self.path)
        except OSError as error:
            logger.error(
                "%s: cannot write %s, lines are still written to the former file: %s",
                SETTING,
                self.path,
                error.strerror,
            )
            return
        former, self._file = self._file, fresh
        self._is_torn = False
        self._thread.submit(lambda: os.close(former), lambda _, __: None)

    def close(self) -> None:
        """Write what waits, and close the file; what cannot be written is counted and reported."""
        self._is_closed = True
        if self._unsaid:
            self._waiting.append(self._lines_lost())
        self._thread.run_all([self._next_write(), lambda: os.close(self._file)])
        if self._unwritten:
            lost = self._unwritten.count(b"\n")
            self.lost += lost
            logger.error(
                "%s: cannot write %s: %s; %d lines are lost, because the broker stops",
                SETTING,
                self.path,
                self._error and self._error.strerror,
                lost,
            )

    def _lines_lost(self) -> bytes:
        count, self._unsaid = self._unsaid, 0
        return self._line({"event": "lines lost", "count": count})

    def _line(self, fields: Mapping[str, Any]) -> bytes:
        now = datetime.fromtimestamp(self._clock.wall_ms() / 1000, UTC)
        time = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return json.dumps({"time": time, **fields}).encode() + b"\n"

    def _begin(self) -> None:
        if (self._waiting or self._unwritten) and not self._is_closed:
            self._is_busy = True
            self._thread.submit(self._next_write(), self._written)

    def _next_write(self) -> Callable[[], None]:
        """A call that appends all lines that wait, after those that the call before left over."""
        file, lines = self._file, b"".join(self._waiting)
        self._under_way += len(self._waiting)
        self._waiting = []

        def write() -> None:
            prefix = b"\n" if self._is_torn else b""
            self._unwritten, self._is_torn, self._error = _append(
                file, prefix, self._unwritten + lines
            )

        return write

    def _written(self, _: None, failure: BaseException | None) -> None:
        if failure is not None:
            raise failure
        if self._is_closed:
            return  # `close` has written the rest, or said that it could not
        error = self._error
        if error is None:
            self._under_way, self._is_busy, self._has_failed = 0, False, False
            self._begin()
            return
        # A cut line is ended by the next write, and written again.
        self._under_way = self._unwritten.count(b"\n")
        if not self._has_failed:
            self._has_failed = True
            logger.error(
                "%s: cannot write %s, lines wait in memory: %s", SETTING, self.path, error.strerror
            )
        self._clock.call_later(RETRY_MS, self._begin)


def _open(path: str) -> int:
    # Nonblocking for a named pipe: one without a reader is refused, and delays no start.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
    return os.open(path, flags, _MODE)


def _append(file: int, prefix: bytes, lines: bytes) -> tuple[bytes, bool, OSError | None]:
    """Append `lines`: those that are not in the file, whether it ends inside a line, and why."""
    data, written = prefix + lines, 0
    try:
        while written < len(data):
            written += os.write(file, memoryview(data)[written:])
    except OSError as error:
        whole = lines.rfind(b"\n", 0, max(0, written - len(prefix))) + 1
        return lines[whole:], written != len(prefix) + whole, error
    return b"", False, None

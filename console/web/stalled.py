"""HTTP for readers that may stall: a connection whose reader takes nothing for a minute ends.

An answer without a foreseen end, as a live tail or an export, waits for its reader. A browser that
sleeps, or a program that only connects, would keep its place among the tails for ever. Closing is
not enough, since it waits until what is buffered has been taken.
"""

import asyncio
from typing import Final

from uvicorn.protocols.http.h11_impl import H11Protocol

STALLED_S: Final = 60.0
"""How long a reader may take nothing of an answer that has more than the buffer holds."""


class BoundedProtocol(H11Protocol):
    """Aborts the connection of a reader that takes nothing for `STALLED_S`."""

    _abort: asyncio.TimerHandle | None = None

    def pause_writing(self) -> None:
        """The buffer is full: start to wait for the reader."""
        super().pause_writing()
        self._abort = self.loop.call_later(STALLED_S, self.transport.abort)

    def resume_writing(self) -> None:
        """The reader has taken most of the buffer."""
        super().resume_writing()
        self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended, by whichever side."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _stop_waiting(self) -> None:
        if self._abort is not None:
            self._abort.cancel()
            self._abort = None

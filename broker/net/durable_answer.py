"""The answer to a Produce of the lane whose records are not on disk yet.

Owns the bytes of the answer until the group commits that cover its records are over. They are made
beforehand, for success: a failed sync, or one that takes too long, changes them in place. The rules
are those of `broker.handlers.produce`, whose `_DurableWait` does the same for the general way. This
one makes neither a message nor a timer: once a second the connection looks for answers that are
due.
"""

import time
from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Final, TypeAlias

from broker.requests.commit_wait import PATIENCE_MS
from broker.requests.error_mapping import error_code
from protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from broker.group_commit import GroupCommit
    from protocol.declare.primitives import Buffer
    from storage.errors import StorageError
    from storage.log.log import Log

Wait: TypeAlias = "tuple[Log, int, int]"
"""A log, the offset below which it must be on disk, and where its error code is in the answer."""

_ERROR: Final = Struct(">h")
_ERROR_AND_BASE_OFFSET: Final = Struct(">hq")
_NO_OFFSET: Final = -1


class DurableAnswer:
    """A slot of a connection, like `broker.net.dispatch.Exchange`.

    Attributes:
        parts: the answer, once it may be sent; None until then.
        close_reason: always None.
        due_tick: the second, as the connection counts them, in which `time_out` is due.
        patience_ms: how long the answer may wait for the disk.
    """

    __slots__ = (
        "_answer",
        "_observe",
        "_on_done",
        "_places",
        "_started_ns",
        "_waits",
        "close_reason",
        "due_tick",
        "parts",
        "patience_ms",
    )

    def __init__(
        self,
        answer: bytearray,
        waits: "list[Wait]",
        timeout_ms: int,
        started_ns: int,
        observe: Callable[[int], object],
    ) -> None:
        """Hold back `answer` for `waits`; `observe` gets the nanoseconds since `started_ns`."""
        self.parts: list[Buffer] | None = None
        self.close_reason: str | None = None
        self.due_tick = 0
        self.patience_ms = timeout_ms if timeout_ms > PATIENCE_MS else PATIENCE_MS
        self._answer = answer
        self._started_ns = started_ns
        self._observe = observe
        self._waits = waits
        self._places = {error_at for _, _, error_at in waits}
        self._on_done: Callable[[DurableAnswer], object] | None = None

    def begin(
        self, commit: "GroupCommit", due_tick: int, on_done: Callable[["DurableAnswer"], object]
    ) -> None:
        """Wait for the syncs of `commit`; call `on_done(self)` when `parts` is set, maybe now."""
        self.due_tick = due_tick
        self._on_done = on_done
        for log, next_offset, error_at in self._waits:
            commit.when_durable(log, next_offset, partial(self._settle, error_at))

    def abandon(self) -> None:
        """The client has gone."""
        self._on_done = None

    def time_out(self) -> None:
        """Answer without the disk: the records are written, and may become durable later."""
        for place in self._places:
            _ERROR.pack_into(self._answer, place, ErrorCode.REQUEST_TIMED_OUT)
        self._finish()

    def _settle(self, place: int, error: "StorageError | None") -> None:
        self._places.discard(place)
        if self.parts is not None:
            return
        if error is not None:
            _ERROR_AND_BASE_OFFSET.pack_into(self._answer, place, error_code(error), _NO_OFFSET)
        if not self._places:
            self._finish()

    def _finish(self) -> None:
        self.parts = [self._answer]
        on_done, self._on_done = self._on_done, None
        if on_done is not None:
            self._observe(time.perf_counter_ns() - self._started_ns)
            on_done(self)

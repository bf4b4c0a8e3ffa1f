"""A Fetch of the lane that waits for records: the place of its answer in a connection.

A consumer that has read everything waits most of the time, so this is the usual state of a fetch.
It keeps the bytes of the request and the logs that it waits for. Once enough bytes are visible, or
time is up, the lane of Fetch serves the request again, as if it had just come. What is not usual by
then goes the general way, with the time that is left.

The session of the request moves on with the answer, not before: like any Fetch it blocks the
requests after it on its connection. If the session is evicted meanwhile, this request learns it; in
the general way it is the next one.

Read next: `broker.fetch.waiters`, and `broker.handlers.fetch`, the general way.
"""

import time
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from broker.errors import ConnectionMustClose
from broker.fetch.waiters import MAX_WAIT_MS, FetchWaiter
from protocol.api_keys import ApiKey
from protocol.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.net.dispatch import Dispatcher, Exchange, Requester
    from broker.net.fetch_lane import FetchLane
    from protocol.declare.primitives import Buffer
    from storage.log.log import Log

_INT32: Final = Struct(">i")


class WaitingFetch:
    """A slot of a connection, like `broker.net.dispatch.Exchange`.

    Attributes:
        parts: the answer, once it may be sent; None until then.
        close_reason: why the connection has to close instead, or None.
    """

    __slots__ = (
        "_context",
        "_deadline_ms",
        "_dispatcher",
        "_exchange",
        "_frame",
        "_lane",
        "_max_wait_at",
        "_on_done",
        "_requester",
        "_started_ns",
        "_waiter",
        "close_reason",
        "parts",
    )

    def __init__(
        self,
        lane: "FetchLane",
        frame: bytearray,
        dispatcher: "Dispatcher",
        requester: "Requester",
    ) -> None:
        """Keep `frame`, a request of `requester` without its size; `lane` has just looked at it."""
        self.parts: list[Buffer] | None = None
        self.close_reason: str | None = None
        self._lane = lane
        self._frame = frame
        self._dispatcher = dispatcher
        self._requester = requester
        self._context = dispatcher.context
        self._max_wait_at = lane.max_wait_at
        self._started_ns = time.perf_counter_ns()
        self._deadline_ms = 0
        self._waiter: FetchWaiter | None = None
        self._exchange: Exchange | None = None
        self._on_done: Callable[[WaitingFetch], object] | None = None

    def begin(
        self,
        logs: "Sequence[Log]",
        min_bytes: int,
        on_done: Callable[["WaitingFetch"], object],
    ) -> None:
        """Wait for `min_bytes` (> 0) more of `logs`; then call `on_done(self)` with the answer."""
        (asked_ms,) = _INT32.unpack_from(self._frame, self._max_wait_at)
        wait_ms = min(asked_ms, MAX_WAIT_MS)
        self._deadline_ms = self._context.clock.monotonic_ms() + wait_ms
        self._on_done = on_done
        self._waiter = FetchWaiter(logs, min_bytes, self._retry)
        self._context.fetch_waiters.park(self._waiter, wait_ms)

    def abandon(self) -> None:
        """The client has gone."""
        self._on_done = None
        if self._waiter is not None:
            self._context.fetch_waiters.remove(self._waiter)
        if self._exchange is not None:
            self._exchange.abandon()

    def _retry(self, is_deadline: bool) -> None:
        """Answer with what there is: records, or none if time is up."""
        self._waiter = None
        if self._lane.serve_waiting(self._frame, self._requester.session, is_deadline):
            self.parts = self._lane.parts
            latency = self._context.metrics.api(ApiKey.FETCH).latency_ns
            latency.observe(time.perf_counter_ns() - self._started_ns)
            self._done()
        else:
            left_ms = self._deadline_ms - self._context.clock.monotonic_ms()
            self._dispatch(0 if is_deadline else left_ms)

    def _dispatch(self, left_ms: int) -> None:
        """Go the general way, which may wait for `left_ms` more."""
        _INT32.pack_into(self._frame, self._max_wait_at, max(0, left_ms))
        outcome: Any = None
        try:
            outcome = self._dispatcher.dispatch(self._frame, self._requester)
        except (ProtocolError, ConnectionMustClose) as error:
            self.close_reason = str(error)
        if isinstance(outcome, list):
            self.parts = outcome
        elif outcome is not None:
            self._exchange = outcome
            outcome.when_done(self._answered)
            return
        self._done()

    def _answered(self, exchange: "Exchange") -> None:
        if exchange.parts is None and exchange.close_reason is None:
            return
        self._exchange = None
        self.parts, self.close_reason = exchange.parts, exchange.close_reason
        self._done()

    def _done(self) -> None:
        on_done, self._on_done = self._on_done, None
        if on_done is not None:
            on_done(self)

"""Turns of the event loop: long work runs in small slices, one after the other.

Owns the queue of work that does not fit into a slice: connections whose peers sent many requests at
once, and `Work`, a request that is served in steps. Each turn of the loop gives the queue `TURN_NS`
in all, however long it is. All other requests are served at once. So a client with a small request
waits for a turn, never for the whole request of another client.

A step that neither fits into a slice nor can be split (decompressing, decoding and encoding large
messages) runs in the *side thread*. There is one such thread, so that only one such step holds
memory at a time. Its work is a queue as well: first come, first served, one step of each request at
a time.

One step that reads megabytes takes milliseconds, and many connections may need one in the same
round of the loop. So the bytes of such reads are counted by round (`count_read`). A request that
finds the round full yields `NEXT_TURN` before it reads.

It does not know the purpose of the steps. Loop thread only.
"""

import asyncio
import time
from collections import deque
from typing import Any, Final, Protocol

from broker.replies.pending import Pending
from broker.threads import Pool
from storage.disk.steps import Elsewhere, OffLoop, Steps

SLICE_NS: Final = 2_000_000
"""The length of a slice when the queue is empty."""

SHORT_SLICE_NS: Final = 200_000
"""The length of a slice while others wait for their turns."""

TURN_NS: Final = 4_000_000
"""How long one turn of the loop serves the queue; the slice that passes it is the last."""

ROUND_READ_BYTES: Final = 4 * 1024 * 1024
"""Bytes of large reads after which a round of the loop is full; about 8 ms with their sending."""


class _NextTurn(OffLoop[object]):
    """Neither the side thread nor the rest of this slice: continue in a later turn."""

    __slots__ = ()

    def run(self) -> None:
        """There is nothing to call."""


NEXT_TURN: Final[OffLoop[object]] = _NextTurn(lambda: None)


class Waiter(Protocol):
    """An object with more work than fits into a slice."""

    def take_turn(self) -> None:
        """Work for a slice; call `Turns.wait` again if that was not enough."""


class Turns:
    """The queue of one broker, and its side thread."""

    def __init__(self, side: Pool) -> None:
        """Start with an empty queue; `side` has the side thread."""
        self.side = side
        self._waiting: deque[Waiter] = deque()
        self._is_scheduled = False
        self._read_bytes = 0
        self.is_round_full = False
        """Whether large reads of this round have to wait for the next one."""

        self.taken = 0

    def slice_end_ns(self) -> int:
        """The end of a slice that begins now (`time.perf_counter_ns`)."""
        return time.perf_counter_ns() + (SHORT_SLICE_NS if self._waiting else SLICE_NS)

    def count_read(self, size_bytes: int) -> None:
        """Count a large read of this round of the loop."""
        if not self._read_bytes:
            asyncio.get_running_loop().call_soon(self._end_round)
        self._read_bytes += size_bytes
        self.is_round_full = self._read_bytes >= ROUND_READ_BYTES

    def _end_round(self) -> None:
        self._read_bytes = 0
        self.is_round_full = False

    def wait(self, waiter: Waiter) -> None:
        """Call `waiter.take_turn` in its turn, in a later turn of the loop."""
        self._waiting.append(waiter)
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._serve)

    def begin(self, steps: Steps[Any]) -> Any:
        """The result of `steps` if one slice is enough, else the `Work` that will have it.

        Raises what the steps raise in that slice.
        """
        end_ns = self.slice_end_ns()
        while True:
            try:
                call = next(steps)
            except StopIteration as stop:
                return stop.value
            if call is not None or time.perf_counter_ns() >= end_ns:
                return Work(self, steps, call)

    def begin_or_fail(self, steps: Steps[Any], pending: Pending[Any]) -> Any:
        """As `begin`; but if the steps raise in that slice, `pending` fails and this is None.

        For callers that complete the waits of other requests as well.
        """
        try:
            return self.begin(steps)
        except Exception as error:  # noqa: BLE001 - delivered to the request boundary
            pending.fail(error)
            return None

    def _serve(self) -> None:
        """Serve waiters for a turn; one that raises costs the others nothing."""
        waiting = self._waiting
        end_ns = time.perf_counter_ns() + TURN_NS
        try:
            for _ in range(len(waiting)):
                self.taken += 1
                waiting.popleft().take_turn()
                if time.perf_counter_ns() >= end_ns:
                    break
        finally:
            if waiting:
                asyncio.get_running_loop().call_soon(self._serve)
            else:
                self._is_scheduled = False


class Work(Pending[Any]):
    """Steps that run slice by slice; settled with their result or their error.

    When it is abandoned, the steps are closed before the next one.
    """

    __slots__ = ("_steps", "_turns")

    is_begun = False

    def __init__(self, turns: Turns, steps: Steps[Any], call: OffLoop[object] | None) -> None:
        """Continue with `steps`, which have just yielded `call`."""
        super().__init__()
        self._turns = turns
        self._steps = steps
        self._go_on(call)

    def take_turn(self) -> None:
        """Run the next slice."""
        self._advance(None)

    def _go_on(self, call: OffLoop[object] | None) -> None:
        if call is None or call is NEXT_TURN:
            self._turns.wait(self)
        elif isinstance(call, Elsewhere):
            call.begin(lambda: self._advance(None))
        else:
            self._turns.side.submit(lambda: None if self.settled else call.run(), self._returned)

    def _returned(self, _: None, error: BaseException | None) -> None:
        self._advance(error)

    def _advance(self, error: BaseException | None) -> None:
        """Run the steps for a slice; throw `error` of the side thread into them first, if any."""
        if self.settled:
            self._steps.close()
            return
        end_ns = self._turns.slice_end_ns()
        try:
            call = next(self._steps) if error is None else self._steps.throw(error)
            while call is None and time.perf_counter_ns() < end_ns:
                call = next(self._steps)
        except StopIteration as stop:
            self.resolve(stop.value)
        except Exception as failure:  # noqa: BLE001 - delivered to the request boundary
            self.fail(failure)
        else:
            self._go_on(call)

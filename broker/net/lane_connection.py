# cython: language_level=3
# mypy: disable-error-code="untyped-decorator,valid-type,no-any-return"
"""A connection with lanes: usual requests are served before the read is cut into frames.

The seam of `broker.net.produce_lane` and `broker.net.fetch_lane`: `LaneConnection` is a
`Connection`, and everything the lanes do not take goes the way of `Connection`. They serve a read
only while requests may start and none waits to be started, so answers keep their order. A read
belongs to the lane of its first request.

Requests that could not start at once, because a slice was over or others came first, have been cut
into frames. When their turn comes the lane of Produce gets those that it has not refused before.

Like `protocol.records.record_loops` it runs compiled and plain.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from broker.errors import ConnectionMustClose
from broker.net import limits
from broker.net.connection import Connection, Connections
from broker.net.dispatch import Dispatcher
from broker.net.durable_answer import DurableAnswer
from broker.net.limits import PIPELINE_MAX
from broker.net.receive import SCRATCH, recycle
from broker.net.waiting_fetch import WaitingFetch
from protocol.api_keys import ApiKey
from protocol.errors import ProtocolError

try:
    import cython
except ImportError:  # A wheel built without a compiler, on a machine without Cython.
    from protocol.records import cython_shim as cython

if TYPE_CHECKING:
    from broker.net.fetch_lane import FetchLane
    from broker.net.produce_lane import ProduceLane
    from broker.security.service import ListenerGuard

Frames = list[bytearray | memoryview]

COMPILED: bool = bool(cython.compiled)
"""Whether this module was compiled to machine code."""

_PRODUCE: Final = int(ApiKey.PRODUCE).to_bytes(2, "big")
"""What the frame of a Produce begins with."""


class LaneConnection(Connection):
    """The protocol object of one accepted socket."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        connections: Connections,
        guard: ListenerGuard | None,
        lane: ProduceLane,
        fetch_lane: FetchLane,
    ) -> None:
        """As `Connection`, with the usual requests for the lanes."""
        super().__init__(dispatcher, connections, guard)
        self._fetch_lane = fetch_lane
        self._lane: ProduceLane | None = None if dispatcher.sees_all else lane
        self._usual_lane = lane
        self._refused: bytearray | memoryview | None = None
        self._slice_is_over = False

    def _open_session(self, guard: ListenerGuard, transport: asyncio.Transport) -> str | None:
        refusal = super()._open_session(guard, transport)
        self.choose_lane()
        return refusal

    def _authenticated(self) -> None:
        super()._authenticated()
        self.choose_lane()

    def choose_lane(self) -> None:
        """Use no lane while a gate stands before the dispatcher, or it has to see all requests."""
        is_open = self._dispatch == self._dispatcher.dispatch and not self._dispatcher.sees_all
        self._lane = self._usual_lane if is_open else None

    def _cut(self, nbytes: cython.Py_ssize_t) -> Frames:
        """Serve the usual requests of a read; the frames of the others."""
        lane, receiver = self._lane, self._receiver
        if (
            lane is None
            or self._backlog
            or self._waits_for_turn
            or receiver.rest
            or self._write_paused
            or self.muted_until_ms
            or (self._slots and not self._may_start())
        ):
            return Connection._cut(self, nbytes)
        answers: list[bytearray | DurableAnswer] = []
        frames: Frames = []
        is_over = False
        try:
            if receiver.is_mid_frame:
                frames = receiver.received(nbytes)
                frame = frames[0] if frames else None
                if isinstance(frame, memoryview) and lane.serve_frame(frame, answers, self.session):
                    frames = []
                    recycle(frame)
            else:
                room = PIPELINE_MAX - len(self._slots)
                limit = receiver.max_frame_bytes
                position = lane.serve(SCRATCH, nbytes, room, limit, answers, self.session)
                if position:
                    is_over = lane.slice_is_over
                else:
                    position = self._fetch(nbytes)
                    is_over = self._slice_is_over
                if position < nbytes:
                    frames = receiver.received(nbytes, position)
        except ConnectionMustClose as error:
            self._take(lane, answers)
            self.finish(str(error))
            return []
        except ProtocolError:
            # The requests before the malformed frame are served: their clients learn the offsets.
            self._take(lane, answers)
            raise
        self._take(lane, answers)
        if frames and is_over:
            self._add_to_backlog(frames)
            self._wait_for_turn()
            self._pause_reading()
            return []
        self._refused = frames[0] if frames else None
        return frames

    def _start_next(self) -> None:
        """Let the lane serve the request whose turn it is; the general way has all others."""
        lane, frame = self._lane, self._backlog[0]
        if (
            lane is None
            or frame is self._refused
            or bytes(frame[:2]) != _PRODUCE
            or not self._serve_waiting(lane, memoryview(frame))
        ):
            self._refused = None
            Connection._start_next(self)

    def _serve_waiting(self, lane: ProduceLane, frame: memoryview) -> bool:
        """Serve the first frame of the backlog; False, with nothing changed, if it is not usual.

        After an error that is none of the client's the connection ends, as after one in a read.
        """
        answers: list[bytearray | DurableAnswer] = []
        try:
            if not lane.serve_frame(frame, answers, self.session):
                return False
        except ConnectionMustClose as error:
            self._take(lane, answers)
            self.finish(str(error))
            return True
        except BaseException as error:
            self.cut(repr(error))
            raise
        served = self._backlog.popleft()
        self._backlog_bytes -= len(served)
        self._take(lane, answers)
        frame.release()
        if type(served) is memoryview:
            recycle(served)
        return True

    def _fetch(self, nbytes: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Serve the usual Fetch requests of a read: where they end.

        `_slice_is_over` is then whether others come first now.
        """
        lane, limit = self._fetch_lane, self._receiver.max_frame_bytes
        self._slice_is_over = False
        position: cython.Py_ssize_t = lane.serve(0, nbytes, limit, self.session)
        if not position:
            return nbytes if self._waits_for_records(nbytes) else 0
        self._answered(lane.parts)
        end_ns = 0
        while position < nbytes and self._may_start():
            now_ns = time.perf_counter_ns()
            if not end_ns:
                end_ns = self._connections.turns.slice_end_ns()
            elif now_ns >= end_ns:
                self._slice_is_over = True
                break
            served: cython.Py_ssize_t = lane.serve(position, nbytes, limit, self.session)
            if served == position:
                break
            position = served
            self._answered(lane.parts)
        return position

    def _waits_for_records(self, nbytes: cython.Py_ssize_t) -> bool:
        """Let the request that is the whole read wait, if the lane of Fetch says that it has to."""
        lane = self._fetch_lane
        logs = lane.awaited
        if logs is None or self._slots or int.from_bytes(SCRATCH[:4], "big") != nbytes - 4:
            return False
        slot = WaitingFetch(lane, bytearray(SCRATCH[4:nbytes]), self._dispatcher, self)
        self._slots.append(slot)
        self._blocked_by = slot
        slot.begin(logs, lane.awaited_bytes, self._exchange_done)
        return True

    def _take(self, lane: ProduceLane, answers: list[bytearray | DurableAnswer]) -> None:
        """Send the answers of the lane, or let them wait for the disk and for earlier ones."""
        if self._slots or lane.has_waits:
            commit = self._dispatcher.context.group_commit
            for answer in answers:
                if isinstance(answer, DurableAnswer):
                    self._slots.append(answer)
                    ticks = 2 + answer.patience_ms // limits.SWEEP_INTERVAL_MS
                    answer.begin(commit, self._connections.tick + ticks, self._exchange_done)
                else:
                    self._answered([answer])
        elif answers:
            size_bytes = lane.answer_bytes
            self._connections.bytes_sent += size_bytes
            self._answers.made_bytes += size_bytes
            if (
                not self._out
                and not self._starting
                and self._transport is not None
                and self._close_reason is None
            ):
                self._transport.writelines(answers)  # type: ignore[arg-type]  # none waits
            else:
                self._out += answers
        if self._out and not self._starting:
            self._write_out()
        if self._answers.made_bytes >= self._answers.look_at:
            self._answers.check(self)
        if self._write_paused or len(self._slots) >= PIPELINE_MAX:
            self._pause_reading()

    def sweep(self, tick: int, idle_ticks: int) -> None:
        """See `Connection`; answers that have waited too long for the disk are sent."""
        super().sweep(tick, idle_ticks)
        for slot in [slot for slot in self._slots if isinstance(slot, DurableAnswer)]:
            if slot.due_tick <= tick and slot.parts is None:
                slot.time_out()


class ClientConnection(LaneConnection, asyncio.BufferedProtocol):
    """A `LaneConnection` for any loop: those of asyncio ask for this base, uvloop does not."""

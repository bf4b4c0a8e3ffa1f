"""The parent of the workers: starts them, starts again what dies, and passes signals on.

It opens no port and no file of the data directory, so it has no state to lose. The workers are
forked: they share its configuration and its loaded code. To each it keeps a pair of sockets, over
which a worker says that it is ready, or why it cannot start, and gets its links to others.

A link is a pair of connected sockets between worker 1 and another one. When one of the two starts,
the parent makes a new pair, gives one end to the child and sends the other to the worker that runs.

* Until all were ready once, a worker that ends ends the start.
* Later one that ends is started again, with its ports, after a delay that doubles with each death
  up to `DELAY_MAX_S`; a minute of life resets it.
* When the parent dies, the workers see the end of their sockets and stop.
"""

import contextlib
import json
import logging
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Final

from broker.errors import StartError
from values.dataclasses import dataclass

logger = logging.getLogger("tidelog.broker.workers.parent")

DELAY_MIN_S: Final = 0.1
DELAY_MAX_S: Final = 10.0
_LONG_LIFE_S: Final = 60.0
_MESSAGE_MAX: Final = 64 * 1024
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)

Ready = dict[str, Any]
"""What a worker says when it accepts clients: the fields of `broker.net.addresses.ReadyInfo`."""

RunWorker = Callable[[int, "Control", Mapping[int, socket.socket], Mapping[str, int]], int]
"""Runs a worker until it stops; its exit status. It gets its number, its end of the pair to the
parent, its links by worker, and the ports that it had before, by listener."""


class Control:
    """A worker's end of its pair to the parent."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        connected.setblocking(False)

    def fileno(self) -> int:
        """For the loop, which waits for links and for the end of the parent."""
        return self._socket.fileno()

    def ready(self, facts: Ready) -> None:
        """The worker accepts clients."""
        self._send({"ready": facts})

    def failed(self, error: StartError) -> None:
        """The worker cannot start."""
        self._send({"failed": str(error)})

    def receive(self) -> tuple[int, socket.socket] | None:
        """A new link, and the worker at its other end; None if there is none now.

        Raises:
            EOFError: the parent has gone.
        """
        try:
            data, descriptors, _, _ = socket.recv_fds(self._socket, _MESSAGE_MAX, 1)
        except BlockingIOError:
            return None
        except OSError:
            raise EOFError from None
        if not data:
            raise EOFError
        return json.loads(data)["link"], socket.socket(fileno=descriptors[0])

    def _send(self, message: Mapping[str, Any]) -> None:
        with contextlib.suppress(OSError):  # the parent has gone, and the loop notices
            self._socket.send(json.dumps(message).encode())


@dataclass(kw_only=True, eq=False)
class _Child:
    """A worker that runs, or waits to be started."""

    number: int
    pid: int = 0
    control: socket.socket | None = None
    started_s: float = 0.0
    delay_s: float = DELAY_MIN_S
    start_at_s: float = 0.0
    ready: Ready | None = None
    failure: str = ""
    ports: dict[str, int] = field(default_factory=dict)


class Parent:
    """Runs `count` workers until a stop signal."""

    def __init__(
        self, count: int, run_worker: RunWorker, announce: Callable[[list[Ready]], None]
    ) -> None:
        """Call `announce` once, when all workers accept clients."""
        self._run_worker = run_worker
        self._announce = announce
        self._children = [_Child(number=number) for number in range(1, count + 1)]
        self._selector = selectors.DefaultSelector()
        self._wakeup, self._signalled = socket.socketpair()
        self._is_announced = False
        self._is_stopping = False
        self._status = 0
        self._start_error: StartError | None = None

    def run(self, *, hangup_stops: bool) -> int:
        """Start the workers and keep them running; the exit status, 0 after a clean stop.

        Raises:
            StartError: a worker could not start, and all have stopped again.
        """
        self._catch_signals()
        self._selector.register(self._wakeup, selectors.EVENT_READ)
        self._start_all()
        while any(child.pid for child in self._children) or not self._is_stopping:
            for key, _ in self._selector.select(self._wait_s()):
                if key.data is None:
                    self._handle_signals(hangup_stops=hangup_stops)
                else:
                    self._receive(key.data)
            self._reap()
            self._start_due()
        if self._start_error is not None:
            raise self._start_error
        return self._status

    # --- signals --------------------------------------------------------------------------------

    def _catch_signals(self) -> None:
        self._wakeup.setblocking(False)
        self._signalled.setblocking(False)
        signal.set_wakeup_fd(self._signalled.fileno(), warn_on_full_buffer=False)
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, _noted)

    def _handle_signals(self, *, hangup_stops: bool) -> None:
        for number in self._wakeup.recv(_MESSAGE_MAX):
            if number == signal.SIGHUP and not hangup_stops:
                self._pass_on(signal.SIGHUP)
            elif number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                self._stop()

    def _stop(self) -> None:
        self._is_stopping = True
        self._pass_on(signal.SIGTERM)

    def _pass_on(self, number: signal.Signals) -> None:
        for child in self._children:
            if child.pid:
                os.kill(child.pid, number)

    # --- children -------------------------------------------------------------------------------

    def _start_all(self) -> None:
        """Start all workers, each with its links from the beginning."""
        links = {child.number: socket.socketpair() for child in self._children[1:]}
        theirs = [end for pair in links.values() for end in pair]
        for child in self._children:
            if child.number == 1:
                own = {number: pair[0] for number, pair in links.items()}
            else:
                own = {1: links[child.number][1]}
            self._fork(child, own, [end for end in theirs if end not in own.values()])
        for end in theirs:
            end.close()

    def _start_again(self, child: _Child) -> None:
        """Start one worker; those at the other ends of its links get new ones."""
        own = {}
        for other in self._children:
            is_linked = (other.number == 1) != (child.number == 1)
            if other.pid and other.control is not None and is_linked:
                mine, theirs = socket.socketpair()
                own[other.number] = mine
                message = json.dumps({"link": child.number}).encode()
                with contextlib.suppress(OSError), theirs:  # it is ending as well
                    socket.send_fds(other.control, [message], [theirs.fileno()])
        self._fork(child, own, [])
        for end in own.values():
            end.close()

    def _fork(
        self, child: _Child, links: Mapping[int, socket.socket], others: list[socket.socket]
    ) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            ours.close()
            self._become_child(others)
            _run_child(self._run_worker, child, theirs, links)
        theirs.close()
        child.pid, child.control, child.failure = pid, ours, ""
        child.started_s = time.monotonic()
        self._selector.register(ours, selectors.EVENT_READ, child)

    def _become_child(self, others: list[socket.socket]) -> None:
        """Give up what belongs to the parent."""
        signal.set_wakeup_fd(-1)
        for number in _SIGNALS:
            if signal.getsignal(number) is _noted:
                signal.signal(number, signal.SIG_DFL)
        self._selector.close()
        self._wakeup.close()
        self._signalled.close()
        for child in self._children:
            if child.control is not None:
                child.control.close()
        for end in others:
            end.close()

    def _receive(self, child: _Child) -> None:
        assert child.control is not None
        try:
            data = child.control.recv(_MESSAGE_MAX)
        except OSError:
            data = b""
        if not data:
            self._selector.unregister(child.control)
            child.control.close()
            child.control = None
            return
        message = json.loads(data)
        child.failure = message.get("failed", "")
        child.ready = message.get("ready", child.ready)
        if "ready" in message:
            child.ports = message["ready"]["ports"]
            self._announce_if_all_are_ready()

    def _announce_if_all_are_ready(self) -> None:
        ready = [child.ready for child in self._children if child.ready is not None]
        if not self._is_announced and len(ready) == len(self._children):
            self._is_announced = True
            self._announce(ready)

    def _reap(self) -> None:
        for child in self._children:
            if not child.pid:
                continue
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if pid:
                # Its last words may still be in the socket.
                while child.control is not None:
                    self._receive(child)
                child.pid = 0
                self._ended(child, os.waitstatus_to_exitcode(status))

    def _ended(self, child: _Child, status: int) -> None:
        how = child.failure or (f"signal {-status}" if status < 0 else f"status {status}")
        if self._is_stopping:
            self._status = self._status or int(status != 0)
        elif not self._is_announced:
            self._start_error = StartError(child.failure or f"worker {child.number}: {how}", "")
            self._stop()
        else:
            lived_s = time.monotonic() - child.started_s
            if lived_s > _LONG_LIFE_S:
                child.delay_s = DELAY_MIN_S
            child.start_at_s = time.monotonic() + child.delay_s
            logger.error(
                "worker %d has ended (%s); it starts again in %.1f s",
                child.number,
                how,
                child.delay_s,
            )
            child.delay_s = min(2 * child.delay_s, DELAY_MAX_S)

    def _start_due(self) -> None:
        if self._is_stopping:
            return
        now_s = time.monotonic()
        for child in self._children:
            if not child.pid and child.start_at_s <= now_s:
                self._start_again(child)

    def _wait_s(self) -> float | None:
        if self._is_stopping:
            return None
        due = [child.start_at_s for child in self._children if not child.pid]
        return max(0.0, min(due) - time.monotonic()) if due else None


def _noted(number: int, frame: object) -> None:
    """The parent reads the signal from its wake-up socket."""


def _run_child(
    run_worker: RunWorker,
    child: _Child,
    connected: socket.socket,
    links: Mapping[int, socket.socket],
) -> None:
    """Run the worker and end this process; the parent's stack is never unwound."""
    status = 1
    control = Control(connected)
    try:
        status = run_worker(child.number, control, links, child.ports)
    except StartError as error:
        control.failed(error)
    except BaseException:
        logger.exception("worker %d failed", child.number)
    finally:
        logging.shutdown()
        os._exit(status)

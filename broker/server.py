"""A broker as a process: event loop, signals, limits of the process, and the exit.

The command line calls `run`. It blocks until SIGTERM or SIGINT has stopped the broker. A problem
that prevents the start becomes a `StartError`: one sentence and its cure.

SIGHUP has two meanings, and the terminal decides which. A broker without one (a service, a
container) reads its configuration again, for ``systemctl reload``. A broker that was started in a
terminal (``make run``) takes it for the end of that terminal, and stops cleanly. Under nohup the
signal stays ignored.

Settings of the interpreter: rarer collections of garbage, because reference counting frees
requests, and `gc.freeze` after the start, so that none walks the objects of imports and opening
again. None comes before that: each would take milliseconds and find a few small objects. The switch
interval is a millisecond: the loop waits that long for the interpreter lock, in each of its
callbacks, while the side thread (`broker.replies.turns`) runs Python. It makes no difference to
sync threads. One that returns from `fdatasync` gets the lock at the loop's next system call, and
intervals between 0.1 and 5 ms measured the same.
"""

import asyncio
import gc
import logging
import resource
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from socket import socket
from typing import TYPE_CHECKING, Any

import uvloop

from broker.clocks.clock import Clock
from broker.errors import StartError
from broker.net.addresses import ReadyInfo
from broker.node import Broker
from broker.terminal import has_terminal
from config import BrokerConfig, with_ports

if TYPE_CHECKING:
    from broker.workers.part import Part

logger = logging.getLogger("tidelog.broker.server")

GC_THRESHOLDS = (20_000, 20, 50)
SWITCH_INTERVAL_S = 0.001
_PR_SET_DUMPABLE = 4


Reread = Callable[[], BrokerConfig | None]
"""Reads the configuration again; None if it has problems, which are already logged."""


def run(
    config: BrokerConfig,
    *,
    announce: Callable[[ReadyInfo], None],
    reread: Reread = lambda: None,
    clock: Clock | None = None,
) -> int:
    """Serve until a stop signal; return the exit status, 0 after a clean stop.

    Calls `announce` once, when it accepts clients, and `reread` with each SIGHUP. `clock` is the
    system's unless given.

    Raises:
        StartError: the broker cannot start.
    """
    if not __debug__:
        raise StartError(
            "Python runs with -O, which strips the checks that protect the log",
            "start it without -O and PYTHONOPTIMIZE",
        )
    _raise_descriptor_limit()
    if config.secrets or any(listener.protocol != "PLAINTEXT" for listener in config.listeners):
        forbid_core_dumps()
    if config.workers > 1:
        return _run_workers(config, announce=announce, reread=reread, clock=clock)
    _run(serve(config, announce=announce, reread=reread, clock=clock))
    return 0


def _run(serving: Coroutine[Any, Any, None]) -> None:
    """Run `serving` in a new loop, without collections of garbage before `_collect_garbage`."""
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serving)
    finally:
        gc.enable()


async def serve(
    config: BrokerConfig,
    *,
    announce: Callable[[ReadyInfo], None],
    reread: Reread = lambda: None,
    clock: Clock | None = None,
    part: "Part | None" = None,
) -> None:
    """Serve in the running loop until a stop signal; with `part` as one worker of several.

    Raises:
        StartError: the broker cannot start.
    """
    stop = asyncio.Event()
    hangup = asyncio.Event()
    loop = asyncio.get_running_loop()
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        # Before the start, which may recover for minutes: by default the signal ends the process.
        loop.add_signal_handler(signal.SIGHUP, stop.set if has_terminal() else hangup.set)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    if part is not None:
        part.attach(stop.set)
    is_announced = False
    while not stop.is_set():
        broker = Broker(config, clock=clock)
        if part is not None:
            broker = Broker(config, clock=clock, first=part.first, further=part.further)
        ready = await _start(broker)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        if not is_announced:
            announce(ready)
            is_announced = True
        beside = (
            asyncio.create_task(_collect_garbage(broker)),
            asyncio.create_task(_reload_at(hangup, broker, reread)),
        )
        promoted = asyncio.Event() if broker.standby is None else broker.standby.promoted
        try:
            await _either(stop, promoted)
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            await broker.stop()
        if not promoted.is_set():
            return
        # A promoted standby starts again, as an ordinary broker at the same addresses.
        config = with_ports(broker.config, dict(ready.ports))


async def _start(broker: Broker) -> ReadyInfo:
    """Start `broker`, and log what starts and what it found."""
    if not logger.isEnabledFor(logging.INFO):
        return await broker.start()
    from broker import startup_lines

    def log(lines: Iterable[str]) -> None:
        for line in lines:
            logger.info("%s", line)

    log(startup_lines.beginning(broker.config))
    ready = await broker.start()
    logs = list(broker.topics.logs())
    log(startup_lines.started(broker.config, broker.data_dir, logs, ready))
    return ready


async def _either(*events: asyncio.Event) -> None:
    """Return when one of `events` is set."""
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def _run_workers(
    config: BrokerConfig,
    *,
    announce: Callable[[ReadyInfo], None],
    reread: Reread,
    clock: Clock | None,
) -> int:
    """Be the parent of several workers until a stop signal; return the exit status."""
    from broker.workers.parent import Control, Parent, Ready
    from broker.workers.part import Part

    if clock is not None:
        raise StartError("a settable clock belongs to one process", "set workers=1")

    def run_worker(
        number: int, control: Control, links: Mapping[int, socket], ports: Mapping[str, int]
    ) -> int:
        part = Part(number, config.workers, control, links, ports)

        def reread_own() -> BrokerConfig | None:
            fresh = reread()
            return None if fresh is None else part.config(fresh)

        _run(serve(part.config(config), announce=part.announce, reread=reread_own, part=part))
        return 0

    def all_ready(ready: list[Ready]) -> None:
        first, *others = (ReadyInfo(**facts) for facts in ready)
        announce(replace(first, workers=tuple(others)))

    gc.freeze()  # what the workers share stays shared
    return Parent(config.workers, run_worker, all_ready).run(hangup_stops=has_terminal())


async def _reload_at(hangup: asyncio.Event, broker: Broker, reread: Reread) -> None:
    """Apply the configuration of `reread` each time that `hangup` is set."""
    while True:
        await hangup.wait()
        hangup.clear()
        try:
            await broker.reload(reread())
        except Exception:
            logger.exception("the reload failed; SIGHUP tries again")


async def _collect_garbage(broker: Broker) -> None:
    """Collect garbage from when the code for the first requests is loaded, but not in it."""
    await broker.warm.wait()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()


def forbid_core_dumps() -> None:
    """Write no memory of this process to a file: it has keys and passwords of users.

    On Linux no other process of the same user may read or trace it either.
    """
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, most))
    if sys.platform == "linux":
        import ctypes

        # Programs that take dumps through a pipe do not look at the limit.
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def _raise_descriptor_limit() -> None:
    """Raise the limit of file descriptors to the maximum that the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

"""The brokers that are measured, each as a process that can be started, watched and stopped.

A `Contender` is a name, a way to start and what it needs; `Running` is one of them alive. All of
them listen on 127.0.0.1 and keep their data below one folder, so that they share a disk. Kafka's
and Tidelog's launchers are those of the compatibility tests.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.harness import secured
from tests.compat.brokers import TidelogProcess
from tests.support.kafka_peer import (
    KafkaPeer,
    answers,
    cpu_seconds,
    free_ports,
    resident_bytes,
)
from tests.support.toolchains import MissingTool

LOADED_JVM_HEAP = "1g"
BEFORE = os.environ.get("BENCH_BEFORE", "")
"""The Python of another checkout's environment: its Tidelog is `before` and `before-synced`."""
_DELETE_SOON = {"log.segment.delete.delay.ms": "1000"}


class PeerUnavailable(Exception):
    """A broker does not start here; the message says why."""


@contextlib.contextmanager
def without_missing(name: str) -> Iterator[None]:
    """Leave out a broker that does not start here, and say why on stderr."""
    try:
        yield
    except PeerUnavailable as problem:
        print(f"without {name}: {problem}", file=sys.stderr)


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A broker that accepts connections, and its process."""

    name: str
    bootstrap: str
    pid: int
    spawned_at: float
    """When its process was started, on time.perf_counter."""

    workers: tuple["Running", ...] = ()
    """Its worker processes, where it has several."""

    @property
    def port(self) -> int:
        """The port on 127.0.0.1."""
        return int(self.bootstrap.rpartition(":")[2])

    def cpu_seconds(self) -> float:
        """CPU seconds that the broker has used since its start."""
        return cpu_seconds(self.pid)

    def resident_bytes(self, *, peak: bool = False) -> int:
        """Its resident memory, now or at its highest."""
        return resident_bytes(self.pid, peak=peak)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A broker in one mode. `durable` says that acks=all waits for the disk."""

    name: str
    title: str
    durable: bool
    launch: Callable[[Path, str], contextlib.AbstractContextManager[Running]]

    def start(self, folder: Path) -> contextlib.AbstractContextManager[Running]:
        """Runs it with its data in `folder` until the context ends.

        Raises:
            PeerUnavailable: it does not start here.
        """
        return self.launch(folder, self.name)


def end_with_us() -> None:
    """Makes SIGTERM end this process as Ctrl-C does, so that the brokers it started end too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def _running(name: str, broker: KafkaPeer | TidelogProcess) -> Running:
    return Running(
        name=name, bootstrap=broker.bootstrap, pid=broker.pid, spawned_at=broker.spawned_at
    )


def _kafka(**settings: str) -> Callable[[Path, str], contextlib.AbstractContextManager[Running]]:
    named = {key.replace("_", "."): value for key, value in settings.items()}

    @contextlib.contextmanager
    def launch(folder: Path, name: str) -> Iterator[Running]:
        tls = secured.server_settings()
        merged = {**_DELETE_SOON, **named, **tls}
        listeners = {"SSL": free_ports(1)[0]} if tls else {}
        peer = KafkaPeer(folder, settings=merged, heap=LOADED_JVM_HEAP, listeners=listeners)
        try:
            try:
                peer.start()
            except (RuntimeError, MissingTool) as error:
                raise PeerUnavailable(str(error)) from error
            running = _running(name, peer)
            if tls:
                running = replace(running, bootstrap=f"127.0.0.1:{listeners['SSL']}")
            yield running
        finally:
            peer.stop()

    return launch


def _tidelog(
    policy: str, workers: int = 1, python: str = ""
) -> Callable[[Path, str], contextlib.AbstractContextManager[Running]]:
    @contextlib.contextmanager
    def launch(folder: Path, name: str) -> Iterator[Running]:
        settings = {"log.flush.policy": policy, "group.initial.rebalance.delay.ms": "0"}
        if workers > 1:
            settings["workers"] = str(workers)
        if tls := secured.server_settings():
            settings |= {"listeners": "SSL://127.0.0.1:0", **tls}
        merged = {**_DELETE_SOON, **settings}
        with TidelogProcess(folder, settings=merged, python=python) as broker:
            running = _running(name, broker)
            yield replace(running, workers=_workers(broker)) if workers > 1 else running

    return launch


def _workers(broker: TidelogProcess) -> tuple[Running, ...]:
    """The worker processes, in order; each writes its process id into its lock."""
    ready: list[dict[str, Any]] = [broker.ready, *broker.ready["workers"]]
    folders = [broker.data_dir, *(Path(one["data_dir"]) for one in ready[1:])]
    return tuple(
        Running(
            name=f"worker {number}",
            bootstrap=f"{one['host']}:{one['port']}",
            pid=int((folder / ".lock").read_text()),
            spawned_at=broker.spawned_at,
        )
        for number, (one, folder) in enumerate(zip(ready, folders, strict=True), start=1)
    )


@contextlib.contextmanager
def _limit(folder: Path, name: str, *options: str) -> Iterator[Running]:
    folder.mkdir(parents=True, exist_ok=True)
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "benchmarks.harness.limit", str(port), str(folder), *options]
    started = time.perf_counter()
    with _process(command, port, folder / "limit.log") as process:
        address = f"127.0.0.1:{port}"
        yield Running(name=name, bootstrap=address, pid=process.pid, spawned_at=started)


@contextlib.contextmanager
def _limit_synced(folder: Path, name: str) -> Iterator[Running]:
    with _limit(folder, name, "--sync") as running:
        yield running


@contextlib.contextmanager
def _process(command: list[str], port: int, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        for _ in range(200):
            if answers(port):
                break
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.05)
                break
        if process.poll() is not None or not answers(port):
            raise PeerUnavailable(f"{command[0]} does not start: {log.read_text()[-300:]}")
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def tidelog_of(workers: int) -> Contender:
    """Tidelog with so many workers."""
    return Contender(
        name=f"{workers} workers" if workers > 1 else "1 worker",
        title=f"Tidelog, workers={workers}, flush.policy=os",
        durable=False,
        launch=_tidelog("os", workers),
    )


KAFKA = Contender(name="kafka", title="Apache Kafka, default", durable=False, launch=_kafka())
KAFKA_SYNCED = Contender(
    name="kafka-synced",
    title="Apache Kafka, log.flush.interval.messages=1",
    durable=True,
    launch=_kafka(log_flush_interval_messages="1"),
)
TIDELOG = Contender(
    name="tidelog", title="Tidelog, flush.policy=os", durable=False, launch=_tidelog("os")
)
TIDELOG_SYNCED = Contender(
    name="tidelog-synced",
    title="Tidelog, flush.policy=batch (default)",
    durable=True,
    launch=_tidelog("batch"),
)
LIMIT = Contender(name="limit", title="bare receive and append", durable=False, launch=_limit)
LIMIT_SYNCED = Contender(
    name="limit-synced",
    title="bare receive, append and sync",
    durable=True,
    launch=_limit_synced,
)
_EARLIER = (
    Contender(
        name="before",
        title="the earlier checkout, flush.policy=os",
        durable=False,
        launch=_tidelog("os", python=BEFORE),
    ),
    Contender(
        name="before-synced",
        title="the earlier checkout, flush.policy=batch",
        durable=True,
        launch=_tidelog("batch", python=BEFORE),
    ),
)
COMPARED = (KAFKA, TIDELOG, KAFKA_SYNCED, TIDELOG_SYNCED)
BY_NAME = {
    broker.name: broker
    for broker in (*COMPARED, LIMIT, LIMIT_SYNCED, *(_EARLIER if BEFORE else ()))
}

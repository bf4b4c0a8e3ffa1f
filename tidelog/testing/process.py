"""A broker in a process of its own, so that a test may restart, pause and kill it.

Read next: `tidelog.testing.in_process` for one in the test's event loop.
"""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TextIO

from tidelog.testing import topics
from tidelog.testing.clock import BrokerClock, command
from tidelog.testing.faults import RequestFaults

if TYPE_CHECKING:
    from client.types import ConsumerRecord

READY_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 20.0

TEST_SETTINGS: Final[Mapping[str, str]] = {
    "metrics.listener": "127.0.0.1:0",
    "log.initial.task.delay.ms": "1000",
    "log.retention.check.interval.ms": "1000",
    "offsets.retention.check.interval.ms": "1000",
    "producer.id.expiration.check.interval.ms": "1000",
}
"""Free ports, since a machine runs several tests, and jobs that fall due with any advance."""

_CLOCKS: Final[tuple[str, ...]] = ("system", "settable")

_PACKAGE: Final = __name__.partition(".testing")[0]


class BrokerDidNotStart(Exception):
    """The broker ended or stayed silent instead of reporting that it is ready; holds its output."""


class RunningBroker:
    """A broker that accepts clients, in a process that the context manager ends.

    Attributes:
        host, port: where clients connect; a restart keeps them.
        metrics_port: where operators ask, None without one.
        data_dir: where records are kept.
        process: the process that runs now.
    """

    def __init__(
        self, data_dir: Path, options: Sequence[str], settings: Mapping[str, str], log: TextIO
    ) -> None:
        """Describe a broker that is not started; its standard error goes to `log`."""
        self.data_dir = data_dir
        self.host = "127.0.0.1"
        self.port = 0
        self.metrics_port: int | None = None
        self.process: subprocess.Popen[str]
        self._options = options
        self._settings = settings
        self._log = log

    @property
    def bootstrap(self) -> str:
        """``host:port`` for clients."""
        return f"{self.host}:{self.port}"

    @property
    def clock(self) -> BrokerClock:
        """What it stamps and deletes by, with ``clock="settable"``.

        Raises:
            ValueError: the broker has no metrics port.
        """
        return BrokerClock(*self._metrics_address())

    @property
    def faults(self) -> RequestFaults:
        """Makes single requests fail, come late or lose their connection; see `RequestFaults`.

        With ``clock="settable"``; a restart forgets them.

        Raises:
            ValueError: the broker has no metrics port.
        """
        address = self._metrics_address()
        refusal = "this broker takes no faults, as one of production"
        return RequestFaults(lambda words: command(address, "/faults", words, refusal))

    def _metrics_address(self) -> tuple[str, int]:
        if self.metrics_port is None:
            raise ValueError("tests command a broker over its metrics port: set metrics.listener")
        return self.host, self.metrics_port

    @property
    def log(self) -> str:
        """What the broker has logged so far."""
        return Path(self._log.name).read_text(encoding="utf-8", errors="replace")

    def start(self) -> None:
        """Start the process, after a stop or kill on the same port.

        Raises:
            BrokerDidNotStart: with the broker's output.
        """
        words = ["serve", "--json", "--data-dir", str(self.data_dir)]
        words += ["--listen", f"{self.host}:{self.port}", *self._options]
        for name, value in self._settings.items():
            words += ["--set", f"{name}={value}"]
        root = str(Path(__file__).resolve().parents[2])
        paths = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        self.process = subprocess.Popen(
            [sys.executable, "-m", _PACKAGE, *words],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, "PYTHONPATH": paths},
        )
        ready = _ready_line(self.process, self)
        self.host = str(ready["host"])
        self.port = int(str(ready["port"]))
        port = ready["metrics_port"]
        self.metrics_port = None if port is None else int(str(port))

    def stop(self) -> int:
        """End the process as SIGTERM does, and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self._wait(STOP_TIMEOUT_S)

    def kill(self) -> None:
        """End the process at once, as a crash would; what is not synced yet may be lost."""
        self.process.kill()
        self._wait()

    def _wait(self, timeout_s: float | None = None) -> int:
        """The exit code, once the process has ended; nothing of it stays open then."""
        code = self.process.wait(timeout=timeout_s)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code

    def restart(self) -> None:
        """Stop the process if it runs, and start it on the same records and port."""
        self.end()
        self.start()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let the process hang while the block runs: connections stay open, no answer comes."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """End the process if it runs, by force when it does not stop."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self._wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def create_topic(
        self,
        name: str,
        values: Iterable[topics.Value] = (),
        *,
        partitions: int = 1,
        settings: Mapping[str, str] | None = None,
    ) -> str:
        """Create a topic, write `values` to it, and return its name."""
        topics.run(lambda: topics.create_topic(self.bootstrap, name, partitions, settings or {}))
        self.write(name, *values)
        return name

    def write(self, topic: str, *values: topics.Value) -> None:
        """Append records, durable on return; those without a time get the broker's present."""
        if values:
            now_ms = time.time_ns() // 1_000_000
            if "settable" in self._options:
                now_ms = self.clock.now_ms
            topics.run(lambda: topics.write(self.bootstrap, topic, values, now_ms))

    def read(self, topic: str) -> "list[ConsumerRecord]":
        """All records of a topic that a consumer sees now, by partition and offset."""
        return topics.run(lambda: topics.read(self.bootstrap, topic))


@contextmanager
def running_broker(
    data_dir: str | Path | None = None,
    *,
    port: int = 0,
    settings: Mapping[str, str] | None = None,
    clock: Literal["system", "settable"] = "system",
    log_level: str = "warning",
) -> Iterator[RunningBroker]:
    """A broker while the block runs.

    Args:
        data_dir: where it keeps records; None for a directory that is deleted afterwards.
        port: where it listens on 127.0.0.1; 0 picks a free one.
        settings: broker settings by name, such as ``{"num.partitions": "4"}``.
        clock: "settable" for a broker whose `clock` the test sets and that takes `faults`; its
            jobs run each second.
        log_level: what `RunningBroker.log` contains.

    Raises:
        ValueError: `clock` is none of the two.
        BrokerDidNotStart: with the broker's output.
    """
    if clock not in _CLOCKS:
        raise ValueError(f'clock = {clock!r}: give "system" or "settable"')
    given = {"metrics.listener": TEST_SETTINGS["metrics.listener"], **(settings or {})}
    options = ["--log-level", log_level]
    if clock == "settable":
        given = {**TEST_SETTINGS, **given}
        options += ["--clock", clock]
    with tempfile.TemporaryDirectory(prefix="tidelog-") as temporary:
        directory = Path(data_dir) if data_dir is not None else Path(temporary) / "data"
        # To a file, since no process reads the output: a full pipe would stop the broker.
        with (Path(temporary) / "stderr").open("w+") as log:
            broker = RunningBroker(directory, options, given, log)
            broker.port = port
            broker.start()
            try:
                yield broker
            finally:
                broker.end()


def _ready_line(process: "subprocess.Popen[str]", broker: RunningBroker) -> dict[str, object]:
    """The ready line's facts; a broker that ends or stays silent is an error."""
    assert process.stdout is not None
    is_readable, _, _ = select.select([process.stdout], [], [], READY_TIMEOUT_S)
    line = process.stdout.readline() if is_readable else ""
    if not line:
        broker.end()
        raise BrokerDidNotStart(broker.log.strip() or f"not ready within {READY_TIMEOUT_S:.0f} s")
    facts: dict[str, object] = json.loads(line)
    return facts

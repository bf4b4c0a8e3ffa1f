"""A broker for tests: started in a temporary directory on a free port, removed afterwards.

    from tidelog.testing import running_broker

    with running_broker() as broker:
        ...connect any Kafka client to broker.bootstrap...

With pytest, ``pytest_plugins = ["tidelog.testing"]`` in conftest.py offers the fixture
``tidelog_broker``, one broker per test session. The broker is a process of its own, so that a
test may also kill it.
"""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

READY_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 20.0


class BrokerDidNotStart(Exception):
    """The broker ended or stayed silent instead of reporting that it is ready; holds its output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningBroker:
    """A broker that accepts clients. `process` is its own to end; the context manager does it."""

    host: str
    port: int
    metrics_port: int | None
    data_dir: Path
    process: "subprocess.Popen[str]"

    @property
    def bootstrap(self) -> str:
        """``host:port`` for clients."""
        return f"{self.host}:{self.port}"

    def kill(self) -> None:
        """End the process at once, as a crash would; unsynced data may be lost."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """End the process as SIGTERM does, and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=STOP_TIMEOUT_S)


@contextmanager
def running_broker(
    data_dir: str | Path | None = None,
    *,
    port: int = 0,
    settings: Mapping[str, str] | None = None,
) -> Iterator[RunningBroker]:
    """A broker while the block runs.

    Args:
        data_dir: where it keeps records; None for a directory that is deleted afterwards.
        port: where it listens on 127.0.0.1; 0 picks a free one.
        settings: broker settings by name, such as ``{"num.partitions": "4"}``.

    Raises:
        BrokerDidNotStart: with the broker's output.
    """
    with tempfile.TemporaryDirectory(prefix=f"{__package__}-") as temporary:
        directory = Path(data_dir) if data_dir is not None else Path(temporary) / "data"
        # To a file, since no process reads the output: a full pipe would stop the broker.
        with (Path(temporary) / "stderr").open("w+") as log:
            broker = _start(directory, port, settings or {}, log)
            try:
                yield broker
            finally:
                _end(broker.process)


def _start(directory: Path, port: int, settings: Mapping[str, str], log: TextIO) -> RunningBroker:
    words = ["serve", "--json", "--data-dir", str(directory), "--listen", f"127.0.0.1:{port}"]
    # A test machine may run several: the metrics port is a free one unless set.
    for name, value in {"metrics.listener": "127.0.0.1:0", **settings}.items():
        words += ["--set", f"{name}={value}"]
    root = str(Path(__file__).resolve().parent.parent)
    paths = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    process = subprocess.Popen(
        [sys.executable, "-m", str(__package__), *words],
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )
    ready = _ready_line(process, log)
    return RunningBroker(
        host=str(ready["host"]),
        port=int(str(ready["port"])),
        metrics_port=None if ready["metrics_port"] is None else int(str(ready["metrics_port"])),
        data_dir=directory,
        process=process,
    )


def _ready_line(process: "subprocess.Popen[str]", log: TextIO) -> dict[str, object]:
    """The ready line's facts; a broker that ends or stays silent is an error."""
    assert process.stdout is not None
    is_readable, _, _ = select.select([process.stdout], [], [], READY_TIMEOUT_S)
    line = process.stdout.readline() if is_readable else ""
    if not line:
        _end(process)
        log.seek(0)
        raise BrokerDidNotStart(log.read().strip() or f"not ready within {READY_TIMEOUT_S:.0f} s")
    facts: dict[str, object] = json.loads(line)
    return facts


def _end(process: "subprocess.Popen[str]") -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout=STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stdout is not None:
        process.stdout.close()


try:
    import pytest
except ImportError:
    pass
else:

    @pytest.fixture(scope="session")
    def tidelog_broker() -> Iterator[RunningBroker]:
        """One broker for the whole test session."""
        with running_broker() as broker:
            yield broker

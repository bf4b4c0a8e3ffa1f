"""The broker under judgement: Tidelog as a subprocess, or whatever COMPAT_BROKER names.

COMPAT_BROKER=tidelog (default) starts the `tidelog` console script of this environment;
`kafka-4.3.1` starts that Apache Kafka, which is how the client programs themselves are proved;
`host:port` uses a broker that runs already.

COMPAT_WORKERS=N starts tidelog with N workers. Only the bootstrap address of worker 1 is given to
clients; they find the others by themselves.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from tests.compat import recorder
from tests.support.kafka_peer import KafkaPeer

START_TIMEOUT_S = 90
"""A start takes half a second of CPU; many tests at once may make it wait for that."""

STOP_TIMEOUT_S = 20


class TidelogProcess:
    """A `tidelog serve` of its own on a free port; a context manager that starts and stops it.

    `ready` is the JSON document that the broker prints when it accepts connections and
    `ready_ms` the time from spawning it to that line.
    """

    def __init__(
        self, data_dir: Path, *, settings: Mapping[str, str] | None = None, python: str = ""
    ) -> None:
        self.data_dir = data_dir
        self.settings = dict(settings or {})
        self.python = python or sys.executable
        self.ready: dict[str, Any] = {}
        self.ready_ms = 0.0
        self.spawned_at = 0.0
        self.bootstrap = ""
        self.port = 0
        """The port to listen on; 0 is any free one."""

        self.process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Returns when the broker says that it is ready.

        Raises:
            RuntimeError: it ended or stayed silent; carries the end of its log.
        """
        self.data_dir.parent.mkdir(parents=True, exist_ok=True)
        log = self.data_dir.with_suffix(".log")
        listen = ["--data-dir", str(self.data_dir), "--listen", f"127.0.0.1:{self.port}", "--json"]
        pairs = [
            word for key, value in self.settings.items() for word in ("--set", f"{key}={value}")
        ]
        program = Path(self.python).parent / "tidelog"
        # As installed: compiled once, not at each start.
        cached = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        self.spawned_at = time.perf_counter()
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [str(program), "serve", *listen, *pairs],
                stdout=subprocess.PIPE,
                stderr=errors,
                stdin=subprocess.DEVNULL,
                text=True,
                env=cached,
            )
        watchdog = threading.Timer(START_TIMEOUT_S, self.process.kill)
        watchdog.start()
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        watchdog.cancel()
        self.ready_ms = (time.perf_counter() - self.spawned_at) * 1000
        if not line:
            self.stop()
            raise RuntimeError(f"tidelog serve did not start: {log.read_text()[-1500:]}")
        self.ready = json.loads(line)
        self.bootstrap = f"{self.ready['host']}:{self.ready['port']}"

    def stop(self) -> None:
        """Ends the broker (SIGTERM, then SIGKILL) and waits for it."""
        if self.process is None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.process = None

    def kill(self) -> None:
        """Ends the broker at once, as a crash would (SIGKILL)."""
        assert self.process is not None, "the broker is not running"
        self.process.kill()
        self.stop()

    @property
    def pid(self) -> int:
        """The process id of the running broker."""
        assert self.process is not None, "the broker is not running"
        return self.process.pid


@contextmanager
def judged_broker(folder: Path, extra: Mapping[str, str] | None = None) -> Iterator[str]:
    """Yields the bootstrap address of the broker that COMPAT_BROKER asks for.

    `extra` settings are those of a broker that is started here.
    """
    extra = dict(extra or {})
    wanted = os.environ.get("COMPAT_BROKER", "tidelog")
    if wanted == "tidelog":
        workers = os.environ.get("COMPAT_WORKERS", "1")
        proxy = recorder.running() if workers == "1" else None
        address = "" if proxy is None else f"PLAINTEXT://{proxy.address}"
        settings = {"workers": workers, **extra}
        if address:
            settings["advertised.listeners"] = address
        with TidelogProcess(folder / "tidelog", settings=settings) as broker:
            if proxy is not None:
                proxy.serve(broker.bootstrap)
            yield broker.bootstrap if proxy is None else proxy.address
    elif wanted.startswith("kafka-"):
        version = wanted.removeprefix("kafka-")
        with KafkaPeer(folder / "kafka", version=version, settings=extra) as peer:
            yield peer.bootstrap
    else:
        yield wanted

"""Apache Kafka itself, one KRaft node on loopback, from the jars of Maven Central.

It is the peer that the benchmarks measure against and the broker on which the client programs of
`tests/compat` are proved before they judge Tidelog. Also runs the classes of Kafka's own tools
(perf tests, DumpLogSegments). Releases from 3.3 on; the caller owns the data directory.
"""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.support import toolchains

NEWEST = "4.3.1"
"""The release that the figures in docs/benchmarks.md are about."""

LAST_WITH_OLD_PROTOCOLS = "3.9.1"
"""The last release that serves clients from before 2.1."""

START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 30

_CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
_ONE_NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
}


def jars(version: str = NEWEST) -> Path:
    """The folder with all jars of the broker and its tools."""
    return toolchains.maven_jars(
        f"org.apache.kafka:kafka_2.13:{version}",
        f"org.apache.kafka:kafka-tools:{version}",
        "org.slf4j:slf4j-nop:1.7.36",
    )


def tool_command(
    name: str, *arguments: str, version: str = NEWEST, heap: str = "256m"
) -> list[str]:
    """The command line of the class `name` of Kafka's tools."""
    java = [toolchains.java(), f"-Xmx{heap}", "-Dlog4j2.level=OFF", "-cp", f"{jars(version)}/*"]
    return [*java, name, *arguments]


def free_ports(count: int) -> list[int]:
    """TCP ports of 127.0.0.1 that were free a moment ago, all different."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports


def answers(port: int) -> bool:
    """Whether something accepts connections on a port of 127.0.0.1."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


class KafkaPeer:
    """One Apache Kafka broker; a context manager that starts and stops it.

    `bootstrap` and `process` are set between start and stop; `spawned_at` is when the broker's
    process was started, on time.perf_counter. The data directory is formatted before that when it
    is new, and kept at the end, so that a second peer on it is a restart.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        version: str = NEWEST,
        settings: Mapping[str, str] | None = None,
        heap: str = "1g",
    ) -> None:
        self.version = version
        self.data_dir = data_dir
        self.settings = dict(settings or {})
        self.heap = heap
        self.bootstrap = ""
        self.process: subprocess.Popen[bytes] | None = None
        self.spawned_at = 0.0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Returns when the broker accepts connections.

        Raises:
            RuntimeError: it ended or did not answer in time; carries the end of its log.
        """
        self.data_dir.mkdir(parents=True, exist_ok=True)
        port, controller_port = free_ports(2)
        properties = self._write_properties(port, controller_port)
        if not (self.data_dir / "data" / "meta.properties").exists():
            format_arguments = ["format", "-t", _CLUSTER_ID, "-c", str(properties)]
            self._run(["kafka.tools.StorageTool", *format_arguments])
        log = self.data_dir / "kafka.log"
        command = [*self._java(self.heap), "kafka.Kafka", str(properties)]
        self.spawned_at = time.perf_counter()
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not answers(port):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"Apache Kafka did not start: {log.read_text()[-1000:]}")
            time.sleep(0.02)
        self.bootstrap = f"127.0.0.1:{port}"

    def stop(self) -> None:
        """Ends the broker (SIGTERM, then SIGKILL after half a minute) and waits for it."""
        if self.process is None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    @property
    def pid(self) -> int:
        """The process id of the running broker."""
        assert self.process is not None, "the peer is not running"
        return self.process.pid

    def _write_properties(self, port: int, controller_port: int) -> Path:
        listeners = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}"
        merged = {
            **_ONE_NODE,
            "listeners": listeners,
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "log.dirs": str(self.data_dir / "data"),
            **self.settings,
        }
        path = self.data_dir / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in merged.items()))
        return path

    def _java(self, heap: str) -> list[str]:
        options = [f"-Xms{heap}", f"-Xmx{heap}", "-Dlog4j2.level=OFF"]
        return [toolchains.java(), *options, "-cp", f"{jars(self.version)}/*"]

    def _run(self, arguments: Sequence[str]) -> None:
        done = subprocess.run(
            [*self._java("256m"), *arguments], capture_output=True, text=True, timeout=60
        )
        if done.returncode != 0:
            raise RuntimeError(f"{arguments[0]} failed: {(done.stdout + done.stderr)[-1000:]}")


def resident_bytes(pid: int, *, peak: bool = False) -> int:
    """Resident memory of a process, now or at its highest, from /proc."""
    field = "VmHWM:" if peak else "VmRSS:"
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(pid)


def cpu_seconds(pid: int) -> float:
    """User and system CPU seconds that a process has used so far, all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

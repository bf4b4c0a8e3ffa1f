"""Apache Kafka itself, one node on loopback, from the jars of Maven Central.

It is the peer that the benchmarks measure against, the broker on which the client programs of
`tests/compat` are proved before they judge Tidelog, the other side of `tests/differential` and the
judge of `tests/roundtrip`. Also runs the classes of Kafka's own tools (perf tests,
DumpLogSegments). Releases from 3.3 on run in KRaft mode; older ones, back to 0.8.2, get a ZooKeeper
of their own, as they were run in their time. The caller owns the data directory.
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

OLDEST = "0.8.2.2"
"""The last release that stores magic 0: the first client protocols, no timestamps."""

FIRST_WITH_TIME_INDEX = "0.10.2.2"
"""KIP-32 and KIP-33 nearly as they were first written: magic 1, `.timeindex`, ListOffsets v1."""

LAST_BEFORE_KRAFT = "2.8.2"
"""Magic 2 with conversion to both older formats, topic ids, ZooKeeper."""

START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 120

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


def needs_zookeeper(version: str) -> bool:
    """Whether a release keeps its metadata in ZooKeeper (ours do up to 3.2)."""
    major, minor = (int(number) for number in version.split(".")[:2])
    return (major, minor) < (3, 3)


def jars(version: str = NEWEST) -> Path:
    """The folder with all jars of the broker and its tools."""
    if not needs_zookeeper(version):
        return toolchains.maven_jars(
            f"org.apache.kafka:kafka_2.13:{version}",
            f"org.apache.kafka:kafka-tools:{version}",
            "org.slf4j:slf4j-nop:1.7.36",
        )
    scala = "2.11" if version.startswith("0.") else "2.12"
    return toolchains.maven_jars(
        f"org.apache.kafka:kafka_{scala}:{version}",
        # Part of Java until 10; ZooKeeper and the metrics of that time expect it.
        "javax.xml.bind:jaxb-api:2.3.1",
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
    is new, and kept at the end, so that a second peer on it is a restart. `log_dir` is where the
    partitions are, by default below the data directory; give one that another program wrote, and
    ``node.id`` in `settings` to be its owner. `listeners` are ports of 127.0.0.1 by security
    protocol, beside the plain one (KRaft mode only); what they need goes into `settings`.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        version: str = NEWEST,
        settings: Mapping[str, str] | None = None,
        heap: str = "1g",
        log_dir: Path | None = None,
        listeners: Mapping[str, int] | None = None,
    ) -> None:
        self.version = version
        self.data_dir = data_dir
        self.log_dir = log_dir or data_dir / "data"
        self.settings = dict(settings or {})
        self.heap = heap
        self.listeners = dict(listeners or {})
        self.bootstrap = ""
        self.process: subprocess.Popen[bytes] | None = None
        self.spawned_at = 0.0
        self._zookeeper: subprocess.Popen[bytes] | None = None

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
        taken = set(self.listeners.values())  # free too, as nothing listens there yet
        free = free_ports(2 + len(taken))
        port, other_port, *_ = (each for each in free if each not in taken)
        if needs_zookeeper(self.version):
            self._start_zookeeper(other_port)
            properties = self._write_zookeeper_mode(port, other_port)
        else:
            properties = self._write_properties(port, other_port)
            if not (self.log_dir / "meta.properties").exists():
                format_arguments = ["format", "-t", _CLUSTER_ID, "-c", str(properties)]
                self._run(["kafka.tools.StorageTool", *format_arguments])
        command = [*self._java(self.heap), "kafka.Kafka", str(properties)]
        self.spawned_at = time.perf_counter()
        self.process = self._spawn(command, "kafka.log")
        self._wait(port, self.process, "kafka.log")
        self.bootstrap = f"127.0.0.1:{port}"

    def stop(self) -> None:
        """Ends the broker (SIGTERM, then SIGKILL after two minutes) and waits for it."""
        for process in (self.process, self._zookeeper):
            if process is None:
                continue
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.process = self._zookeeper = None

    @property
    def pid(self) -> int:
        """The process id of the running broker."""
        assert self.process is not None, "the peer is not running"
        return self.process.pid

    def _write_properties(self, port: int, controller_port: int) -> Path:
        clients = ",".join(
            f"{protocol}://127.0.0.1:{listener}"
            for protocol, listener in {"PLAINTEXT": port, **self.listeners}.items()
        )
        protocols = ",".join(f"{protocol}:{protocol}" for protocol in self.listeners)
        merged = {
            **_ONE_NODE,
            "listeners": f"{clients},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": clients,
            "listener.security.protocol.map": ",".join(
                filter(None, (_ONE_NODE["listener.security.protocol.map"], protocols))
            ),
            "log.dirs": str(self.log_dir),
            **self.settings,
        }
        merged["controller.quorum.voters"] = f"{merged['node.id']}@127.0.0.1:{controller_port}"
        return self._write("server.properties", merged)

    def _write_zookeeper_mode(self, port: int, zookeeper_port: int) -> Path:
        merged = {
            "broker.id": "1",
            "port": str(port),
            "host.name": "127.0.0.1",
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "zookeeper.connect": f"127.0.0.1:{zookeeper_port}",
            "log.dirs": str(self.log_dir),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            **self.settings,
        }
        return self._write("server.properties", merged)

    def _start_zookeeper(self, port: int) -> None:
        settings = {
            "dataDir": str(self.data_dir / "zookeeper"),
            "clientPort": str(port),
            "clientPortAddress": "127.0.0.1",
            "maxClientCnxns": "0",
            "admin.enableServer": "false",
        }
        path = self._write("zookeeper.properties", settings)
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        self._zookeeper = self._spawn([*self._java("128m"), main, str(path)], "zookeeper.log")
        self._wait(port, self._zookeeper, "zookeeper.log")

    def _write(self, name: str, settings: Mapping[str, str]) -> Path:
        path = self.data_dir / name
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return path

    def _spawn(self, command: Sequence[str], log_name: str) -> subprocess.Popen[bytes]:
        with (self.data_dir / log_name).open("ab") as output:
            return subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
            )

    def _wait(self, port: int, process: subprocess.Popen[bytes], log_name: str) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not answers(port):
            if process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                tail = (self.data_dir / log_name).read_text()[-1000:]
                raise RuntimeError(f"Apache Kafka did not start: {tail}")
            time.sleep(0.02)

    def _java(self, heap: str) -> list[str]:
        options = [f"-Xms{heap}", f"-Xmx{heap}", "-Dlog4j2.level=OFF"]
        return [toolchains.java(), *options, "-cp", f"{jars(self.version)}/*"]

    def _run(self, arguments: Sequence[str]) -> None:
        done = subprocess.run(
            [*self._java("256m"), *arguments],
            capture_output=True,
            text=True,
            timeout=START_TIMEOUT_S,
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

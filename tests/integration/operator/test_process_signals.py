"""What a signal, a stranger and a crash leave in the log, and that no SIGHUP kills a broker."""

import contextlib
import fcntl
import json
import os
import pty
import signal
import socket
import ssl
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from client.admin import Admin
from client.errors import BrokerRefused
from client.producer import Producer

ROOT = Path(__file__).resolve().parents[3]
MARKER = ".kafka_cleanshutdown"


def wait_for(is_true: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 30
    while not is_true():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


class Served:
    """``tidelog serve`` as a process of its own session, its facts and its log."""

    def __init__(self, process: "subprocess.Popen[str]", log: Path) -> None:
        assert process.stdout is not None
        self.process = process
        self.facts: dict[str, Any] = json.loads(process.stdout.readline())
        self._log = log

    @property
    def bootstrap(self) -> str:
        return f"{self.facts['host']}:{self.facts['port']}"

    def logged(self) -> list[dict[str, str]]:
        return [json.loads(line) for line in self._log.read_text().splitlines()]

    def wait_for_line(self, words: str) -> dict[str, str]:
        wait_for(lambda: any(words in line["message"] for line in self.logged()), words)
        return next(line for line in self.logged() if words in line["message"])


@contextmanager
def serving(directory: Path, *words: str, terminal: int | None = None) -> Iterator[Served]:
    """A broker whose controlling terminal is `terminal`, or which has none."""

    def take_terminal() -> None:
        if terminal is not None:
            fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)

    log = directory / "log"
    command = ["--data-dir", str(directory / "data"), "--listen", "127.0.0.1:0", "--json"]
    command += ["--set", "metrics.listener=127.0.0.1:0"]
    command += ["--log-level", "info", "--log-format", "json", "--log-file", str(log)]
    process = subprocess.Popen(
        [sys.executable, "-m", "tidelog", "serve", *command, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
        start_new_session=True,
        preexec_fn=take_terminal,
        pass_fds=[] if terminal is None else [terminal],
    )
    try:
        yield Served(process, log)
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


async def test_sighup_reloads_what_may_change_and_never_kills(tmp_path: Path) -> None:
    """`systemctl reload` sends it; the broker used to die of it without a clean stop."""
    file = tmp_path / "server.properties"
    file.write_text("log.retention.ms=1000000\nnum.partitions=2\n")
    with serving(tmp_path, "--config", str(file)) as served:
        async with Admin(served.bootstrap) as admin:
            await admin.create_topic("t")
            file.write_text("log.retention.ms=2000000\nnum.partitions=3\nzookeeper.connect=z\n")
            served.process.send_signal(signal.SIGHUP)
            served.wait_for_line("the configuration is reloaded: log.retention.ms")
            served.wait_for_line("changed, but needs a restart: num.partitions")
            served.wait_for_line("does not apply: there is no ZooKeeper")
            assert (await admin.topic_configs("t"))["retention.ms"].value == "2000000"
            file.write_text("nope=1\nnum.partitions=zero\n")
            served.process.send_signal(signal.SIGHUP)
            line = served.wait_for_line("is not reloaded: nope = ")
            assert "; num.partitions = 'zero'" in line["message"]
            assert line["level"] == "error"
            file.unlink()
            served.process.send_signal(signal.SIGHUP)
            served.wait_for_line("No such file")
            assert (await admin.topic_configs("t"))["retention.ms"].value == "2000000"
            assert len((await admin.describe_topic("t")).partitions) == 2
        served.process.terminate()
        assert served.process.wait(30) == 0


async def test_the_log_says_what_starts_and_what_a_crash_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_SECRET", "a-secret")
    with serving(tmp_path, "--set", "ssl.keystore.password=env:A_SECRET") as served:
        served.wait_for_line("Tidelog ")
        line = served.wait_for_line("settings: ")["message"]
        assert "metrics.listener=127.0.0.1:0 (command line)" in line
        assert "a-secret" not in line
        served.wait_for_line("2 topics, 2 partitions, new or empty")
        served.wait_for_line(f"listens: PLAINTEXT (PLAINTEXT) at {served.bootstrap}, metrics at ")
        async with Producer(served.bootstrap) as producer:
            await (await producer.send("t", b"x"))
            with pytest.raises(BrokerRefused):
                await (await producer.send("t", b"x", timestamp_ms=4_070_908_800_000))
        served.wait_for_line("records for partition 0 of 't' refused with INVALID_TIMESTAMP: ")
        served.process.kill()
        served.process.wait()
    (tmp_path / "log").unlink()
    with serving(tmp_path) as served:
        line = served.wait_for_line("3 topics, 3 partitions, not stopped cleanly")["message"]
        assert " 69 B of logs checked, 0 B cut, 0 indexes rebuilt, 0 partitions offline" in line
        served.process.terminate()
        assert served.process.wait(30) == 0
    (tmp_path / "log").unlink()
    with serving(tmp_path) as served:
        served.wait_for_line("3 topics, 3 partitions, stopped cleanly")


async def test_settings_made_through_the_protocol_win_over_a_reload(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("log.retention.ms=1000000\n")
    with serving(tmp_path, "--config", str(file)) as served:
        async with Admin(served.bootstrap) as admin:
            await admin.alter_broker_configs(
                served.facts["node_id"], {"log.retention.ms": "3000000"}
            )
            file.write_text("log.retention.ms=2000000\nlog.segment.bytes=2000000\n")
            served.process.send_signal(signal.SIGHUP)
            served.wait_for_line("log.segment.bytes")
            await admin.create_topic("t")
            configs = await admin.topic_configs("t")
    assert configs["retention.ms"].value == "3000000"
    assert configs["segment.bytes"].value == "2000000"


def test_a_terminal_that_goes_stops_the_broker_cleanly(tmp_path: Path) -> None:
    """As closing the window of `make run` does."""
    master, slave = pty.openpty()
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, slave)
        with serving(tmp_path, terminal=slave) as served:
            os.close(master)
            assert served.process.wait(30) == 0
    assert (tmp_path / "data" / MARKER).exists()


def test_what_a_crash_cut_off_is_a_line_of_the_log(tmp_path: Path) -> None:
    """It used to be printed on standard error only, without a time."""
    with serving(tmp_path) as served:
        subprocess.run(
            [sys.executable, "-m", "tidelog", "topic", "create", "t", "-b", served.bootstrap],
            cwd=ROOT,
            check=True,
            capture_output=True,
        )
        served.process.kill()
        served.process.wait()
    with (tmp_path / "data" / "t-0" / f"{0:020}.log").open("ab") as log:
        log.write(b"torn" * 10)
    with serving(tmp_path) as served:
        line = served.wait_for_line("was cut at byte 0")
    assert (line["level"], line["logger"]) == ("warning", "tidelog.broker.node")
    assert line["time"].endswith("Z")


@pytest.mark.parametrize("protocol", ["HTTP", "TLS"])
def test_a_client_of_another_protocol_is_named_once_as_a_warning(
    tmp_path: Path, protocol: str
) -> None:
    with serving(tmp_path) as served:
        address = (served.facts["host"], served.facts["port"])
        for _ in range(2):
            with socket.create_connection(address, timeout=10) as raw:
                if protocol == "HTTP":
                    raw.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
                    assert raw.recv(1) == b""
                else:
                    context = ssl.create_default_context()
                    with pytest.raises((ssl.SSLError, OSError)):
                        context.wrap_socket(raw, server_hostname="localhost")
        served.wait_for_line(f"speaks {protocol}")
        wait_for(
            lambda: sum(f"begins as {protocol}" in x["message"] for x in served.logged()) == 3,
            "two closings and one warning",
        )
        warnings = [x for x in served.logged() if f"speaks {protocol}" in x["message"]]
    assert [x["level"] for x in warnings] == ["warning"]
    assert "the listener speaks Kafka's protocol" in warnings[0]["message"]

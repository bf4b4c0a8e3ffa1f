"""The broker as a process: ready soon, small, stopped cleanly, and one sentence when it cannot."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from config import load
from tests.support.broker import (
    BrokerProcess,
    RawClient,
    batch,
    broker_process,
    broker_settings,
)
from tests.support.requests import create_topic, fetch, produce, values_of

READY_S_MAX = 3.0
"""The goal is 0.3 s on an idle machine; this is a guard against accidents, not a measurement."""

IDLE_RSS_BYTES_MAX = 60 * 1024 * 1024


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")


def start_failure(directory: Path, **settings: str) -> str:
    """The text a broker leaves that cannot start."""
    process = BrokerProcess(directory, **settings).process
    out, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert out == ""
    assert "Traceback" not in err
    return err.strip().splitlines()[-1]


def test_ready_soon_and_small(tmp_path: Path) -> None:
    with broker_process(tmp_path / "data", metrics_listener="127.0.0.1:0") as broker:
        assert broker.ready_after_s < READY_S_MAX
        assert resident_bytes(broker.process.pid) < IDLE_RSS_BYTES_MAX


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_stops_cleanly(tmp_path: Path, number: int) -> None:
    with broker_process(tmp_path / "data") as broker:
        assert broker.stop(number) == 0
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


async def test_acknowledged_batches_survive_stop_and_kill(tmp_path: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM):
        with broker_process(tmp_path) as process:
            client = await RawClient.connect("127.0.0.1", process.port)
            try:
                stored = await fetch(client, "t")
                if stored.error_code:
                    await create_topic(client, "t")
                before = values_of(stored)
                await produce(client, "t", batch(str(len(before))))
                after = values_of(await fetch(client, "t"))
                assert after == [str(index).encode() for index in range(len(before) + 1)]
                process.stop(number)
            finally:
                await client.close()
    assert len(after) == 3


def test_taken_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = start_failure(tmp_path / "new", listeners=f"PLAINTEXT://127.0.0.1:{port}")
    assert f"127.0.0.1:{port} is taken" in line
    assert "choose another port" in line
    assert not (tmp_path / "new").exists()


def test_address_of_another_machine(tmp_path: Path) -> None:
    line = start_failure(tmp_path, listeners="PLAINTEXT://192.0.2.1:0", insecure_allow="true")
    assert "is not an address of this machine" in line


def test_directory_in_use(tmp_path: Path) -> None:
    with broker_process(tmp_path / "data"):
        assert str(tmp_path / "data") in start_failure(tmp_path / "data")


def test_directory_of_another_user(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "holiday.jpg").write_bytes(b"jpeg")
    line = start_failure(tmp_path / "photos")
    assert str(tmp_path / "photos") in line
    assert (tmp_path / "photos" / "holiday.jpg").read_bytes() == b"jpeg"


def test_directory_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert str(tmp_path / "file") in start_failure(tmp_path / "file")


def test_every_bad_setting_is_named(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path, no_such_key="1", num_partitions="-3").process
    _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "no.such.key" in err
    assert "num.partitions" in err


def test_failed_start_leaves_the_directory_unlocked(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        start_failure(tmp_path, listeners=f"PLAINTEXT://127.0.0.1:{port}")
    with broker_process(tmp_path) as broker:
        assert broker.stop() == 0


def test_optimised_python_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-O", "-m", "broker", f"log.dirs={tmp_path}"],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
        timeout=30,
        check=False,
    )
    assert done.returncode == 1
    assert "-O" in done.stderr


def test_default_metrics_port_moves_when_taken(tmp_path: Path) -> None:
    """Two brokers on one machine are a normal thing; only a port that was asked for is law."""
    default = load().metrics_listener
    assert default is not None
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # or another process has it, which is as good
            stack.enter_context(socket.create_server((default.host, default.port)))
        assert f"metrics port {default.port} is taken; serving" in log_of_a_start(tmp_path)


def log_of_a_start(directory: Path) -> str:
    """What a broker says that has no setting about metrics."""
    settings = broker_settings(directory, {})
    del settings["metrics.listener"]
    process = subprocess.Popen(
        [sys.executable, "-m", "broker", *(f"{name}={text}" for name, text in settings.items())],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("ready")
    process.terminate()
    return process.communicate()[1]


def test_metrics_port_that_was_asked_for_is_law(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = start_failure(tmp_path, metrics_listener=f"127.0.0.1:{port}")
    assert f"127.0.0.1:{port} is taken" in line


def test_metrics_are_served(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with broker_process(tmp_path, metrics_listener=f"127.0.0.1:{port}"):
        for path, expected in (("healthz", b"ok\n"), ("readyz", b"ok\n")):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}") as answer:
                assert answer.read() == expected
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            assert b"tidelog_connections 0.0" in answer.read()

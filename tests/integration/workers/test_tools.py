"""The tools for stopped directories find the directories of all workers, or say what to do."""

import socket
from pathlib import Path

import pytest

from tests.integration.workers.support import connect, directory_of, leaders_of
from tests.support.broker import batch, broker_process
from tests.support.cli import tidelog
from tests.support.requests import create_topic, produce


async def _filled(data: Path) -> int:
    """A stopped directory of two workers with a record in each partition; one of worker 2."""
    with broker_process(data, workers="2") as broker:
        clients = [await connect(port) for port in broker.ports]
        await create_topic(clients[0], "t", 2)
        leaders = await leaders_of(clients[0], "t")
        for partition, leader in leaders.items():
            await produce(clients[leader - 1], "t", batch("x" * 50), partition=partition)
        for client in clients:
            await client.close()
        assert broker.stop() == 0
    (theirs,) = [partition for partition, leader in leaders.items() if leader == 2]
    return theirs


async def test_fsck_and_accept_loss_find_the_partitions_of_each_worker(tmp_path: Path) -> None:
    data = tmp_path / "data"
    theirs = await _filled(data)
    done = tidelog("fsck", str(data))
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert " 2 records" in done.stdout
    log = directory_of(data, 2) / f"t-{theirs}" / f"{0:020}.log"
    content = bytearray(log.read_bytes())
    content[-1] ^= 1
    log.write_bytes(content)
    done = tidelog("fsck", str(data))
    assert done.returncode == 6
    assert f"worker.2/t-{theirs}" in done.stdout
    done = tidelog("fsck", str(data), "--accept-loss", f"t-{theirs}")
    assert (done.returncode, done.stderr) == (0, "")
    assert "lost offsets 0 to 0" in done.stdout
    assert tidelog("fsck", str(data)).returncode == 0


async def test_export_asks_for_one_worker_first(tmp_path: Path) -> None:
    data = tmp_path / "data"
    await _filled(data)
    done = tidelog("export-kraft", str(data), str(tmp_path / "kafka"))
    assert done.returncode == 1
    assert "start the broker once with workers=1" in done.stderr
    with broker_process(data) as broker:
        assert broker.stop() == 0
    done = tidelog("export-kraft", str(data), str(tmp_path / "kafka"))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"listeners": "A://127.0.0.1:9092,B://127.0.0.1:9093", "workers": "2"},
            "choose ports at least 2 apart",
        ),
        ({"listeners": "PLAINTEXT://127.0.0.1:65535", "workers": "2"}, "has too few ports"),
        (
            {"remote.storage.url": "file:///segments", "workers": "2"},
            "only one worker can keep segments in an object store",
        ),
        ({"workers": "0"}, "workers"),
        ({"workers": "65"}, "workers"),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    tmp_path: Path, settings: dict[str, str], sentence: str
) -> None:
    pairs = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    protocols = "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT,PLAINTEXT:PLAINTEXT"
    done = tidelog("serve", "--data-dir", str(tmp_path / "data"), "--set", protocols, *pairs)
    assert done.returncode == 5
    assert sentence in done.stderr
    assert not (tmp_path / "data").exists()


def _server_after_a_free_port() -> socket.socket:
    """A server at a port; nothing else has the port before it."""
    while True:
        server = socket.create_server(("127.0.0.1", 0))
        try:
            socket.create_server(("127.0.0.1", server.getsockname()[1] - 1)).close()
        except OSError:
            server.close()
        else:
            return server


def test_a_taken_port_of_the_second_worker_ends_the_start(tmp_path: Path) -> None:
    with _server_after_a_free_port() as taken:
        port = taken.getsockname()[1]
        done = tidelog(
            *("serve", "--data-dir", str(tmp_path / "data"), "--set", "workers=2"),
            *("--listen", f"127.0.0.1:{port - 1}", "--set", "metrics.listener="),
        )
    assert done.returncode == 1
    assert f"127.0.0.1:{port} is taken" in done.stderr


def test_a_settable_clock_belongs_to_one_process(tmp_path: Path) -> None:
    done = tidelog(
        *("serve", "--data-dir", str(tmp_path / "data"), "--set", "workers=2"),
        *("--clock", "settable"),
    )
    assert done.returncode == 1
    assert "set workers=1" in done.stderr

"""A broker that runs as a user without rights, as a service does: what it makes, and what it may.

Needs root, which gives its rights away, and setpriv of util-linux.
"""

import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli import environment, tidelog

NOBODY = 65_534
MAY_BE_READ = {"ca.pem"}

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user"),
    pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv of util-linux"),
]


def unprivileged() -> list[str]:
    """To be nobody. Reading stays, since this interpreter may lie where only root may look."""
    reading = "dac_read_search"
    return [
        "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs",
        f"--bounding-set=-all,+{reading}", f"--inh-caps=-all,+{reading}",
        f"--ambient-caps=-all,+{reading}",
    ]  # fmt: skip


@pytest.fixture
def data(tmp_path: Path) -> Path:
    place = tmp_path / "service"
    place.mkdir()
    os.chown(place, NOBODY, NOBODY)
    return place / "data"


def serve(data: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*unprivileged(), sys.executable, "-m", "tidelog", "serve", "--secure", "--data-dir",
         str(data), "--listen", "127.0.0.1:0", "--set", "metrics.listener=127.0.0.1:0"],
        env=environment(None) | {"HOME": str(data.parent)}, cwd=data.parent, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def facts_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: text.strip() for name, _, text in (line.partition(":") for line in lines)}


@pytest.mark.slow
def test_it_serves_and_leaves_nothing_that_others_may_read(data: Path) -> None:
    broker = serve(data)
    try:
        assert broker.stdout is not None
        ready = broker.stdout.readline()
        assert ready.startswith("Tidelog is ready"), broker.communicate()[1]
        facts = facts_of(broker.pid)
        assert facts["Uid"].split() == [str(NOBODY)] * 4
        assert facts["NoNewPrivs"] == "1"
        login = ("-b", ready.split()[4], "--command-config", str(data / "client.properties"))
        assert tidelog("topic", "create", "t", *login).returncode == 0
        done = tidelog("produce", "t", "-q", *login, given="hello\n")
        assert done.returncode == 0, done.stderr
        done = tidelog("consume", "t", "--from", "earliest", "--max", "1", *login)
        assert "hello" in done.stdout, done.stderr
    finally:
        broker.send_signal(signal.SIGTERM)
        _, errors = broker.communicate(timeout=60)
    assert broker.returncode == 0
    assert "Traceback" not in errors
    files = [path for path in data.rglob("*") if path.is_file()]
    assert len(files) > 10
    assert {path.stat().st_uid for path in files} == {NOBODY}
    readable = {path.name for path in files if stat.S_IMODE(path.stat().st_mode) & 0o077}
    assert readable <= MAY_BE_READ


def test_a_directory_of_another_user_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o755)
    broker = serve(tmp_path / "data")
    _, errors = broker.communicate(timeout=60)
    assert broker.returncode != 0
    assert "Traceback" not in errors
    assert str(tmp_path / "data") in errors
    assert list((tmp_path / "data").iterdir()) == []

"""`tidelog window`, and the example of docs/time.md as it is written."""

import json
import re
import socket
import subprocess
import sys
from pathlib import Path

from cli.exit_codes import ExitCode
from client.admin import Admin
from client.types import TopicPartition
from protocol.time_windows import window_name
from tests.support.cli import ROOT, environment, tidelog
from tidelog.testing import Seed, running_broker
from tidelog.testing.topics import run

START = 1_767_225_600_000  # 2026-01-01T00:00Z

COMMANDS = re.compile(r"^ {4}(.+)$", re.M)
STOP = "\nkill %1\nwait %1\n"


def test_the_name_of_a_span() -> None:
    words = ("--from", "2026-11-01T10:00Z", "--to", "1793530800250")
    assert tidelog("window", "flights", *words).stdout == (
        "flights.__t__20261101T100000Z__20261101T110000.250Z\n"
    )
    shown = json.loads(tidelog("window", "flights", *words, "--json").stdout)
    assert shown["from_ms"] == 1_793_527_200_000
    assert tidelog("window", "flights", *words[:2]).stdout == "flights.__t__20261101T100000Z__\n"


def test_a_span_without_records_is_refused() -> None:
    done = tidelog("window", "flights", "--from", "2026-11-01", "--to", "2026-10-01")
    assert (done.returncode, done.stdout) == (ExitCode.USAGE, "")
    assert "there is nothing in between" in done.stderr
    long = tidelog("window", "t" * 210, "--from", "2026-11-01T10:00Z", "--to", "2026-12-01T10:00Z")
    assert long.returncode == ExitCode.USAGE
    assert "needs 1 to 209" in long.stderr


def test_a_group_of_a_window_has_its_lag_and_is_moved() -> None:
    """Windows are in no list of topics, so their names are asked for."""
    window = window_name("flights", START + 1000, START + 4000)
    with running_broker(settings={"time.windows.enable": "true"}) as broker:
        records = [Seed(str(n), timestamp_ms=START + 1000 * n) for n in range(6)]
        broker.create_topic("flights", records)

        async def commit() -> None:
            async with Admin(broker.bootstrap) as admin:
                await admin.alter_group_offsets("hour", {TopicPartition(window, 0): 2})

        run(commit)
        at = ("-b", broker.bootstrap)
        shown = json.loads(tidelog("group", "describe", "hour", "--json", *at).stdout)
        (position,) = shown["positions"]
        assert (position["topic"], position["position"], position["end"]) == (window, 2, 6)
        assert position["lag"] == 4
        moved = tidelog("group", "reset", "hour", "--to-earliest", "--execute", *at)
        assert (moved.returncode, moved.stderr) == (ExitCode.OK, "")
        shown = json.loads(tidelog("group", "describe", "hour", "--json", *at).stdout)
        assert shown["positions"][0]["position"] == 1


def test_the_example_of_the_page_on_time(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "time.md").read_text(encoding="utf-8")
    section = page.partition("\n## Time windows\n")[2].partition("\n## ")[0]
    serve, *commands = COMMANDS.findall(section)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    ready = "until grep -q 'is ready' ready; do sleep 0.1; done\n"
    script = serve.replace(" &", " > ready &") + "\n" + ready + "\n".join(commands) + STOP
    done = subprocess.run(
        [
            "bash",
            "-e",
            "-c",
            f"PATH={Path(sys.executable).parent}:$PATH; " + script.replace("9092", port),
        ],
        cwd=tmp_path,
        env=environment(None)
        | {"KAFKA_BOOTSTRAP_SERVERS": f"127.0.0.1:{port}", "TIDELOG_METRICS_LISTENER": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == [
        "flights.__t__20261101T100000Z__20261101T110000Z",
        "JFK lands",
    ], done.stdout

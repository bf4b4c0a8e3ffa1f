"""The recipe of docs/tiered-storage.md runs as it is written, with another port."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli import ROOT, environment
from tests.support.kafka_peer import free_ports

COMMANDS = re.compile(r"^ {4}(.+)$", re.M)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_recipe_of_a_lost_machine(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "tiered-storage.md").read_text(encoding="utf-8")
    section = page.partition("\n## When the machine is lost\n")[2].partition("\n### ")[0]
    commands = COMMANDS.findall(section)
    assert any(line.startswith("tidelog restore") for line in commands)
    (port,) = free_ports(1)
    place = f"PATH={Path(sys.executable).parent}:$PATH; trap 'kill $(jobs -p)' EXIT; "
    done = subprocess.run(
        ["bash", "-e", "-c", place + "\n".join(commands).replace("9092", str(port))],
        cwd=tmp_path,
        env=environment(None)
        | {
            "TIDELOG_METRICS_LISTENER": "127.0.0.1:0",
            "KAFKA_BOOTSTRAP_SERVERS": f"127.0.0.1:{port}",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "sound" in done.stdout
    assert "bucket: 0 errors" in done.stdout
    assert (tmp_path / "all").read_text().split() == [str(number) for number in range(1, 1001)]
    assert (tmp_path / "rest").read_text().split()[0] == "401"
    assert len((tmp_path / "seen").read_text().splitlines()) == 400

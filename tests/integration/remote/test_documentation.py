"""The recipes of docs/tiered-storage.md run as they are written, with other ports."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli import ROOT, environment
from tests.support.kafka_peer import free_ports

COMMANDS = re.compile(r"^ {4}(.+)$", re.M)


def run_recipe(tmp_path: Path, heading: str, command: str) -> str:
    """Run the commands of a section, on free ports; what they print."""
    page = (ROOT / "docs" / "tiered-storage.md").read_text(encoding="utf-8")
    section = re.split("\n##+ ", page.partition(f"\n## {heading}\n")[2])[0]
    commands = "\n".join(COMMANDS.findall(section))
    assert command in commands
    port, other = free_ports(2)
    commands = commands.replace("9092", str(port)).replace("9093", str(other))
    place = f"PATH={Path(sys.executable).parent}:$PATH; trap 'kill $(jobs -p)' EXIT; "
    done = subprocess.run(
        [
            "bash",
            "-e",
            "-c",
            place + commands.replace("9092", str(port)).replace("9093", str(other)),
        ],
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
    assert (tmp_path / "all").read_text().split() == [str(number) for number in range(1, 1001)]
    assert (tmp_path / "rest").read_text().split()[0] == "401"
    assert len((tmp_path / "seen").read_text().splitlines()) == 400
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_recipe_of_a_lost_machine(tmp_path: Path) -> None:
    shown = run_recipe(tmp_path, "When the machine is lost", "tidelog restore")
    assert "sound" in shown
    assert "bucket: 0 errors" in shown


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_recipe_of_a_standby(tmp_path: Path) -> None:
    shown = run_recipe(tmp_path, "A second machine that stands by", "tidelog promote")
    assert "owns the bucket, epoch 2" in shown
    assert (tmp_path / "rest").read_text().split() == [str(number) for number in range(401, 1101)]

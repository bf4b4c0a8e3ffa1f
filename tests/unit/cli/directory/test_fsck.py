"""`tidelog fsck`: what it gives up, with `--accept-loss`."""

import json
from pathlib import Path

import pytest

from cli.exit_codes import ExitCode
from cli.main import run
from config import load
from storage.directory.data_dir import DataDir
from storage.disk.files import RealFiles
from storage.disk.steps import run_steps
from tests.support.logs import batch

NOW_MS = 1_700_000_000_000


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory with two partitions, of topics t and tiered, of three batches of 100 bytes."""
    config = load(command_line={"remote.storage.url": "memory:"})
    data_dir = DataDir.open(str(tmp_path), files=RealFiles(), broker_config=config, now_ms=NOW_MS)
    for name, settings in (("t", {}), ("tiered", {"remote.storage.enable": "true"})):
        log = run_steps(data_dir.create_topic(name, 1, settings, NOW_MS)).logs[0]
        for number in range(3):
            log.append(memoryview(batch(NOW_MS + number, size=100)), now_ms=NOW_MS)
    data_dir.close(NOW_MS)
    return tmp_path


@pytest.mark.parametrize("name", ["t-0", "tiered-0"])
def test_a_damaged_batch_is_given_up_and_named(
    directory: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    log = directory / name / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[180] ^= 1
    log.write_bytes(data)
    assert run(["fsck", str(directory)]) == ExitCode.DAMAGED
    capsys.readouterr()
    assert run(["fsck", "--accept-loss", name, str(directory)]) == ExitCode.OK
    shown = capsys.readouterr().out
    assert f"{name}: lost offsets 1 to 1; the bytes are kept as" in shown
    assert "the log ends at 3" in shown
    assert ("tidelog restore gives them back" in shown) == (name == "tiered-0")
    assert run(["fsck", "--accept-loss", name, "--json", str(directory)]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["lost"] == []


def test_an_unknown_partition_is_not_found(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["fsck", "--accept-loss", "u-0", str(directory)]) == ExitCode.NOT_FOUND
    assert run(["fsck", "--accept-loss", "t", str(directory)]) == ExitCode.NOT_FOUND
    assert "has no partition" in capsys.readouterr().err

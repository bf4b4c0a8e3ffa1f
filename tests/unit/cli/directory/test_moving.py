"""``export-kraft`` and ``import`` without a Kafka: what is written, refused and said."""

import json
import os
from pathlib import Path

import pytest

from cli.exit_codes import ExitCode
from cli.main import run
from config import load
from protocol.records.builder import build_batch
from protocol.records.record import Record
from storage.directory.data_dir import DataDir
from storage.disk.files import RealFiles
from storage.disk.steps import run_steps
from storage.kafka.kraft_metadata import read_cluster_metadata

NOW = 1_700_000_000_000


def open_dir(path: Path) -> DataDir:
    config = load(command_line={"log.dirs": str(path)})
    return DataDir.open(str(path), files=RealFiles(), broker_config=config, now_ms=NOW)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A data directory with a topic of two partitions, five records in the second."""
    path = tmp_path / "tide"
    data_dir = open_dir(path)
    topic = run_steps(
        data_dir.create_topic("t", 2, {"retention.ms": "5", "flush.policy": "os"}, NOW)
    )
    for i in range(5):
        batch = build_batch([Record(0, -1, None, b"%d" % i)])
        topic.logs[1].append(memoryview(bytearray(batch)), now_ms=NOW + i)
    data_dir.close(NOW + 10)
    return path


def ends(path: Path) -> dict[str, list[int]]:
    data_dir = open_dir(path)
    found = {
        name: [log.log_end_offset for log in topic.logs] for name, topic in data_dir.topics.items()
    }
    data_dir.close(NOW)
    return found


def test_there_and_back_by_copies(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kafka, back = tmp_path / "kafka", tmp_path / "back"
    assert run(["export-kraft", str(directory), str(kafka), "--json"]) == ExitCode.OK
    report = json.loads(capsys.readouterr().out)
    assert report["partitions"] == 2
    assert report["copied_bytes"] > 0
    assert any("flush.policy=os of topic t" in note for note in report["notes"])

    names = {path.name for path in kafka.iterdir()}
    assert {"t-0", "t-1", "__cluster_metadata-0", "meta.properties"} <= names
    assert ".kafka_cleanshutdown" in names
    assert not {"metadata.journal", ".lock"} & names
    assert not (kafka / "t-1" / "segment-manifest").exists()

    assert run(["import", str(kafka), str(back), "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["topics"] == 1
    original, restored = open_dir(directory), open_dir(back)
    assert restored.cluster_id == original.cluster_id
    assert restored.topics["t"].topic_id == original.topics["t"].topic_id
    assert restored.topics["t"].overrides == {"retention.ms": "5"}
    assert restored.metadata.next_producer_id == original.metadata.next_producer_id
    original.close(NOW)
    restored.close(NOW)
    assert ends(back) == ends(directory) == {"t": [0, 5]}


def test_density_files_are_not_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory, kafka = tmp_path / "tide", tmp_path / "kafka"
    data_dir = open_dir(directory)
    topic = run_steps(data_dir.create_topic("t", 1, {"time.index.variant": "minute"}, NOW))
    batch = build_batch([Record(0, NOW, None, b"v")])
    topic.logs[0].append(memoryview(bytearray(batch)), now_ms=NOW)
    data_dir.close(NOW)
    assert list(directory.glob("t-0/*.density"))

    assert run(["export-kraft", str(directory), str(kafka), "--json"]) == ExitCode.OK
    notes = json.loads(capsys.readouterr().out)["notes"]
    assert any("time.index.variant=minute of topic t" in note for note in notes)
    assert not list(kafka.glob("t-0/*.density"))
    assert run(["export-kraft", str(directory), "--in-place"]) == ExitCode.OK
    assert not list(directory.glob("t-0/*.density"))


def test_files_get_the_time_of_the_last_append(directory: Path, tmp_path: Path) -> None:
    log = "t-1/00000000000000000000.log"
    os.utime(directory / log, (1, 1))
    assert run(["export-kraft", str(directory), str(tmp_path / "kafka")]) == ExitCode.OK
    assert int((tmp_path / "kafka" / log).stat().st_mtime * 1000) == NOW + 4


def test_in_place_the_journal_decides_whose_directory_it_is(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["export-kraft", str(directory), "--in-place"]) == ExitCode.OK
    assert "node.id=1" in capsys.readouterr().out
    assert not (directory / "metadata.journal").exists()
    metadata = read_cluster_metadata(str(directory / "__cluster_metadata-0"), RealFiles())
    assert list(metadata.topics) == ["t"]
    assert run(["import", str(directory), "--in-place"]) == ExitCode.OK
    assert (directory / "metadata.journal").exists()
    assert not (directory / "__cluster_metadata-0").exists()
    assert ends(directory) == {"t": [0, 5]}


def test_second_export_in_place_replaces_what_the_first_one_left(directory: Path) -> None:
    (directory / "__cluster_metadata-0").mkdir()
    assert run(["export-kraft", str(directory), "--in-place"]) == ExitCode.OK
    assert len(list((directory / "__cluster_metadata-0").iterdir())) == 1


def test_targets_that_hold_something_are_refused(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    assert run(["export-kraft", str(directory), str(tmp_path / "full")]) == ExitCode.FAILED
    assert "not empty" in capsys.readouterr().err
    assert run(["import", str(directory), str(tmp_path / "new")]) == ExitCode.USAGE
    assert "Tidelog's already" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["export-kraft", "import"])
def test_a_target_or_in_place_but_not_both(command: str, directory: Path, tmp_path: Path) -> None:
    assert run([command, str(directory)]) == ExitCode.USAGE
    both = [command, str(directory), str(tmp_path / "x"), "--in-place"]
    assert run(both) == ExitCode.USAGE


def test_directory_in_use_is_refused(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data_dir = open_dir(directory)
    assert run(["export-kraft", str(directory), str(tmp_path / "kafka")]) == ExitCode.FAILED
    assert "another broker is using" in capsys.readouterr().err
    data_dir.close(NOW)

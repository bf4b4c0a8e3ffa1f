"""Closing many logs shares the wait, and one that fails does not keep the others open."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from config import load
from storage.directory.data_dir import DataDir
from storage.disk.files import RealFiles
from storage.disk.steps import run_steps
from storage.errors import StorageError
from tests.support.logs import batch
from tests.support.simulated_disk import Fault, Operation, SimulatedDisk

NOW_MS = 1_700_000_000_000


def filled(root: str, files: RealFiles | SimulatedDisk, partitions: int) -> DataDir:
    data_dir = DataDir.open(root, files=files, broker_config=load(), now_ms=NOW_MS)
    topic = run_steps(data_dir.create_topic("t", partitions, {}, NOW_MS))
    for log in topic.logs:
        log.append(memoryview(batch(NOW_MS)), now_ms=NOW_MS)
    return data_dir


def test_syncs_may_run_in_threads(tmp_path: Path) -> None:
    files = RealFiles()
    data_dir = filled(str(tmp_path), files, 70)
    with ThreadPoolExecutor(8) as pool:
        data_dir.close(
            NOW_MS, run_all=lambda tickets: list(pool.map(lambda t: t.run(), tickets)).clear()
        )
    assert len(files._open) == 0
    again = DataDir.open(str(tmp_path), files=files, broker_config=load(), now_ms=NOW_MS)
    assert again.stopped_cleanly
    assert {log.log_end_offset for log in again.topics["t"].logs} == {1}
    again.close(NOW_MS)


def test_the_error_of_one_log_is_raised_after_the_others_are_closed() -> None:
    disk = SimulatedDisk()
    data_dir = filled("/data", disk, 5)
    logs = data_dir.topics["t"].logs
    disk.fault = Fault(at=0, errno=5, kinds=frozenset({Operation.SYNC}))
    with pytest.raises(StorageError):
        data_dir.close(NOW_MS)
    assert [log.offline_reason for log in logs[1:]] == ["the log was closed"] * 4
    assert [log.durable_offset for log in logs] == [0, 1, 1, 1, 1]
    assert not DataDir.open(
        "/data", files=disk, broker_config=load(), now_ms=NOW_MS
    ).stopped_cleanly

"""Does a log that cannot be read answer without a file, and change nothing?"""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from protocol.records.layout import NO_TIMESTAMP
from storage.disk.steps import run_steps
from storage.errors import LogOffline, LogQuarantined
from storage.log.retention import delete_expired
from storage.log.values import Isolation
from storage.recovery.empty_files import EmptyFiles
from storage.recovery.unusable_log import missing_log
from tests.support.logs import config


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_an_unusable_log_refuses_changes_and_closes(tmp_path: Path, policy: str) -> None:
    path = str(tmp_path / "t-0")
    log = missing_log(path, "t", 0, config(cleanup_policy=policy), 7)
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)
    with pytest.raises(LogQuarantined, match="offsets up to 6 were durable in it"):
        log.roll(0)
    with pytest.raises(LogQuarantined):
        log.read(0, max_bytes=100, isolation=Isolation.READ_UNCOMMITTED)
    with pytest.raises(LogQuarantined):
        log.delete_before(0)
    with pytest.raises(LogOffline):
        log.begin_close(NO_TIMESTAMP)
    assert delete_expired(log, 10**15) == []
    assert run_steps(log.delete_pending_files(10**15)) == 0
    log.reconfigure(config(cleanup_policy=policy, time_index_variant="minute-map"))
    assert list(tmp_path.iterdir()) == []


def test_empty_files_hold_nothing_and_accept_no_change() -> None:
    files = EmptyFiles()
    file = files.create("/d/0.log")
    assert (file.size, file.pread(10, 0), files.list_directory("/d")) == (0, b"", [])
    assert not files.exists("/d/0.log")
    file.end_sync(file.begin_sync())
    changes: list[Callable[[], object]] = [
        lambda: file.append(b"x"),
        lambda: file.truncate(0),
        lambda: files.rename("/d/0.log", "/d/1.log"),
        lambda: files.replace_atomically("/d/0.log", b""),
        lambda: files.lock("/d/.lock"),
    ]
    for change in changes:
        with pytest.raises(OSError, match="Read-only") as caught:
            change()
        assert caught.value.errno == errno.EROFS
    looks: list[Any] = [files.open, files.size, files.read_all, files.unlink]
    for look in looks:
        with pytest.raises(FileNotFoundError):
            look("/d/0.log")

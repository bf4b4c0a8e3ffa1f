"""What a log holds of memory that is idle, or has little: so are most of a large broker."""

import gc
import os
import tracemalloc
from pathlib import Path

import pytest

from storage.append import plain
from storage.disk.files import RealFiles
from storage.log import log
from storage.log.log import Log
from storage.recovery.recovery import open_log
from tests.support.logs import LogHarness, batch

LOGS = 50
NAMES = 6
"""Strings of a log that begin with the path of its directory, whose length is not ours."""

OBJECTS_BYTES = 1_300 if plain.__file__.endswith(".py") else 0
"""What the values of compiled modules take more of where they run from their sources."""

BYTES_MAX = 4_050 + OBJECTS_BYTES
"""3,900 on Python 3.11 beyond those paths; 4,200 when each had empty arrays, a thousand more when
each had its own rules, report, counts and names of files."""

WRITTEN_BYTES_MAX = 4_300 + OBJECTS_BYTES
"""4,000 on Python 3.11; 4,700 when also the first record made a table of counts by time."""


def make(folder: Path, count: int) -> list[Log]:
    """Empty logs of one topic, whose settings they share."""
    config, files = LogHarness().topic_config(), RealFiles()
    logs = []
    for partition in range(count):
        path = folder / f"t-{partition}"
        path.mkdir(parents=True)
        logs.append(
            open_log(
                str(path), topic="t", partition=partition, config=config, files=files, now_ms=0,
                is_clean=True, recovery_point=0, log_start_offset=0,
            )
        )  # fmt: skip
    return logs


def test_logs_share_what_follows_from_equal_settings(tmp_path: Path) -> None:
    one, other = make(tmp_path, 1)[0], make(tmp_path / "other", 1)[0]
    assert one.config is not other.config
    assert one.append_rules is other.append_rules
    assert one.roll_rules is other.roll_rules
    assert one._auxiliary.rules is other._auxiliary.rules


def test_an_empty_log_is_small(tmp_path: Path) -> None:
    make(tmp_path / "first", 3)  # what is made once
    gc.collect()
    tracemalloc.start()
    try:
        logs = make(tmp_path, LOGS)
        held = held_by_storage(logs)
    finally:
        tracemalloc.stop()
    assert held < BYTES_MAX


def test_a_log_with_a_record_is_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for sync in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, sync, lambda _: None)  # the disk has no part in this
    write(make(tmp_path / "first", 3))
    gc.collect()
    tracemalloc.start()
    try:
        logs = make(tmp_path, LOGS)
        write(logs)
        held = held_by_storage(logs)
    finally:
        tracemalloc.stop()
    assert held < WRITTEN_BYTES_MAX


def write(logs: list[Log]) -> None:
    """Append a batch to each, and make it durable."""
    for one in logs:
        one.append(memoryview(bytearray(batch(0))), now_ms=0)
        one.flush()


def held_by_storage(logs: list[Log]) -> float:
    """Bytes that code of `storage` has allocated for each log, beyond the paths of directories.

    Threads of other tests may be at work, too.
    """
    gc.collect()
    taken = tracemalloc.take_snapshot()
    ours = taken.filter_traces([tracemalloc.Filter(True, f"{Path(log.__file__).parents[1]}/*")])
    return sum(trace.size for trace in ours.traces) / len(logs) - NAMES * len(logs[-1].path)

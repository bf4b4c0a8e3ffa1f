"""What an idle log holds of memory: most partitions of a large broker are idle."""

import gc
import tracemalloc
from pathlib import Path

from storage.disk.files import RealFiles
from storage.log.log import Log
from storage.recovery.recovery import open_log
from tests.support.logs import LogHarness

LOGS = 50
BYTES_MAX = 5_000
"""4,800 on Python 3.11; 5,800 when each had its own rules, report, counts and names of files."""


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
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held / len(logs) < BYTES_MAX

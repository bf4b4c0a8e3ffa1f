"""A lookup in sentences: which index it started from, and what that one says."""

from typing import Any

import pytest

from cli.topics.explanation import lines


def explained(index: str | None, timestamp: int = 60_000) -> str:
    search: dict[str, Any] = {
        "base_offset": 0,
        "max_timestamp": 90_000,
        "time_entry": {"timestamp": timestamp, "offset": 7},
        "offset_entry": {"offset": 6, "position": 100},
        "batches_scanned": 2,
        "records_scanned": 1,
        "bytes_read": 4_096,
    }
    if index is not None:
        search["index"] = index
    explanation = {
        "topic": "t", "partition": 0, "timestamp": 61_000, "visible": True, "segments": 1,
        "found": None, "before": None, "after": None, "bytes_read": 4_096, "searched": [search],
    }  # fmt: skip
    return "\n".join(lines(explanation))


@pytest.mark.parametrize("index", ["timeindex", None])
def test_time_index_bounds_what_lies_before(index: str | None) -> None:
    assert "time index: nothing up to offset 7 is newer than" in explained(index)


@pytest.mark.parametrize("index", ["interval", "minute"])
def test_auxiliary_index_bounds_what_lies_before_its_batch(index: str) -> None:
    assert (
        f"auxiliary index ({index}): nothing before the batch of offset 7 is as new as"
        in explained(index)
    )


def test_map_names_the_minute_to_begin_with() -> None:
    assert "auxiliary index (minute-map): the minute 1970-01-01T00:01:00" in explained("minute-map")


@pytest.mark.parametrize("index", ["timeindex", "minute"])
def test_no_entry_is_shown(index: str) -> None:
    assert "no entry before the time" in explained(index, timestamp=-1)

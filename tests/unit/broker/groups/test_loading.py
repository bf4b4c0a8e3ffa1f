from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from broker.groups import loading
from broker.groups.internal_topic import KeyValue, StoredBatch
from broker.groups.later import Later
from broker.groups.offsets.records import (
    CommittedOffset,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
)
from broker.groups.offsets.store import OffsetTable
from protocol.stored.group_log import GroupMetadataValue

TP = ("t", 0)


def _everywhere(group_id: str) -> bool:
    return True


def _offset(offset: int | None, group_id: str = "g") -> KeyValue:
    value = None
    if offset is not None:
        value = encode_offset_value(CommittedOffset(offset, -1, "", 0))
    return encode_offset_key(group_id, *TP), value


def _plain(*records: KeyValue) -> StoredBatch:
    return StoredBatch(-1, False, None, records)


def _transactional(producer_id: int, *records: KeyValue) -> StoredBatch:
    return StoredBatch(producer_id, True, None, records)


def _marker(producer_id: int, *, is_commit: bool) -> StoredBatch:
    return StoredBatch(producer_id, True, is_commit, ())


def _loaded(*batches: StoredBatch) -> OffsetTable:
    table = OffsetTable()
    loading.load(batches, table)
    return table


def test_does_the_newest_record_win() -> None:
    table = _loaded(_plain(_offset(1), _offset(2)), _plain(_offset(3)))
    assert table.of_group("g")[TP].offset == 3


def test_does_a_tombstone_delete() -> None:
    assert not _loaded(_plain(_offset(1)), _plain(_offset(None))).has_offsets("g")


def test_does_a_committed_transaction_count_from_its_marker() -> None:
    table = _loaded(_plain(_offset(1)), _transactional(7, _offset(5)), _marker(7, is_commit=True))
    assert table.of_group("g")[TP].offset == 5


def test_does_an_aborted_transaction_not_count() -> None:
    table = _loaded(_plain(_offset(1)), _transactional(7, _offset(5)), _marker(7, is_commit=False))
    assert table.of_group("g")[TP].offset == 1


def test_is_an_open_transaction_pending_after_loading() -> None:
    table = _loaded(_plain(_offset(1)), _transactional(7, _offset(5)))
    assert table.is_unstable("g", TP)
    table.complete(7, is_commit=True, has_ended=_everywhere)
    assert table.of_group("g")[TP].offset == 5


def test_does_a_plain_record_in_between_win() -> None:
    table = _loaded(_transactional(7, _offset(5)), _plain(_offset(9)), _marker(7, is_commit=True))
    assert table.of_group("g")[TP].offset == 9


def test_is_a_marker_of_a_stranger_nothing() -> None:
    assert not _loaded(_marker(9, is_commit=True)).has_offsets("g")


def test_is_a_group_loaded() -> None:
    group = GroupMetadataValue(protocol_type="consumer", generation=3, current_state_timestamp=7)
    batch = _plain((encode_group_key("g"), encode_group_value(group)))
    loaded = loading.load([batch], OffsetTable())
    assert loaded.groups["g"] == group


def test_are_strange_records_skipped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    strange: KeyValue = (b"\x00\x03\x00\x01g", b"\x00\x00")
    with caplog.at_level(logging.WARNING):
        loaded = loading.load([_plain(strange, _offset(1))], table := OffsetTable())
    assert loaded.skipped == 1
    assert "1 records" in caplog.text
    assert table.of_group("g")[TP].offset == 1


def test_a_start_does_not_load_the_code_of_later_groups() -> None:
    """It takes a twentieth of a start; the first record or request of such a group loads it."""
    later = ("loading_later", "streams.group", "streams.values", "share.group", "share.records")
    script = (
        "import sys, broker.server\n"
        f"print([name for name in {later} if f'broker.groups.{{name}}' in sys.modules])\n"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout
    assert loaded == "[]\n"


def test_a_later_module_is_loaded_by_its_first_name() -> None:
    sys.modules.pop("colorsys", None)
    colours = Later("colorsys")
    assert "colorsys" not in sys.modules
    assert colours.rgb_to_hls(0, 0, 0) == (0, 0, 0)
    assert colours.rgb_to_hls is sys.modules["colorsys"].rgb_to_hls
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = colours.no_such_name

"""Scans of whole segments: what they accept, where they stop, and indexes made from them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.errors import CorruptLog
from storage.segment_scan import SCAN_CHUNK_BYTES, SegmentScan, ensure_indexes, rebuild_indexes
from tests.support.logs import (
    add,
    add_at_end,
    batch,
    new_segment,
    offset_entries,
    time_entries,
)


@settings(max_examples=100, deadline=None)
@given(
    batches=st.lists(st.tuples(st.integers(-1, 50), st.integers(70, 400)), min_size=1, max_size=25),
    interval=st.sampled_from([0, 100, 350, 1000]),
)
def test_rebuilt_indexes_equal_those_of_the_appends(
    batches: list[tuple[int, int]], interval: int
) -> None:
    segment = new_segment(7)
    for timestamp, size in batches:
        add_at_end(segment, timestamp, size=size + 70, interval=interval)
    segment.seal(now_ms=0)
    before = (
        offset_entries(segment),
        time_entries(segment),
        segment.max_timestamp,
        segment.max_timestamp_offset,
        segment.next_offset,
        segment.records,
    )
    rebuild_indexes(segment, index_interval=interval)
    assert before == (
        offset_entries(segment),
        time_entries(segment),
        segment.max_timestamp,
        segment.max_timestamp_offset,
        segment.next_offset,
        segment.records,
    )


def test_every_flipped_bit_under_the_checksum_stops_the_scan() -> None:
    good = batch(1)
    for position in range(12, len(good)):
        if 12 <= position < 16:
            continue  # the leader epoch, which no checksum covers
        segment = new_segment()
        add_at_end(segment, 1)
        damaged = bytearray(batch(2, base_offset=1))
        damaged[position] ^= 0x10
        segment.log.append(damaged)
        scan = SegmentScan(segment, check_crc=True)
        assert [entry.last_offset for entry in scan] == [0]
        assert (scan.end.valid_bytes, scan.end.next_offset) == (len(good), 1)
        assert scan.end.damage is not None


@pytest.mark.parametrize("base_offset", [0, 2**31 + 10])
def test_offsets_that_go_back_or_too_far_are_damage(base_offset: int) -> None:
    segment = new_segment()
    add_at_end(segment, 1)
    segment.log.append(batch(1, base_offset=base_offset))
    scan = SegmentScan(segment, check_crc=True)
    assert len(list(scan)) == 1
    assert "last offset" in str(scan.end.damage)


def test_entries_larger_than_a_chunk_are_read() -> None:
    segment = new_segment()
    for size in (100, 3 * SCAN_CHUNK_BYTES, 100, SCAN_CHUNK_BYTES):
        add_at_end(segment, 1, size=size)
    scan = SegmentScan(segment, check_crc=True)
    assert [len(scan.bytes_of(entry)) for entry in scan] == [
        100,
        3 * SCAN_CHUNK_BYTES,
        100,
        SCAN_CHUNK_BYTES,
    ]
    assert scan.end.damage is None


def test_damaged_log_cannot_give_indexes() -> None:
    segment = new_segment()
    add_at_end(segment, 1)
    segment.log.append(bytes(70))
    with pytest.raises(CorruptLog):
        rebuild_indexes(segment, index_interval=0)
    assert segment.next_offset == 1


def test_verified_indexes_are_not_looked_at_again() -> None:
    segment = new_segment()
    add(segment, batch(1))
    segment.seal(now_ms=0)
    segment.offset_index.truncate_to(0)
    assert ensure_indexes(segment, index_interval=0) is None
    segment.indexes_verified = False
    segment._facts = None
    segment.time_index.clear()
    assert "ends with (-1, 0)" in str(ensure_indexes(segment, index_interval=0))
    assert time_entries(segment) == [(1, 0)]

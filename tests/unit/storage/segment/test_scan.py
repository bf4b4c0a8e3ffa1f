"""Scans of whole segments: what they accept, where they stop, and indexes made from them."""

from collections.abc import Callable, Iterable
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.records.batch import RecordBatch
from protocol.records.scan import Entry
from storage.errors import CorruptLog
from storage.segment import scan as segment_scan
from storage.segment.scan import (
    SCAN_CHUNK_BYTES,
    SegmentDigest,
    SegmentScan,
    ensure_indexes,
    rebuild_indexes,
)
from storage.segment.segment import Segment
from tests.support.logs import (
    add,
    add_at_end,
    batch,
    disk,
    new_segment,
    offset_entries,
    produced,
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
    segment.offset_index.clear()
    assert ensure_indexes(segment, index_interval=0) is None
    segment.indexes_verified = False
    segment._facts = None
    segment.time_index.clear()
    assert "ends with (-1, 0)" in str(ensure_indexes(segment, index_interval=0))
    assert time_entries(segment) == [(1, 0)]


def digested(segment: Segment, *, interval: int = 0) -> SegmentDigest:
    digest = SegmentDigest(segment, index_interval=interval, check_crc=True)
    for _ in digest:
        pass
    return digest


@pytest.mark.parametrize("chunk_bytes", [200, 1000, SCAN_CHUNK_BYTES])
@pytest.mark.parametrize("interval", [0, 150, 4096])
def test_a_digest_finds_what_appends_had_made(
    chunk_bytes: int, interval: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_scan, "SCAN_CHUNK_BYTES", chunk_bytes)
    segment = new_segment(7)
    for number in range(40):
        add_at_end(segment, (number * 37) % 50, 3, interval=interval, size=90 + number % 20)
    segment.seal(now_ms=0)
    before = (
        offset_entries(segment),
        time_entries(segment),
        segment.max_timestamp,
        segment.max_timestamp_offset,
        segment.next_offset,
        segment.records,
    )
    end = digested(segment, interval=interval).end
    after = (
        offset_entries(segment),
        time_entries(segment),
        segment.max_timestamp,
        segment.max_timestamp_offset,
        segment.next_offset,
        segment.records,
    )
    assert after == before
    assert (end.valid_bytes, end.damage) == (segment.size, None)


def test_a_digest_stops_where_a_scan_does() -> None:
    good = bytes(batch(1, 2))
    after = bytes(batch(3, base_offset=2))
    for tail in (
        b"",
        after[:9],
        after[:40],
        bytes(70),
        batch(9, base_offset=0),
        batch(9, base_offset=2**31 + 10),
        bytes([*after[:65], after[65] ^ 1, *after[66:]]),
        after,
    ):
        segment = new_segment()
        segment.log.append(good + bytes(tail))
        scan = SegmentScan(segment, check_crc=True)
        scanned = len(list(scan))
        end = digested(segment).end
        assert (end.valid_bytes, end.next_offset) == (scan.end.valid_bytes, scan.end.next_offset)
        assert (end.damage is None) == (scan.end.damage is None)
        assert scanned == 1 + (tail == after)


def test_a_digest_tells_of_producers_and_of_new_epochs() -> None:
    segment = new_segment()
    plain = [batch(1, base_offset=n, leader_epoch=e) for n, e in ((0, 3), (1, 3), (2, 4))]
    own = produced(5, producer_id=9, sequence=0)
    RecordBatch(own).stamp_position(3, 4)
    segment.log.append(b"".join((*plain, own)))
    digest = SegmentDigest(segment, index_interval=0, check_crc=True, epoch=3)
    notable = [(e.base_offset, e.producer_id, len(digest.bytes_of(e))) for e in digest]
    assert notable == [(2, -1, len(plain[2])), (3, 9, len(own))]


@pytest.mark.parametrize("scan", [SegmentScan, partial(SegmentDigest, index_interval=0)])
def test_a_file_that_has_become_shorter_is_an_error(scan: Callable[..., Iterable[Entry]]) -> None:
    files = disk()
    segment = new_segment(files=files)
    for timestamp in range(5):
        add_at_end(segment, timestamp)
    files.open(segment.log.path).truncate(100)
    with pytest.raises(OSError, match="ends at byte 100"):
        list(scan(segment, check_crc=True))

"""Walking over heads: sizes, jumps, block borders, all three formats."""

import pytest

from protocol.records.layout import Codec
from protocol.records.scan import scan_entries
from storage.segment.entry_heads import WALK_BLOCK_BYTES
from storage.segment.segment import Segment
from tests.support.logs import add, add_at_end, messages, new_segment


def mixed_segment() -> Segment:
    segment = new_segment()
    add(segment, messages(-1, -1, magic=0))
    add(segment, messages(5, 6, base_offset=2, magic=1))
    add(segment, messages(7, 9, 8, base_offset=4, magic=1, codec=Codec.GZIP))
    for size in (
        70,
        200,
        WALK_BLOCK_BYTES - 10,
        WALK_BLOCK_BYTES,
        3 * WALK_BLOCK_BYTES,
        90,
        61 + 30,
    ):
        add_at_end(segment, 10 * size, 1, size=size + 20)
    return segment


def test_heads_equal_a_scan_of_all_bytes() -> None:
    segment = mixed_segment()
    data = segment.log.pread(segment.size, 0)
    assert list(segment.walk().heads(0)) == list(scan_entries(data))


def test_bytes_of_an_entry_come_from_the_block_or_the_file() -> None:
    segment = mixed_segment()
    data = segment.log.pread(segment.size, 0)
    walk = segment.walk()
    heads = list(walk.heads(0))
    assert len(heads) == 12
    for head in heads:
        assert walk.entry(head) == data[head.position : head.position + head.size]
    assert walk.bytes_read < 3 * segment.size


def test_find_equals_brute_force_from_every_start() -> None:
    segment = mixed_segment()
    heads = list(segment.walk().heads(0))
    for start in heads:
        for offset in range(22):
            for timestamp in (-1, 0, 9, 900, 2200, 10**6):
                wanted = (
                    head
                    for head in heads
                    if head.position >= start.position
                    and head.last_offset >= offset
                    and head.max_timestamp >= timestamp
                )
                found = segment.walk().find(start.position, offset=offset, timestamp=timestamp)
                assert found == next(wanted, None)


def test_large_batches_are_jumped_over() -> None:
    segment = new_segment()
    for timestamp in range(10):
        add_at_end(segment, timestamp, size=100_000)
    walk = segment.walk()
    assert walk.find(0, offset=9) is not None
    assert walk.bytes_read <= 10 * WALK_BLOCK_BYTES


@pytest.mark.parametrize("end", [0, 80])
def test_walk_ends_at_its_limit(end: int) -> None:
    segment = new_segment()
    for timestamp in range(3):
        add_at_end(segment, timestamp, size=80)
    assert len(list(segment.walk(end).heads(0))) == end // 80
    assert segment.walk(end).find(0, offset=2) is None


def test_file_shorter_than_promised_is_an_error() -> None:
    segment = new_segment()
    add_at_end(segment, 1, size=80)
    walk = segment.walk(160)
    with pytest.raises(Exception, match="expected"):
        walk.head(80)

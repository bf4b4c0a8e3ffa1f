"""`segment-manifest`: what it remembers, byte for byte, and what it does not trust."""

from dataclasses import replace

import pytest

from storage.segment.manifest import (
    OUTDATED_MAX,
    UNKNOWN_MAXIMUM,
    UNKNOWN_MINIMUM,
    Manifest,
    SegmentFacts,
)
from tests.support.logs import DIRECTORY, disk
from tests.support.simulated_disk import Fault, Operation

PATH = f"{DIRECTORY}/segment-manifest"
FACTS = SegmentFacts(
    base_offset=0,
    next_offset=3,
    size_bytes=210,
    max_timestamp=9,
    max_timestamp_offset=1,
    first_timestamp=5,
    appended_ms=77,
    records=3,
    offset_index_bytes=16,
    time_index_bytes=24,
    txn_index_bytes=0,
    offset_index_crc=123,
    time_index_crc=456,
    min_timestamp=4,
    data_max_timestamp=8,
)


def test_golden_bytes() -> None:
    files = disk()
    manifest = Manifest(DIRECTORY, files)
    manifest.remember(FACTS)
    manifest.remember_start(1)
    manifest.remember_durable(2)
    assert files.read_all(PATH).decode() == (
        "tidelog segment manifest 1\n"
        "segment base_offset=0 next_offset=3 size_bytes=210 max_timestamp=9 max_timestamp_offset=1 "
        "first_timestamp=5 appended_ms=77 records=3 offset_index_bytes=16 time_index_bytes=24 "
        "txn_index_bytes=0 offset_index_crc=123 time_index_crc=456 "
        "min_timestamp=4 data_max_timestamp=8 5c0e72d6\n"
        "start offset=1 81e12222\n"
        "durable offset=2 ef1aab0e\n"
    )


def test_line_of_a_release_that_had_no_minimum_is_trusted() -> None:
    files = disk()
    files.replace_atomically(
        PATH,
        b"tidelog segment manifest 1\n"
        b"segment base_offset=0 next_offset=3 size_bytes=210 max_timestamp=9 "
        b"max_timestamp_offset=1 first_timestamp=5 appended_ms=77 records=3 offset_index_bytes=16 "
        b"time_index_bytes=24 txn_index_bytes=0 offset_index_crc=123 time_index_crc=456 2f106cfb\n",
    )
    assert Manifest(DIRECTORY, files).facts[0] == replace(
        FACTS, min_timestamp=UNKNOWN_MINIMUM, data_max_timestamp=UNKNOWN_MAXIMUM
    )


def test_what_was_remembered_is_read_again() -> None:
    files = disk()
    manifest = Manifest(DIRECTORY, files)
    manifest.remember(FACTS)
    manifest.remember(replace(FACTS, base_offset=3, next_offset=5))
    manifest.remember(replace(FACTS, size_bytes=999))
    manifest.remember_start(2)
    manifest.remember_durable(4)
    manifest.remember_durable(3)
    manifest.remember_cleaned(1)
    again = Manifest(DIRECTORY, files)
    assert again.facts == manifest.facts
    assert again.facts[0].size_bytes == 999
    assert (again.log_start_offset, again.durable_offset, again.cleaned_offset) == (2, 4, 1)


def test_rewriting_drops_what_is_gone() -> None:
    files = disk()
    manifest = Manifest(DIRECTORY, files)
    manifest.remember(FACTS)
    manifest.remember(replace(FACTS, base_offset=3))
    manifest.remember_start(3)
    manifest.remember_durable(3)
    manifest.drop([0, 77])
    manifest.rewrite()
    assert len(files.read_all(PATH).splitlines()) == 4
    manifest.remember(replace(FACTS, base_offset=5))
    assert sorted(Manifest(DIRECTORY, files).facts) == [3, 5]


def test_every_torn_tail_keeps_the_lines_before() -> None:
    files = disk()
    manifest = Manifest(DIRECTORY, files)
    manifest.remember(FACTS)
    whole = files.size(PATH)
    manifest.remember(replace(FACTS, base_offset=3))
    content = files.read_all(PATH)
    for size in range(len(content)):
        files.replace_atomically(PATH, content[:size])
        known = sorted(Manifest(DIRECTORY, files).facts)
        assert known == ([] if size < whole - 1 else [0] if size < len(content) - 1 else [0, 3])


@pytest.mark.parametrize(
    "content", [b"", b"something else\n", b"tidelog segment manifest 2\nx 0\n"]
)
def test_another_file_is_not_trusted(content: bytes) -> None:
    files = disk()
    files.replace_atomically(PATH, content)
    manifest = Manifest(DIRECTORY, files)
    assert (manifest.facts, manifest.log_start_offset, manifest.file) == ({}, -1, None)


def test_failed_append_leaves_whole_lines() -> None:
    files = disk()
    manifest = Manifest(DIRECTORY, files)
    manifest.remember(FACTS)
    files.fault = Fault(at=0, kinds=frozenset({Operation.APPEND}), short_write=True)
    with pytest.raises(OSError, match="error"):
        manifest.remember_start(7)
    manifest.remember_start(8)
    assert Manifest(DIRECTORY, files).log_start_offset == 8


def test_half_a_heading_is_not_left() -> None:
    files = disk()
    manifest = Manifest(DIRECTORY, files)
    files.fault = Fault(at=0, kinds=frozenset({Operation.APPEND}), short_write=True)
    with pytest.raises(OSError, match="error"):
        manifest.remember(FACTS)
    manifest.remember_start(8)
    assert Manifest(DIRECTORY, files).log_start_offset == 8


def test_after_a_failed_sync_the_file_is_rewritten() -> None:
    files = disk()
    manifest = Manifest(DIRECTORY, files)
    manifest.remember(FACTS)
    manifest.distrust()
    files.damage(PATH, 40, bytes(50))
    manifest.remember_start(2)
    again = Manifest(DIRECTORY, files)
    assert again.facts == {0: FACTS}
    assert again.log_start_offset == 2


def test_outdated_lines_do_not_pile_up() -> None:
    files = disk()
    manifest = Manifest(DIRECTORY, files)
    manifest.remember(FACTS)
    for offset in range(5 * OUTDATED_MAX):
        manifest.remember_durable(offset)
    assert files.read_all(PATH).count(b"\n") <= OUTDATED_MAX + 8
    again = Manifest(DIRECTORY, files)
    assert (again.facts, again.durable_offset) == ({0: FACTS}, 5 * OUTDATED_MAX - 1)

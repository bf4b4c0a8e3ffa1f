"""`segment-manifest`: what it remembers, byte for byte, and what it does not trust."""

from dataclasses import replace

import pytest

from storage.segment import manifest as manifest_module
from storage.segment.facts import UNKNOWN_MAXIMUM, UNKNOWN_MINIMUM, RemoteObject, SegmentFacts
from storage.segment.manifest import OUTDATED_MAX, Manifest, format_manifest
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


def rewritten(content: bytes, *gone: int, start: int | None = None) -> tuple[bytes, int]:
    """What a start writes over a file with `content`, and how many facts it formats for it."""
    files, formatted = disk(), 0
    files.replace_atomically(PATH, content)
    manifest = Manifest(DIRECTORY, files)

    def counted(facts: SegmentFacts) -> str:
        nonlocal formatted
        formatted += 1
        return line(facts)

    line = manifest_module._segment_line
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest_module, "_segment_line", counted)
        manifest.drop(gone)
        if start is not None:
            manifest.log_start_offset = start
        manifest.rewrite()
    again = Manifest(DIRECTORY, files)
    assert again.is_whole
    assert (again.facts, again.log_start_offset) == (manifest.facts, manifest.log_start_offset)
    return files.read_all(PATH), formatted


def test_a_rewrite_takes_the_lines_that_were_read() -> None:
    second = replace(FACTS, base_offset=3, next_offset=6)
    lines = [manifest_module._segment_line(facts) for facts in (FACTS, second)]
    whole = format_manifest(lines, 0)
    assert rewritten(whole) == (whole, 0)
    assert rewritten(whole, 9) == (whole, 0)
    assert rewritten(whole, start=2) == (format_manifest(lines, 2), 0)
    # Of these not all lines are current, or known: each fact is written once, and nothing else.
    gone, formatted = rewritten(whole, 3)
    assert formatted == 1
    assert gone == format_manifest(lines[:1], 0)
    for former in (
        whole + lines[0].encode(),
        whole + manifest_module._line("later offset=7").encode(),
        whole + b"start offset=1 8",
        format_manifest([], 0) + "".join(lines).encode(),
    ):
        assert rewritten(former) == (whole, 2)


def test_facts_that_come_after_the_reading_are_in_the_rewrite() -> None:
    files = disk()
    files.replace_atomically(PATH, format_manifest([manifest_module._segment_line(FACTS)], 0))
    manifest = Manifest(DIRECTORY, files)
    second = replace(FACTS, base_offset=3, next_offset=6)
    manifest.remember(second)
    manifest.rewrite()
    assert Manifest(DIRECTORY, files).facts == {0: FACTS, 3: second}


@pytest.mark.parametrize("damage", [b"", b"x", b"x\n", b"segment base_offset=3", b"\n"])
def test_nothing_is_added_after_a_line_that_cannot_be_read(damage: bytes) -> None:
    """A clean stop leaves no such file, but a copy or a medium may: the next start reads all."""
    files = disk()
    content = format_manifest([manifest_module._segment_line(FACTS)], 2)
    files.replace_atomically(PATH, content + damage if damage else content[:-1])
    manifest = Manifest(DIRECTORY, files)
    manifest.remember_durable(3)
    again = Manifest(DIRECTORY, files)
    assert (again.facts, again.log_start_offset, again.durable_offset) == ({0: FACTS}, 2, 3)
    assert again.is_whole


WHERE = RemoteObject(
    base_offset=0,
    next_offset=3,
    log_bytes=210,
    object_bytes=400,
    crc=5,
    epoch=0,
    nonce=11,
    topic_id=7,
    partition=0,
)


@pytest.mark.parametrize("is_rewritten", [False, True])
def test_an_erased_object_takes_none_back_that_came_after_it(is_rewritten: bool) -> None:
    """A rewrite leaves the object out, and the line that takes it back follows all the same."""
    files, later = disk(), replace(WHERE, nonce=12)
    manifest = Manifest(DIRECTORY, files)
    manifest.remember(FACTS)
    manifest.remember_remote(WHERE)
    manifest.supersede([0])
    manifest.remember_remote(later)
    if is_rewritten:
        manifest.distrust()
    manifest.remember_erased(WHERE)
    again = Manifest(DIRECTORY, files)
    assert (again.remote, again.superseded) == ({0: later}, {})
    again.remember_erased(later)
    assert Manifest(DIRECTORY, files).remote == {}


def test_an_erased_line_of_an_early_release_names_a_base_offset() -> None:
    lines = [
        manifest_module._object_line("remote", WHERE),
        manifest_module._line("erased base_offset=0"),
    ]
    files = disk()
    files.replace_atomically(PATH, format_manifest(lines, 0))
    assert Manifest(DIRECTORY, files).remote == {}


@pytest.mark.parametrize("heading", [b"", b"tidelog segment manifest 7", b"\0" * 26])
def test_a_damaged_heading_is_replaced_by_the_next_line(heading: bytes) -> None:
    files = disk()
    files.replace_atomically(PATH, heading + b"\n")
    manifest = Manifest(DIRECTORY, files)
    assert not manifest.is_whole
    manifest.remember(FACTS)
    again = Manifest(DIRECTORY, files)
    assert again.is_whole
    assert again.facts == {0: FACTS}


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

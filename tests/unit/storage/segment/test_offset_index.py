"""`.index`: floor lookups, the file's bytes, and what happens at its edges."""

import pytest

from storage.segment.feed import TAIL_ENTRIES_MAX
from storage.segment.offset_index import OffsetIndex, OffsetPosition
from tests.support.logs import DIRECTORY, disk
from tests.support.simulated_disk import SimulatedDisk

PATH = f"{DIRECTORY}/00000000000000000040.index"


def index(*entries: tuple[int, int], files: SimulatedDisk | None = None) -> OffsetIndex:
    made = OffsetIndex(disk() if files is None else files, PATH, 40)
    for offset, position in entries:
        made.append(offset, position)
    return made


def test_empty_index_answers_the_base() -> None:
    assert index().floor(99) == OffsetPosition(40, 0)
    assert index().last() == OffsetPosition(40, 0)


@pytest.mark.parametrize("written", [False, True])
def test_floor_is_the_last_entry_not_above(written: bool) -> None:
    made = index((47, 4200), (52, 8300))
    if written:
        made.write_out()
    assert made.floor(46) == (40, 0)
    assert made.floor(47) == (47, 4200)
    assert made.floor(51) == (47, 4200)
    assert made.floor(2**62) == (52, 8300)
    assert made.floor(0) == (40, 0)


@pytest.mark.parametrize("written", [False, True])
def test_the_entries_for_a_range_have_two_before_and_one_after(written: bool) -> None:
    entries = [(40 + number, 100 * number) for number in range(1, 10)]
    files = disk()
    made = index(*entries[:6], files=files)
    if written:
        made.write_out()
    for entry in entries[6:]:
        made.append(*entry)
    for start in range(0, 1000, 50):
        for end in range(start + 1, 1100, 77):
            inside = [at for at, (_, place) in enumerate(entries) if start <= place < end]
            first = next((at for at, (_, place) in enumerate(entries) if place >= start), 9)
            last = inside[-1] if inside else first - 1
            assert made.between(start, end) == entries[max(0, first - 2) : last + 2]
    assert index().between(0, 100) == []


def test_golden_bytes() -> None:
    files = disk()
    index((47, 4200), files=files).write_out()
    assert files.read_all(PATH).hex() == "0000000700001068"


@pytest.mark.parametrize("entry", [(47, 9000), (46, 9000), (39, 9000), (40 + 2**31, 9000)])
def test_append_of_an_offset_that_is_not_above_or_does_not_fit_is_a_bug(
    entry: tuple[int, int],
) -> None:
    with pytest.raises(AssertionError):
        index((47, 4200)).append(*entry)


def test_largest_relative_offset_fits() -> None:
    made = index((40 + 2**31 - 1, 5))
    made.write_out()
    assert made.last() == (40 + 2**31 - 1, 5)


def test_full_when_the_configured_bytes_are_used() -> None:
    made = index((41, 1), (42, 2))
    assert made.is_full(16)
    assert made.is_full(23)
    assert not made.is_full(24)


def test_many_entries_are_found_in_the_file_and_in_memory() -> None:
    files = disk()
    made = index(files=files)
    for slot in range(3 * TAIL_ENTRIES_MAX):
        made.append(40 + 3 * slot, 10 * slot)
        if slot == 2 * TAIL_ENTRIES_MAX:
            assert made.wants_writing
            made.write_out()
    for slot in range(3 * TAIL_ENTRIES_MAX):
        for offset in range(40 + 3 * slot, 43 + 3 * slot):
            assert made.floor(offset) == (40 + 3 * slot, 10 * slot)
    made.write_out()
    again = OffsetIndex(files, PATH, 40)
    assert again.count == 3 * TAIL_ENTRIES_MAX
    assert again.find_disorder() is None
    assert again.checksum() == made.checksum()


def test_rest_of_a_torn_write_is_not_an_entry_and_is_reported() -> None:
    files = disk()
    index((47, 4200), files=files).write_out()
    files.open(PATH).append(b"\0\0\0")
    torn = OffsetIndex(files, PATH, 40)
    assert torn.count == 1
    assert "multiple of 8" in str(torn.find_disorder())
    torn.append(50, 5000)
    torn.write_out()
    assert files.size(PATH) == 16
    assert torn.find_disorder() is None


def test_zero_padding_is_disorder() -> None:
    files = disk()
    index((47, 4200), files=files).write_out()
    files.open(PATH).append(bytes(80))
    assert "follows (7, 4200)" in str(OffsetIndex(files, PATH, 40).find_disorder())


def test_write_out_of_nothing_makes_the_file() -> None:
    files = disk()
    made = index(files=files)
    assert not files.exists(PATH)
    made.write_out()
    assert files.read_all(PATH) == b""


def test_index_that_ends_before_its_entries_raises() -> None:
    files = disk()
    made = index((47, 4200), files=files)
    made.write_out()
    files.open(PATH).truncate(0)
    with pytest.raises(OSError, match="has entries after"):
        made.floor(50)


def test_clear_and_close_forget() -> None:
    made = index((47, 4200))
    made.write_out()
    made.append(48, 5000)
    made.clear()
    assert made.count == 0
    made.close()
    index().close()

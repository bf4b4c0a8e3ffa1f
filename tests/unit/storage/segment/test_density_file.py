"""The side file: its bytes, and what is believed of them."""

import pytest

from protocol.records.checksums import crc32c
from storage.segment.density_file import (
    ENTRY,
    HEADER,
    SEAL,
    Coverage,
    DamagedDensity,
    DensityFile,
    DensityHeader,
    parse_density,
)
from tests.support.logs import DIRECTORY, disk
from tests.support.simulated_disk import Fault, Operation, SimulatedDisk

PATH = f"{DIRECTORY}/00000000000000000000.density"
HEADER_MADE = DensityHeader(variant=1, interval_ms=60_000, carried_ms=-1)
COVERAGE = Coverage(1_000, 42, 120_000)
ENTRIES = ENTRY.pack(60_000, 3) + ENTRY.pack(120_000, 41)


def sealed(files: SimulatedDisk) -> DensityFile:
    file = DensityFile(files, PATH, HEADER_MADE)
    file.append(ENTRIES)
    file.seal(COVERAGE)
    return file


def with_sum(body: bytes) -> bytes:
    return body + crc32c(body).to_bytes(4, "big")


def test_bytes_are_as_documented() -> None:
    files = disk()
    sealed(files)
    header = with_sum(b"TLDX" + bytes([1, 1, 0, 0]) + (60_000).to_bytes(8, "big") + b"\xff" * 8)
    entries = bytes.fromhex("000000000000ea60 00000003 000000000001d4c0 00000029")
    seal = with_sum(
        b"TLDS"
        + bytes.fromhex("00000002 00000000000003e8 000000000000002a 000000000001d4c0")
        + crc32c(header + entries).to_bytes(4, "big")
    )
    assert files.read_all(PATH) == header + entries + seal
    assert (len(header), len(seal)) == (28, 40)


def test_sealed_file_is_believed_for_the_log_it_covers() -> None:
    files = disk()
    sealed(files)
    loaded = DensityFile.load(files, PATH, COVERAGE)
    assert loaded.header == HEADER_MADE
    assert list(loaded.entries()) == [(60_000, 3), (120_000, 41)]


@pytest.mark.parametrize(
    "coverage",
    [COVERAGE._replace(size_bytes=1_001), COVERAGE._replace(next_offset=43),
     COVERAGE._replace(max_timestamp=120_001)],
)  # fmt: skip
def test_file_of_a_log_that_has_changed_is_not_believed(coverage: Coverage) -> None:
    files = disk()
    sealed(files)
    with pytest.raises(DamagedDensity, match="covers"):
        DensityFile.load(files, PATH, coverage)


def test_file_without_a_seal_is_not_believed() -> None:
    files = disk()
    DensityFile(files, PATH, HEADER_MADE).append(ENTRIES)
    with pytest.raises(DamagedDensity, match="covers None"):
        DensityFile.load(files, PATH, COVERAGE)


def test_no_bit_can_flip_unseen() -> None:
    files = disk()
    sealed(files)
    good = files.read_all(PATH)
    for position in range(len(good)):
        bad = bytearray(good)
        bad[position] ^= 0x10
        try:
            content = parse_density(bytes(bad))
        except DamagedDensity:
            continue
        # Only the mark of the seal can go, and then there is none.
        assert content.coverage is None


@pytest.mark.parametrize("entries", [ENTRIES, b""])
def test_no_cut_goes_unseen(entries: bytes) -> None:
    files = disk()
    file = DensityFile(files, PATH, HEADER_MADE)
    file.append(entries)
    file.seal(COVERAGE)
    good = files.read_all(PATH)
    for size in range(len(good)):
        files.replace_atomically(PATH, good[:size])
        with pytest.raises(DamagedDensity):
            DensityFile.load(files, PATH, COVERAGE)


def test_appending_takes_the_seal_off() -> None:
    files = disk()
    file = sealed(files)
    file.append(ENTRY.pack(180_000, 50))
    assert files.size(PATH) == HEADER.size + 3 * ENTRY.size
    file.seal(COVERAGE._replace(next_offset=51))
    assert files.size(PATH) == HEADER.size + 3 * ENTRY.size + SEAL.size
    assert file.size_bytes == files.size(PATH)


def test_sealing_again_changes_nothing() -> None:
    files = disk()
    file = sealed(files)
    files.fault = Fault(at=0)
    file.seal(COVERAGE)


def test_writing_begins_a_file_anew() -> None:
    files = disk()
    files.create(PATH).append(b"from before")
    file = sealed(files)
    assert DensityFile.load(files, PATH, COVERAGE).count == file.count


def test_failed_write_is_tried_again_at_the_same_place() -> None:
    files = disk()
    file = sealed(files)
    files.fault = Fault(at=0, kinds=frozenset({Operation.APPEND}), short_write=True)
    with pytest.raises(OSError, match="t-0"):
        file.append(ENTRY.pack(180_000, 50))
    file.append(ENTRY.pack(180_000, 50))
    file.seal(COVERAGE)
    loaded = DensityFile.load(files, PATH, COVERAGE)
    assert [time for time, _ in loaded.entries()] == [60_000, 120_000, 180_000]


def test_version_that_is_not_known_is_not_read() -> None:
    header = bytearray(HEADER_MADE.encode())
    header[4] = 2
    with pytest.raises(DamagedDensity, match="version 2"):
        parse_density(with_sum(bytes(header[:-4])))

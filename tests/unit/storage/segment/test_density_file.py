"""The density file: its bytes, and when it is trusted."""

import pytest

from protocol.records.checksums import crc32c
from storage.segment.auxiliary_index import Coverage, DamagedAuxiliaryIndex
from storage.segment.density import (
    ENTRY,
    HEADER,
    MS_PER_MINUTE,
    SEAL,
    DensityIndex,
    DensityRule,
    Variant,
    encode_header,
    encode_seal,
    parse_density,
)
from tests.support.logs import DIRECTORY, disk, one_record
from tests.support.simulated_disk import Fault, Operation, SimulatedDisk

PATH = f"{DIRECTORY}/00000000000000000000.density"
MIN = MS_PER_MINUTE
COVERAGE = Coverage(1_000, 42, 120_000)
NEXT = Coverage(1_100, 51, 180_000)


def opened(files: SimulatedDisk) -> DensityIndex:
    return DensityRule(variant=Variant.INTERVAL, interval_ms=MIN).create(files, PATH, 0, -1)


def sealed(files: SimulatedDisk) -> DensityIndex:
    """Two entries, (60000, 3) and (120000, 41), for the log that `COVERAGE` describes."""
    index = opened(files)
    index.note_batch(one_record(MIN, 3), 0, MIN)
    index.note_batch(one_record(2 * MIN, 41), 0, 2 * MIN)
    index.seal(COVERAGE, 41)
    return index


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


def test_sealed_file_is_trusted_for_the_log_it_covers() -> None:
    files = disk()
    sealed(files)
    loaded = DensityRule.load(files, PATH, 0, COVERAGE)
    assert (loaded.VARIANT, loaded.interval_ms, loaded.carried_ms) == (1, 60_000, -1)
    assert list(loaded.entries()) == [(60_000, 3), (120_000, 41)]


@pytest.mark.parametrize(
    "coverage",
    [COVERAGE._replace(size_bytes=1_001), COVERAGE._replace(next_offset=43),
     COVERAGE._replace(max_timestamp=120_001)],
)  # fmt: skip
def test_file_of_a_log_that_has_changed_is_not_trusted(coverage: Coverage) -> None:
    files = disk()
    sealed(files)
    with pytest.raises(DamagedAuxiliaryIndex, match="covers"):
        DensityRule.load(files, PATH, 0, coverage)


def test_file_without_a_seal_is_not_trusted() -> None:
    files = disk()
    index = opened(files)
    index.note_batch(one_record(MIN, 3), 0, MIN)
    index.write_out()
    with pytest.raises(DamagedAuxiliaryIndex, match="covers None"):
        DensityRule.load(files, PATH, 0, COVERAGE)


def test_no_bit_can_flip_unseen() -> None:
    files = disk()
    sealed(files)
    good = files.read_all(PATH)
    for position in range(len(good)):
        bad = bytearray(good)
        bad[position] ^= 0x10
        try:
            content = parse_density(bytes(bad))
        except DamagedAuxiliaryIndex:
            continue
        # Only the mark of the seal can go, and then there is none.
        assert content.coverage is None


@pytest.mark.parametrize("coverage", [COVERAGE, Coverage(1_000, 42, -1)])
def test_no_cut_is_unnoticed(coverage: Coverage) -> None:
    files = disk()
    if coverage is COVERAGE:
        sealed(files)
    else:
        opened(files).seal(coverage, 0)
    good = files.read_all(PATH)
    assert len(good) == HEADER.size + SEAL.size + 2 * ENTRY.size * (coverage is COVERAGE)
    for size in range(len(good)):
        files.replace_atomically(PATH, good[:size])
        with pytest.raises(DamagedAuxiliaryIndex):
            DensityRule.load(files, PATH, 0, coverage)


def test_appending_cuts_the_seal_off() -> None:
    files = disk()
    index = sealed(files)
    index.note_batch(one_record(3 * MIN, 50), 0, 3 * MIN)
    index.write_out()
    assert files.size(PATH) == HEADER.size + 3 * ENTRY.size
    index.seal(NEXT, 50)
    assert files.size(PATH) == HEADER.size + 3 * ENTRY.size + SEAL.size
    assert index.file is not None
    assert index.file.size == files.size(PATH)


def test_sealing_again_changes_nothing() -> None:
    files = disk()
    index = sealed(files)
    changes = files.counts[Operation.APPEND]
    index.seal(COVERAGE, 41)
    assert files.counts[Operation.APPEND] == changes


def test_first_write_replaces_a_file_of_that_name() -> None:
    files = disk()
    files.create(PATH).append(b"from before")
    index = sealed(files)
    assert DensityRule.load(files, PATH, 0, COVERAGE).count == index.count == 2


def test_failed_write_is_repeated_at_the_same_place() -> None:
    files = disk()
    index = sealed(files)
    index.note_batch(one_record(3 * MIN, 50), 0, 3 * MIN)
    files.fault = Fault(at=0, kinds=frozenset({Operation.APPEND}), short_write=True)
    with pytest.raises(OSError, match="t-0"):
        index.write_out()
    index.seal(NEXT, 50)
    loaded = DensityRule.load(files, PATH, 0, NEXT)
    assert [time for time, _ in loaded.entries()] == [60_000, 120_000, 180_000]


def test_rest_of_a_seal_that_was_not_written_is_cut_off() -> None:
    files = disk()
    index = opened(files)
    index.note_batch(one_record(MIN, 3), 0, MIN)
    index.write_out()
    files.fault = Fault(at=0, kinds=frozenset({Operation.APPEND}), short_write=True)
    index.seal(COVERAGE._replace(max_timestamp=MIN), 3)
    assert files.size(PATH) > HEADER.size + ENTRY.size
    index.note_batch(one_record(2 * MIN, 41), 0, 2 * MIN)
    index.write_out()
    assert files.size(PATH) == HEADER.size + 2 * ENTRY.size


def test_version_that_is_not_known_is_not_read() -> None:
    header = bytearray(encode_header(1, 60_000, -1))
    header[4] = 2
    with pytest.raises(DamagedAuxiliaryIndex, match="version 2"):
        parse_density(with_sum(bytes(header[:-4])))


@pytest.mark.parametrize(("variant", "interval_ms"), [(0, 60_000), (4, 60_000), (1, 0), (1, -1)])
def test_rule_that_is_not_known_is_not_followed(variant: int, interval_ms: int) -> None:
    files = disk()
    sealed(files)
    header = encode_header(variant, interval_ms, -1)
    entries = files.read_all(PATH)[HEADER.size : -SEAL.size]
    seal = encode_seal(2, COVERAGE, crc32c(header + entries))
    files.replace_atomically(PATH, header + entries + seal)
    with pytest.raises(DamagedAuxiliaryIndex, match="is not known"):
        DensityRule.load(files, PATH, 0, COVERAGE)

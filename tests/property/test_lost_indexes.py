"""Derived files are lost or spoiled while a log is closed; lookups find what the log holds.

Files of indexes and the manifest are lost, cut, padded or end with an entry of something else, in
any combination, after a clean stop or a kill. The reference is a list of all records.
"""

import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storage.disk.file_names import (
    LOG_SUFFIX,
    MANIFEST_NAME,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
)
from storage.log.values import Isolation
from tests.support.logs import DIRECTORY, LogHarness
from tests.support.simulated_disk import SimulatedDisk

OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
ENTRIES = {OFFSET_INDEX_SUFFIX: OFFSET_ENTRY, TIME_INDEX_SUFFIX: TIME_ENTRY}

DAMAGES = (
    "kept",
    "lost",
    "emptied",
    "last entry lost",
    "last entries lost",
    "half of the last entry",
    "last entry too high",
    "last entry too far",
    "one entry more",
    "padded with zeros",
)


def spoil(disk: SimulatedDisk, path: str, damage: str, entry: struct.Struct) -> None:
    """Do one of `DAMAGES` to an index file, if it is there and long enough."""
    if not disk.exists(path) or damage == "kept":
        return
    content = disk.read_all(path)
    disk.unlink(path)
    if damage == "lost":
        return
    disk.create(path).append(spoiled(content, damage, entry))


def spoiled(content: bytes, damage: str, entry: struct.Struct) -> bytes:
    rest, last = content[: -entry.size], content[-entry.size :]
    if damage == "emptied":
        return b""
    if damage == "padded with zeros":
        return content + bytes(4 * entry.size)
    if not last:
        return content
    first, second = entry.unpack(last)
    return {
        "last entry lost": rest,
        "last entries lost": content[: len(content) // entry.size // 2 * entry.size],
        "half of the last entry": rest + last[: entry.size // 2],
        "last entry too high": rest + entry.pack(first + 5, second),
        "last entry too far": rest + entry.pack(first, second + 1),
        "one entry more": content + entry.pack(first + 5, second + 1),
    }[damage]


def filled(timestamps: list[int]) -> LogHarness:
    """A batch for each timestamp and its two predecessors, so that maxima lie anywhere in one."""
    log = LogHarness(index_interval_bytes=250, segment_bytes=1200)
    for number, timestamp in enumerate(timestamps):
        log.append(timestamp, max(0, timestamp - number % 3), flush=False)
    log.log.flush()
    return log


def check(log: LogHarness, timestamps: list[int]) -> None:
    """Every lookup by time and by offset agrees with the records."""
    records = log.records()
    assert [record.offset for record in records] == list(range(2 * len(timestamps)))
    found = [record.timestamp for record in records]
    for asked in sorted({at + by for at in found for by in (-1, 0, 1)} | {0, max(found) + 1000}):
        if asked < 0:
            continue
        expected = next((r.offset for r in records if r.timestamp >= asked), None)
        hit = log.log.offset_for_timestamp(asked)
        assert (None if hit is None else hit.offset) == expected, f"at or after {asked}"
    newest = log.log.offset_for_max_timestamp()
    assert newest is not None
    assert (newest.timestamp, newest.offset) == (max(found), found.index(max(found)))
    for record in records:
        data = log.log.read(record.offset, max_bytes=1, isolation=Isolation.READ_UNCOMMITTED)
        assert data.next_offset > record.offset


def bases(disk: SimulatedDisk) -> list[int]:
    names = disk.list_directory(DIRECTORY)
    return [int(name[:20]) for name in names if name.endswith(LOG_SUFFIX)]


def run(
    timestamps: list[int],
    damages: dict[int, tuple[str, str]],
    *,
    is_clean: bool,
    has_manifest: bool,
) -> None:
    log = filled(timestamps)
    if is_clean:
        log.log.close(log.now_ms)
    else:
        log.log.abandon()
    if not has_manifest and log.files.exists(f"{DIRECTORY}/{MANIFEST_NAME}"):
        log.files.unlink(f"{DIRECTORY}/{MANIFEST_NAME}")
    for number, base in enumerate(bases(log.files)):
        for suffix, damage in zip(ENTRIES, damages.get(number, ("kept", "kept")), strict=True):
            spoil(log.files, f"{DIRECTORY}/{base:020d}{suffix}", damage, ENTRIES[suffix])
    end = 2 * len(timestamps)
    log.open(is_clean=is_clean, recovery_point=end)
    assert log.log.offline_reason is None
    check(log, timestamps)
    # What was rebuilt is as good as what was there.
    log.log.close(log.now_ms)
    log.open(is_clean=True, recovery_point=end)
    check(log, timestamps)


RISING = list(range(100, 400, 10))
DISORDERED = [(37 * number) % 101 + number for number in range(30)]
NEWEST_FIRST = [1000, *range(100, 390, 10)]
PEAKS = [50 * (number % 14) if number % 14 < 9 else number % 14 for number in range(42)]
"""The newest record lies before the last entry of the offset index, several entries up."""


@pytest.mark.parametrize("has_manifest", [True, False])
@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize(
    "timestamps",
    [RISING, DISORDERED, NEWEST_FIRST, PEAKS],
    ids=["rising", "disordered", "newest first", "peaks"],
)
@pytest.mark.parametrize("time_damage", DAMAGES)
def test_every_pair_of_damages(
    time_damage: str, timestamps: list[int], is_clean: bool, has_manifest: bool
) -> None:
    for offset_damage in DAMAGES:
        everywhere = dict.fromkeys(range(20), (offset_damage, time_damage))
        run(timestamps, everywhere, is_clean=is_clean, has_manifest=has_manifest)


@settings(
    deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    timestamps=st.lists(st.integers(0, 200), min_size=1, max_size=25),
    damages=st.dictionaries(
        st.integers(0, 7), st.tuples(st.sampled_from(DAMAGES), st.sampled_from(DAMAGES))
    ),
    is_clean=st.booleans(),
    has_manifest=st.booleans(),
)
def test_any_damages_to_any_segments(
    timestamps: list[int],
    damages: dict[int, tuple[str, str]],
    is_clean: bool,
    has_manifest: bool,
) -> None:
    run(timestamps, damages, is_clean=is_clean, has_manifest=has_manifest)

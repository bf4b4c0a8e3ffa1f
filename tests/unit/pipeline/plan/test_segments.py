"""Closed segments are read from their files as if the broker had sent them."""

import struct
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")


from pipeline.errors import DataLoss
from pipeline.options.options import parse_source_options
from pipeline.plan.segments import aborted_in, read_closed
from pipeline.plan.splits import OffsetRange
from pipeline.records.batches import DecodeRules
from protocol.records.builder import build_batch, build_end_txn_marker
from protocol.records.checksums import crc32c
from protocol.records.record import Record

RULES = DecodeRules(columns=("offset",))


def write_segment(folder: Path, base: int, batches: int, *, torn: int = 0) -> None:
    """Batches of five records, ten ms apart, with an index entry for every second batch."""
    folder.mkdir(parents=True, exist_ok=True)
    log, index, times = bytearray(), bytearray(), bytearray()
    for number in range(batches):
        first = base + 5 * number
        records = [Record(0, 1000 + first + i, None, b"x" * 20, ()) for i in range(5)]
        if number % 2:
            index += struct.pack(">ii", first + 4 - base, len(log))
            times += struct.pack(">qi", 1000 + first + 4, first + 4 - base)
        log += build_batch(records, base_offset=first)
    stem = folder / f"{base:020d}"
    stem.with_suffix(".log").write_bytes(log[: len(log) - torn])
    stem.with_suffix(".index").write_bytes(index)
    stem.with_suffix(".timeindex").write_bytes(times)


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """Segments 0-19, 20-39 and the open one from 40 on, of partition t-0."""
    for base in (0, 20, 40):
        write_segment(tmp_path / "t-0", base, 4)
    write_segment(tmp_path / "other-1", 0, 1)
    (tmp_path / "not a partition-x").mkdir()
    return tmp_path


def read(
    data_dir: Path,
    start: int,
    end: int,
    how: str = "hybrid",
    rules: DecodeRules = RULES,
    **more: str,
) -> tuple[list[int], Any]:
    options = parse_source_options(
        {
            "kafka.bootstrap.servers": "a:1",
            "subscribe": "t",
            "readFrom": how,
            "segments.path": str(data_dir),
            **more,
        },
        is_stream=False,
    )
    reading = read_closed(options, OffsetRange("t", 0, start, end), rules)
    offsets: list[int] = []
    while True:
        try:
            offsets += next(reading).column("offset").to_pylist()
        except StopIteration as done:
            return offsets, done.value


def test_the_tail_is_left_to_the_broker(data_dir: Path) -> None:
    offsets, rest = read(data_dir, 0, 60)
    assert offsets == list(range(40))
    assert (rest.start, rest.end) == (40, 60)


def test_reading_starts_at_the_index_entry_below(data_dir: Path) -> None:
    assert read(data_dir, 33, 38) == (list(range(33, 38)), OffsetRange("t", 0, 38, 38))


def test_segments_alone_must_reach_the_end(data_dir: Path) -> None:
    assert read(data_dir, 0, 60, "segments")[0] == list(range(60))
    with pytest.raises(DataLoss, match="nothing from offset 60 on"):
        read(data_dir, 0, 61, "segments")


def test_a_directory_that_is_not_there_leaves_everything(tmp_path: Path) -> None:
    assert read(tmp_path, 3, 9) == ([], OffsetRange("t", 0, 3, 9))


def test_aborted_transactions_are_in_all_txnindex_files(tmp_path: Path) -> None:
    for base, entry in ((0, (0, 9, 5, 8, 4)), (20, (0, 7, 6, 30, 4))):
        path = tmp_path / f"{base:020d}.txnindex"
        path.write_bytes(struct.pack(">hqqqq", *entry) + b"\0")
    assert aborted_in(tmp_path) == [(9, 5, 8), (7, 6, 30)]


def test_a_closed_segment_that_is_not_whole_leaves_the_rest_to_the_broker(tmp_path: Path) -> None:
    write_segment(tmp_path / "t-0", 0, 4, torn=30)
    for base in (20, 40):
        write_segment(tmp_path / "t-0", base, 4)
    assert read(tmp_path, 0, 60) == (list(range(15)), OffsetRange("t", 0, 15, 60))
    with pytest.raises(DataLoss, match="nothing from offset 15 on"):
        read(tmp_path, 0, 60, "segments")


@pytest.mark.parametrize("batches", [0, 3])
def test_a_closed_segment_that_ends_early_is_believed_only_with_its_manifest(
    tmp_path: Path, batches: int
) -> None:
    """A gap of compaction, or a size that a shared file system has not shown yet."""
    folder = tmp_path / "t-0"
    write_segment(folder, 0, 4)
    write_segment(folder, 20, batches)
    write_segment(folder, 40, 4)
    write_segment(folder, 60, 1)
    seen = list(range(20 + 5 * batches))
    assert read(tmp_path, 0, 60) == (seen, OffsetRange("t", 0, len(seen), 60))
    body = "segment base_offset=20 next_offset=40 max_timestamp=1 size_bytes="
    body += str((folder / f"{20:020d}.log").stat().st_size)
    line = f"{body} {crc32c(body.encode()):08x}\n"
    (folder / "segment-manifest").write_text(f"tidelog segment manifest 1\n{line}")
    assert read(tmp_path, 0, 60) == ([*seen, *range(40, 60)], OffsetRange("t", 0, 60, 60))
    assert read(tmp_path, 0, 60, "segments")[0] == [*seen, *range(40, 60)]
    body = body.rpartition("=")[0] + "=999999"
    line = f"{body} {crc32c(body.encode()):08x}\n"
    (folder / "segment-manifest").write_text(f"tidelog segment manifest 1\n{line}")
    with pytest.raises(DataLoss, match=f"nothing from offset {len(seen)} on"):
        read(tmp_path, 0, 60, "segments")
    going_on = read(tmp_path, 0, 60, "segments", failOnDataLoss="false")
    assert going_on[0] == [*seen, *range(40, 60)]


def test_files_that_begin_after_the_range_leave_it_to_the_broker(tmp_path: Path) -> None:
    for base in (20, 40, 60):
        write_segment(tmp_path / "t-0", base, 4)
    assert read(tmp_path, 10, 60) == ([], OffsetRange("t", 0, 10, 60))
    with pytest.raises(DataLoss, match="nothing from offset 10 on"):
        read(tmp_path, 10, 60, "segments")
    going_on = read(tmp_path, 10, 60, "segments", failOnDataLoss="false")
    assert going_on == (list(range(20, 60)), OffsetRange("t", 0, 60, 60))


def transactional(first: int, count: int = 2, size: int = 10) -> bytes:
    records = [Record(0, 1000, None, b"x" * size, ()) for _ in range(count)]
    return build_batch(
        records, base_offset=first, producer_id=1, producer_epoch=0, base_sequence=0,
        is_transactional=True,
    )  # fmt: skip


def marker(offset: int, *, commit: bool) -> bytes:
    return build_end_txn_marker(
        commit=commit, producer_id=1, producer_epoch=0, timestamp_ms=1, base_offset=offset
    )


def write_transactions(folder: Path, base: int, data: bytes, *aborted: tuple[int, int]) -> None:
    """A segment of producer 1, and its aborted transactions as (first, last) offsets."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{base:020d}.log").write_bytes(data)
    entries = [struct.pack(">hqqqq", 0, 1, *span, span[1]) for span in aborted]
    if entries:
        (folder / f"{base:020d}.txnindex").write_bytes(b"".join(entries))


COMMITTED = DecodeRules(columns=("offset",), read_committed=True)


def test_an_abort_in_a_later_segment_hides_the_rows_before_it(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    write_transactions(folder, 0, transactional(0))
    write_transactions(folder, 2, transactional(2))
    write_transactions(folder, 4, marker(4, commit=False), (0, 4))
    assert read(tmp_path, 0, 4, rules=COMMITTED)[0] == []


@pytest.mark.parametrize("start", [0, 1, 3])
@pytest.mark.parametrize("size", [10, 3_000_000], ids=["one chunk", "several chunks"])
def test_committed_rows_after_an_abort_of_the_same_producer_stay(
    tmp_path: Path, start: int, size: int
) -> None:
    folder = tmp_path / "t-0"
    committed = transactional(3, size=size) + transactional(5, size=size)
    data = transactional(0) + marker(2, commit=False) + committed + marker(7, commit=True)
    write_transactions(folder, 0, data, (0, 2))
    write_transactions(folder, 8, transactional(8))
    assert read(tmp_path, start, 8, rules=COMMITTED)[0] == [3, 4, 5, 6]

"""What a segment holds, and whether it and its indexes are true."""

import json
from pathlib import Path
from typing import Any

import pytest

from cli.exit_codes import ExitCode
from cli.main import run
from protocol.records.builder import build_batch, build_message_set
from protocol.records.layout import Codec
from protocol.records.record import Record
from storage.segment.density import ENTRY, Variant, encode_header
from storage.segment.offset_index import OffsetIndex
from storage.segment.time_index import TimeIndex

NAME = "00000000000000000010"


def batch(base_offset: int, *timestamps: int, codec: Codec = Codec.NONE) -> bytes:
    records = [Record(0, timestamp, b"k", b"v") for timestamp in timestamps]
    return build_batch(records, base_offset=base_offset, codec=codec)


class Segment:
    """Files of a segment with base offset 10, dumped by the command."""

    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.directory = directory
        self._capsys = capsys

    def write(self, suffix: str, *parts: bytes) -> None:
        (self.directory / f"{NAME}{suffix}").write_bytes(b"".join(parts))

    def dump(self, suffix: str = ".log", *options: str) -> tuple[int, list[dict[str, Any]]]:
        path = str(self.directory / f"{NAME}{suffix}")
        code = run(["dump-segment", "--json", *options, path])
        shown = self._capsys.readouterr().out
        return code, [json.loads(line) for line in shown.splitlines()]

    def problems(self, suffix: str = ".log") -> list[str]:
        code, lines = self.dump(suffix)
        problems: list[str] = lines[-1]["problems"]
        assert code == (ExitCode.DAMAGED if problems else ExitCode.OK)
        return problems


@pytest.fixture
def segment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Segment:
    return Segment(tmp_path, capsys)


FIRST, SECOND = batch(10, 5, 9), batch(12, 7, codec=Codec.ZSTD)


def test_batches_are_listed_in_order(segment: Segment) -> None:
    segment.write(".log", FIRST, SECOND)
    code, lines = segment.dump()
    assert code == 0
    assert [(e["base_offset"], e["last_offset"], e["records"]) for e in lines[:-1]] == [
        (10, 11, 2),
        (12, 12, 1),
    ]
    assert (lines[1]["position"], lines[1]["codec"]) == (len(FIRST), "zstd")
    assert lines[0]["max_timestamp_ms"] == 9


def test_records_are_shown_when_asked_for(segment: Segment) -> None:
    segment.write(".log", FIRST)
    _, lines = segment.dump(".log", "--records")
    records = [line for line in lines if line["kind"] == "record"]
    assert [(r["offset"], r["timestamp_ms"], r["key"]) for r in records] == [
        (10, 5, "k"),
        (11, 9, "k"),
    ]


def test_old_formats_are_understood(segment: Segment) -> None:
    segment.write(".log", build_message_set([Record(10, 5, None, b"v")], magic=1, codec=Codec.NONE))
    _, lines = segment.dump()
    assert (lines[0]["magic"], lines[0]["max_timestamp_ms"]) == (1, 5)


def test_an_empty_segment_is_sound(segment: Segment) -> None:
    segment.write(".log")
    assert segment.problems() == []


def test_a_wrong_check_sum_is_a_problem_with_its_place(segment: Segment) -> None:
    damaged = bytearray(SECOND)
    damaged[-1] ^= 1
    segment.write(".log", FIRST, bytes(damaged))
    [problem] = segment.problems()
    assert problem.startswith(f"at byte {len(FIRST)}: no sound entry starts there")


def test_an_entry_cut_off_is_a_problem(segment: Segment) -> None:
    segment.write(".log", FIRST, SECOND[:-1])
    assert segment.problems() == [
        f"at byte {len(FIRST)}: the last entry is cut off, {len(SECOND) - 1} bytes of it are there"
    ]


def test_offsets_that_go_back_are_a_problem(segment: Segment) -> None:
    segment.write(".log", SECOND, FIRST)
    assert segment.problems() == [f"at byte {len(SECOND)}: offset 10 comes after 12"]


def test_indexes_beside_a_log_are_checked_with_it(segment: Segment) -> None:
    segment.write(".log", FIRST, SECOND)
    segment.write(".index", OffsetIndex.ENTRY.pack(2, len(FIRST)))
    segment.write(".timeindex", TimeIndex.ENTRY.pack(9, 1))
    assert segment.problems() == []


def test_zeros_after_the_entries_of_an_open_kafka_index_are_no_entries(segment: Segment) -> None:
    segment.write(".log", FIRST, SECOND)
    segment.write(".index", OffsetIndex.ENTRY.pack(2, len(FIRST)), bytes(800))
    _, lines = segment.dump(".index")
    assert len(lines) == 2


@pytest.mark.parametrize(
    ("relative", "position", "problem"),
    [
        (2, 3, "no entry of the log starts at byte 3"),
        (1, len(FIRST), f"the entry at byte {len(FIRST)} ends with offset 12, not 11"),
    ],
)
def test_an_offset_index_that_lies_is_a_problem(
    segment: Segment, relative: int, position: int, problem: str
) -> None:
    segment.write(".log", FIRST, SECOND)
    segment.write(".index", OffsetIndex.ENTRY.pack(relative, position))
    assert segment.problems(".index") == [f"entry 0: {problem}"]
    assert segment.problems(".log") == [f"{NAME}.index, entry 0: {problem}"]


def test_a_time_index_that_misses_a_newer_record_is_a_problem(segment: Segment) -> None:
    segment.write(".log", FIRST, SECOND)
    segment.write(".timeindex", TimeIndex.ENTRY.pack(8, 1))
    [problem] = segment.problems(".timeindex")
    assert problem.startswith("entry 0: a record of 1970-01-01T")


def test_a_time_index_that_goes_back_is_a_problem(segment: Segment) -> None:
    segment.write(".log", FIRST, SECOND)
    segment.write(".timeindex", TimeIndex.ENTRY.pack(9, 1), TimeIndex.ENTRY.pack(9, 2))
    assert segment.problems(".timeindex") == ["entry 1: its timestamp is not above the one before"]


def test_what_is_no_segment_file_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["dump-segment", "README.md"]) == ExitCode.USAGE
    assert "README.md is no segment file" in capsys.readouterr().err


def density_file(*entries: tuple[int, int], variant: Variant = Variant.INTERVAL) -> bytes:
    """A density file without a seal, as a running broker has it."""
    return encode_header(variant, 60_000, -1) + b"".join(ENTRY.pack(*entry) for entry in entries)


def test_density_file_is_shown_with_its_rule(segment: Segment) -> None:
    segment.write(".log", batch(10, 60_000), batch(11, 200_000))
    segment.write(".density", density_file((60_000, 0), (180_000, 1)))
    code, lines = segment.dump(".density")
    assert code == ExitCode.OK
    assert (lines[0]["kind"], lines[0]["variant"]) == ("side-file", "interval")
    assert lines[0]["sealed_for"] is None
    assert [(line["time"], line["offset"]) for line in lines[1:-1]] == [(60_000, 10), (180_000, 11)]
    assert segment.problems() == []


def test_density_file_that_skips_records_is_a_problem(segment: Segment) -> None:
    segment.write(".log", batch(10, 60_000), batch(11, 200_000))
    segment.write(".density", density_file((60_000, 1)))
    [problem] = segment.problems(".density")
    assert "a batch before its offset has 60000" in problem
    [problem] = segment.problems()
    assert problem.startswith(f"{NAME}.density, entry 0")


def test_damaged_density_file_is_a_problem(segment: Segment) -> None:
    segment.write(".log", batch(10, 60_000))
    segment.write(".density", density_file((60_000, 0))[:20])
    [problem] = segment.problems(".density")
    assert "the file cannot be read" in problem

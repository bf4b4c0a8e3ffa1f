"""Names of files and directories, both directions."""

import pytest

from storage.disk.file_names import (
    LOG_SUFFIX,
    SegmentFileName,
    deleted_directory_name,
    offset_file_name,
    parse_partition_directory_name,
    parse_segment_file_name,
    partition_directory_name,
    segment_file_path,
)


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("00000000000000000042.log", (42, ".log", "")),
        ("00000000000000000042.timeindex.deleted", (42, ".timeindex", ".deleted")),
        ("00000000000000000042.log.swap", (42, ".log", ".swap")),
        ("00000000000000000042.txnindex.cleaned", (42, ".txnindex", ".cleaned")),
        ("00000000000000000042.snapshot", (42, ".snapshot", "")),
    ],
)
def test_segment_names_are_read_and_written(name: str, parsed: tuple[int, str, str]) -> None:
    read = parse_segment_file_name(name)
    assert read is not None
    assert (read.base_offset, read.kind, read.stage) == parsed
    assert read.format() == name


@pytest.mark.parametrize(
    "name",
    ["42.log", "00000000000000000042", "leader-epoch-checkpoint", "0000000000000000004x.log", ""],
)
def test_other_names_are_not_segments(name: str) -> None:
    assert parse_segment_file_name(name) is None


def test_names_sort_like_offsets() -> None:
    names = [offset_file_name(offset, LOG_SUFFIX) for offset in (9, 10, 10**18)]
    assert names == sorted(names)
    assert segment_file_path("d", 7, LOG_SUFFIX) == "d/00000000000000000007.log"
    assert SegmentFileName(base_offset=7, kind=LOG_SUFFIX).format() == names[0].replace("9", "7")


@pytest.mark.parametrize(("topic", "partition"), [("t", 0), ("a-1", 12), ("x.y_z-", 3)])
def test_partition_directories(topic: str, partition: int) -> None:
    name = partition_directory_name(topic, partition)
    assert parse_partition_directory_name(name) == (topic, partition)


@pytest.mark.parametrize("name", ["t", "t-", "-1", "t-1-delete", "a b-1"])
def test_other_directories_are_not_partitions(name: str) -> None:
    assert parse_partition_directory_name(name) is None


def test_deleted_directories_fit_into_a_name() -> None:
    unique = "f" * 32
    assert deleted_directory_name("t", 3, unique) == f"t-3.{unique}-delete"
    long = deleted_directory_name("t" * 249, 3, unique)
    assert len(long) == 255
    assert parse_partition_directory_name(long) is None

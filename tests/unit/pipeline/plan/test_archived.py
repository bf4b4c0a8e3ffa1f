"""What is read of an archive's journal and of its files."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

import pyarrow.parquet as pq  # noqa: E402

from pipeline.errors import BadOptions, CorruptData, DataLoss  # noqa: E402
from pipeline.plan import archived  # noqa: E402
from pipeline.plan.archived import Archive, FilePart, pack_files  # noqa: E402
from pipeline.plan.journal import Journal  # noqa: E402
from pipeline.plan.lake_files import read_in_order, read_part  # noqa: E402
from pipeline.plan.splits import OffsetRange  # noqa: E402
from pipeline.records.arrow_loops import MICROS_MS_MAX  # noqa: E402
from pipeline.records.batches import COLUMN_TYPES, DecodeRules  # noqa: E402
from protocol.records.layout import INT64_MAX, INT64_MIN  # noqa: E402

Span = tuple[int, int, int]
"""Partition, start and end."""


def ranges(*spans: Span) -> list[OffsetRange]:
    return [OffsetRange("t", *span) for span in spans]


class Job:
    """Writes the journal of an archive, as the job does."""

    def __init__(self, folder: Path) -> None:
        self.journal = Journal(folder)
        self.journal.put("start", [["t", 0, 0]])

    def plan(self, number: int, *spans: Span) -> None:
        plan = archived.ArchivePlan(
            number=number, cluster_id="c", topic_ids={"t": "id"}, target="/lake",
            tasks=(tuple(ranges(*spans)),),
        )  # fmt: skip
        self.journal.put(f"plans/{number:08d}", plan.document())

    def commit(self, number: int, *files: dict[str, Any]) -> None:
        self.journal.put(f"commits/{number:08d}", {"files": list(files)})


def file(name: str, first: int, last: int, times: tuple[int, int], *partitions: int) -> Any:
    return {
        "path": name, "event_date": "", "topic": "t", "rows": 1, "size_bytes": 1,
        "youngest": [[partition, times[1]] for partition in partitions],
        "first_offset": first, "last_offset": last,
        "min_timestamp_ms": times[0], "max_timestamp_ms": times[1],
    }  # fmt: skip


def test_offsets_of_commits_are_in_the_lake_and_those_of_plans_are_not(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.plan(0, (0, 5, 10), (1, 0, 4))
    job.commit(0)
    job.plan(1, (0, 10, 20))
    job.commit(1)
    archive = Archive(str(tmp_path))
    job.plan(2, (0, 25, 30))
    assert archive.split(ranges((0, 0, 40))) == (ranges((0, 5, 20)), ranges((0, 0, 5), (0, 20, 40)))
    assert not archive.refresh()
    job.commit(2)
    assert archive.refresh()
    inside, outside = archive.split(ranges((0, 7, 40), (1, 2, 3), (2, 0, 9)))
    assert inside == ranges((0, 7, 20), (0, 25, 30), (1, 2, 3))
    assert outside == ranges((0, 20, 25), (0, 30, 40), (2, 0, 9))


def test_a_batch_under_way_is_waited_for_if_it_covers_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(tmp_path)
    archive = Archive(str(tmp_path))
    job.plan(0, (0, 0, 10))
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            job.commit(0)

    monkeypatch.setattr("pipeline.plan.archived.time.sleep", sleep)
    assert not archive.follow(ranges((0, 10, 12), (1, 0, 5)))
    assert slept == []
    assert archive.follow(ranges((0, 9, 12)))
    assert len(slept) == 3
    monkeypatch.setattr(archived, "_COMMIT_TIMEOUT_S", 0.0)
    job.plan(1, (0, 10, 12))
    assert not archive.follow(ranges((0, 9, 12)))
    assert archive.unfinished(ranges((0, 9, 11), (0, 12, 15), (1, 9, 12))) == ranges((0, 10, 11))


def test_files_are_chosen_by_partition_offset_and_time(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.plan(0, (0, 0, 100), (1, 0, 100))
    job.commit(
        0,
        file("a", 0, 9, (100, 199), 0),
        file("b", 10, 19, (150, 300), 0),
        file("c", 0, 99, (100, 300), 1),
    )
    archive = Archive(str(tmp_path))

    def chosen(oldest: int, newest: int, *spans: Span) -> list[str]:
        return [part.path for part in archive.parts(ranges(*spans), oldest, newest)]

    assert chosen(INT64_MIN, INT64_MAX, (0, 0, 100)) == ["a", "b"]
    assert chosen(INT64_MIN, INT64_MAX, (0, 9, 10), (1, 0, 1)) == ["a", "c"]
    assert chosen(200, 300, (0, 0, 100)) == ["b"]
    assert chosen(0, 100, (0, 0, 100), (1, 0, 100)) == []
    assert chosen(0, 101, (0, 0, 100), (1, 0, 100)) == ["a", "c"]


def test_a_directory_without_an_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadOptions, match=r"is no state directory .* give the --state-dir"):
        Archive(str(tmp_path))


def test_small_files_share_a_task_and_a_large_one_has_its_own() -> None:
    sizes = [30, 30, 50, 200, 10, 10]
    parts = [FilePart(str(number), size, "t", ()) for number, size in enumerate(sizes)]
    assert [[part.size_bytes for part in task] for task in pack_files(parts, 100)] == [
        [30, 30], [50], [200], [10, 10],
    ]  # fmt: skip
    assert pack_files([], 100) == []


def write(path: Path, rows: list[tuple[int, int, int]], group: int) -> None:
    """Rows of (partition, offset, time in ms) as the archive writes them."""
    columns: dict[str, Any] = {
        "key": [None] * len(rows),
        "value": [b"%d-%d" % row[:2] for row in rows],
        "topic": ["t"] * len(rows),
        "partition": [row[0] for row in rows],
        "offset": [row[1] for row in rows],
        "timestamp": [row[2] * 1000 for row in rows],
        "timestampType": [0] * len(rows),
        "headers": [[("h", b"1")] if row[1] % 2 else None for row in rows],
    }
    arrays = [pa.array(values, COLUMN_TYPES[name]) for name, values in columns.items()]
    table = pa.Table.from_arrays(arrays, names=list(columns))
    pq.write_table(table, path, row_group_size=group)


@pytest.mark.parametrize("seed", range(20))
def test_rows_of_a_file_are_those_of_the_ranges_and_the_window(tmp_path: Path, seed: int) -> None:
    """Against a loop over all rows, with row groups that are wanted whole, in part, not at all."""
    luck = random.Random(seed)
    rows = [
        (partition, offset, luck.choice((offset * 10, luck.randrange(-500, 2000), -1)))
        for partition in range(3)
        for offset in range(luck.randrange(100))
    ]
    write(tmp_path / "f.parquet", rows, luck.choice((1, 7, 64, 1000)))
    for _ in range(20):
        wanted = ranges(
            *(
                (luck.randrange(4), start, start + luck.randrange(60))
                for start in (luck.randrange(-5, 90), luck.randrange(90, 120))
            )
        )
        oldest = luck.choice((INT64_MIN, luck.randrange(-500, 1000)))
        newest = luck.choice((INT64_MAX, luck.randrange(0, 2000)))
        columns = tuple(luck.sample(sorted(COLUMN_TYPES), luck.randrange(1, 8)))
        rules = DecodeRules(
            columns=columns, oldest_ms=oldest, newest_ms=newest, rows_per_batch=luck.choice((3, 99))
        )
        part = FilePart(str(tmp_path / "f.parquet"), 1, "t", tuple(wanted))
        batches = list(read_part(part, rules, fail_on_data_loss=True))
        assert all(batch.schema == rules.schema for batch in batches)
        expected = [
            row
            for row in rows
            if oldest <= row[2] < newest
            and any(one.partition == row[0] and one.start <= row[1] < one.end for one in wanted)
        ]
        assert sum(batch.num_rows for batch in batches) == len(expected)
        if "value" in columns:
            values = [value.as_py() for batch in batches for value in batch.column("value")]
            assert values == [b"%d-%d" % row[:2] for row in expected]


def test_a_foreign_file_without_offsets_is_no_archive(tmp_path: Path) -> None:
    """Spark would take the null of a column that is declared to have none for a 0."""
    path = tmp_path / "f.parquet"
    write(path, [(0, 0, 0)], 10)
    table = pq.read_table(path)
    at = table.schema.get_field_index("timestampType")
    pq.write_table(table.set_column(at, "timestampType", pa.nulls(1, pa.int32())), path)
    part = FilePart(str(path), 1, "t", tuple(ranges((0, 0, 1))))
    rules = DecodeRules(columns=("timestampType",), required=frozenset({"timestampType"}))
    with pytest.raises(CorruptData, match="rows without timestampType"):
        list(read_part(part, rules, fail_on_data_loss=True))
    assert list(read_part(part, replace(rules, required=frozenset()), fail_on_data_loss=True))


@pytest.mark.parametrize("seed", range(20))
def test_files_of_a_partition_are_merged_in_the_order_of_their_offsets(
    tmp_path: Path, seed: int
) -> None:
    """Against a sort of all rows, where dates alternate, follow each other, and are alone."""
    luck = random.Random(seed)
    offsets = [offset for offset in range(300) if luck.random() < 0.8]
    files: list[list[tuple[int, int, int]]] = [[] for _ in range(luck.randrange(1, 9))]
    place = 0
    for offset in offsets:
        place = luck.randrange(len(files)) if luck.random() < 0.3 else place
        files[place] += [(1, offset, offset)]
        # Small partitions share files.
        files[place] += [(2, offset, -5)] if luck.random() < 0.2 else []
    start, end = luck.randrange(150), luck.randrange(150, 320)
    parts = []
    for number, rows in enumerate(files):
        path = tmp_path / f"{number}.parquet"
        write(path, sorted(rows), luck.choice((5, 50, 1000)))
        first = min((row[1] for row in rows), default=0)
        parts.append(FilePart(str(path), 1, "t", tuple(ranges((1, start, end))), first))
    luck.shuffle(parts)
    for columns in (("value",), ("timestamp", "offset")):
        rules = DecodeRules(columns=columns, rows_per_batch=luck.choice((3, 40, 999)))
        batches = list(read_in_order(parts, rules, fail_on_data_loss=True))
        assert all(batch.schema == rules.schema for batch in batches)
        found = [value for batch in batches for value in batch.column(columns[-1]).to_pylist()]
        wanted = [offset for offset in offsets if start <= offset < end]
        assert found == ([b"1-%d" % one for one in wanted] if len(columns) == 1 else wanted)


def test_times_that_were_cut_are_null_where_that_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    write(path, [(0, 0, 5), (0, 1, -1), (0, 2, MICROS_MS_MAX), (0, 3, -2)], 10)
    part = FilePart(str(path), 1, "t", tuple(ranges((0, 0, 9))))

    def micros(on_malformed: str) -> list[int | None]:
        rules = DecodeRules(columns=("timestamp",), on_malformed=on_malformed)
        (batch,) = read_part(part, rules, fail_on_data_loss=True)
        found: list[int | None] = batch.column(0).cast(pa.int64()).to_pylist()
        return found

    assert micros("clamp") == [5000, -1000, MICROS_MS_MAX * 1000, -2000]
    assert micros("null") == [5000, None, None, -2000]


def test_a_file_that_is_gone_is_data_loss(tmp_path: Path) -> None:
    part = FilePart(str(tmp_path / "gone.parquet"), 1, "t", tuple(ranges((0, 0, 9))))
    rules = DecodeRules(columns=("offset",))
    with pytest.raises(DataLoss, match=r"lists .*gone.parquet, and it is not there"):
        list(read_part(part, rules, fail_on_data_loss=True))
    assert list(read_part(part, rules, fail_on_data_loss=False)) == []

"""Compaction of an archive's Iceberg table: the same rows in fewer files, whatever dies."""

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipeline.errors import BadOptions, Fenced, JournalConflict
from pipeline.jobs import compact_files as job
from pipeline.jobs.archive import ArchiveSettings, archive
from pipeline.jobs.compact_files import CompactFilesSettings, compact_files
from pipeline.jobs.lake import IcebergLake
from pipeline.jobs.outcome import JobCode
from pipeline.launch import main
from pipeline.options.options import parse_source_options
from pipeline.plan.archived import Archive
from pipeline.plan.journal import Journal
from tests.pipeline.conftest import START_MS, Broker
from tests.pipeline.test_union import Row, read_rows

DAY_MS = 86_400_000
TABLE = "lake.events"
BATCHES = 4


class Death(Exception):
    """A driver that dies."""


class World:
    """A topic of three partitions and three days, archived in four batches."""

    def __init__(self, session: Any, broker: Broker, folder: Path) -> None:
        self.session, self.broker = session, broker
        self.topic = broker.topic(3)
        self.state = folder / "state"
        self.options = {**broker.options, "subscribe": self.topic}
        for number in range(BATCHES):
            self.grow(number)

    def grow(self, number: int) -> None:
        """One more batch: rows of three days in each partition, one of them without a time."""
        for partition in range(3):
            self.broker.produce(
                self.topic, partition, 30, first=30 * number, step_ms=DAY_MS // 10,
                start_ms=START_MS - 3 * number * DAY_MS, headers=((b"h", b"1"),),
            )  # fmt: skip
        self.broker.produce(self.topic, 0, 1, start_ms=-1, step_ms=0)
        settings = ArchiveSettings(
            options=self.options, target=TABLE, lake="iceberg", state_dir=str(self.state)
        )
        assert archive(self.session, settings).code == JobCode.DONE

    @property
    def settings(self) -> CompactFilesSettings:
        return CompactFilesSettings(target=TABLE, state_dir=str(self.state))

    def files(self) -> list[Path]:
        """The files of the warehouse."""
        return sorted((self.state / "warehouse").rglob("event_date=*/*.parquet"))

    def table_rows(self) -> list[tuple[Any, ...]]:
        """All columns of all rows of the table as it is now."""
        table = IcebergLake(TABLE, str(self.state))._catalog.load_table(TABLE)
        return _sorted(table.scan().to_arrow())

    def union_rows(self) -> list[Row]:
        """The rows of the one table over topic and lake, after retention has deleted the topic."""
        options = {**self.options, "archive": str(self.state)}
        return sorted(read_rows(self.broker, parse_source_options(options, is_stream=False)))


def _sorted(table: Any) -> list[tuple[Any, ...]]:
    names = sorted(table.column_names)
    rows = table.select(names).to_pylist()
    return sorted((row["partition"], row["offset"], str(row)) for row in rows)


@pytest.fixture
def world(no_spark: Any, broker: Broker, tmp_path: Path) -> World:
    return World(no_spark, broker, tmp_path)


@pytest.mark.core
def test_small_files_of_a_day_become_one_with_the_same_rows(world: World) -> None:
    for partition in range(3):
        world.broker.delete_before(world.topic, partition, 100)
    table, union = world.table_rows(), world.union_rows()
    assert len(table) == len(union) == 3 * 30 * BATCHES + BATCHES
    before = world.files()
    days = {path.parent.name for path in before}
    assert len(before) > 2 * len(days)
    planned = compact_files(world.session, replace(world.settings, dry_run=True))
    assert world.files() == before
    done = compact_files(world.session, world.settings)
    assert (done.report["joined"], done.report["written"]) == (len(before), len(days))
    assert planned.report["joined"] == len(before)
    assert (world.table_rows(), world.union_rows()) == (table, union)
    # The old ones stay for queries that were planned before.
    assert len(world.files()) == len(before) + len(days)
    listed = Archive(str(world.state)).files
    assert len(listed) == len(days)
    for file in listed:
        found = pq.read_table(file.path, columns=["partition", "offset"]).to_pylist()
        pairs = [(row["partition"], row["offset"]) for row in found]
        assert pairs == sorted(pairs)
    assert compact_files(world.session, world.settings).code == JobCode.NOTHING_TO_DO
    # The archive goes on, and its new small files are joined with the large ones.
    world.grow(BATCHES)
    assert len(world.union_rows()) == len(union) + 91
    assert compact_files(world.session, world.settings).report["written"] == len(days)
    assert len(world.table_rows()) == len(world.union_rows()) == len(union) + 91


@pytest.mark.core
def test_replaced_files_go_when_no_snapshot_names_them(world: World) -> None:
    before = world.files()
    rows = world.table_rows()
    compact_files(world.session, world.settings)
    lake = IcebergLake(TABLE, str(world.state))
    table = lake._catalog.load_table(TABLE)
    first = table.snapshots()[0].snapshot_id
    table.manage_snapshots().create_tag(first, "keep").commit()
    kept = {
        Path(task.file.file_path.removeprefix("file://"))
        for task in table.scan(snapshot_id=first).plan_files()
    }
    orphan = before[0].with_name(f"t-{job._mark(lake.app_id)}-0.parquet")
    fresh = orphan.with_name(orphan.name.replace("-0.", "-1."))
    foreign = orphan.with_name("another-program.parquet")
    for path in (orphan, fresh, foreign):
        path.write_bytes(b"x")
    for path in (orphan, foreign):
        os.utime(path, (time.time() - 2 * 86_400,) * 2)
    done = compact_files(world.session, replace(world.settings, keep_ms=0))
    assert done.report["removed"] == len(set(before) - kept) + 1
    assert set(world.files()) & set(before) == kept
    assert (orphan.exists(), fresh.exists(), foreign.exists()) == (False, True, True)
    assert world.table_rows() == rows
    assert len(table.refresh().scan(snapshot_id=first).to_arrow()) == 91
    again = compact_files(world.session, replace(world.settings, keep_ms=0))
    assert again.code == JobCode.NOTHING_TO_DO


@pytest.mark.parametrize("step", ["write", "decide", "replace"])
def test_a_run_that_dies_is_finished_by_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    rows = world.table_rows()

    def dies_after(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            real(*arguments)
            raise Death

        return call

    with monkeypatch.context() as dead:
        if step == "replace":
            dead.setattr(IcebergLake, step, dies_after(IcebergLake.replace))
        else:
            dead.setattr(job, f"_{step}", dies_after(getattr(job, f"_{step}")))
        with pytest.raises(Death):
            compact_files(world.session, world.settings)
    assert world.table_rows() == rows
    assert len(world.union_rows()) == len(rows)
    compact_files(world.session, world.settings)
    assert world.table_rows() == rows
    assert len(world.union_rows()) == len(rows)
    assert len(Archive(str(world.state)).files) == len({path.parent for path in world.files()})


@pytest.mark.parametrize("step", ["groups", "write"])
def test_of_two_runs_one_ends(world: World, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    rows = world.table_rows()
    real = getattr(job, f"_{step}")

    def overtaken(*arguments: Any) -> Any:
        monkeypatch.setattr(job, f"_{step}", real)
        compact_files(world.session, world.settings)
        return real(*arguments)

    monkeypatch.setattr(job, f"_{step}", overtaken)
    with pytest.raises(Fenced, match="one finish before"):
        compact_files(world.session, world.settings)
    assert world.table_rows() == rows
    assert len(world.union_rows()) == len(rows)


def test_replaced_files_stay_as_long_when_the_table_learns_late(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run decided and died, and the next one comes when the decision is old."""
    before = world.files()

    def dies(*_: Any) -> None:
        raise Death

    with monkeypatch.context() as dead:
        dead.setattr(IcebergLake, "replace", dies)
        with pytest.raises(Death):
            compact_files(world.session, world.settings)
    (decision,) = (world.state / "compactions").iterdir()
    document = json.loads(decision.read_text())
    decision.write_text(json.dumps(document | {"made_ms": document["made_ms"] - DAY_MS}))
    keeping = replace(world.settings, keep_ms=DAY_MS // 2)
    assert compact_files(world.session, keeping).code == JobCode.NOTHING_TO_DO
    assert set(before) < set(world.files())
    done = compact_files(world.session, replace(keeping, keep_ms=0))
    assert done.report["removed"] == len(before)


def test_a_batch_that_comes_meanwhile_is_kept(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at the table and its snapshot; and for a reader that knows the batches."""
    reader = Archive(str(world.state))
    write = job._write

    def growing(*arguments: Any) -> Any:
        found = write(*arguments)
        world.grow(BATCHES)
        return found

    monkeypatch.setattr(job, "_write", growing)
    compact_files(world.session, world.settings)
    count = 91 * (BATCHES + 1)
    assert len(world.table_rows()) == len(world.union_rows()) == count
    assert reader.refresh()
    assert sum(file.rows for file in reader.files) == count


def test_a_table_that_another_program_has_rewritten_is_left_alone(world: World) -> None:
    compact_files(world.session, world.settings)
    table = IcebergLake(TABLE, str(world.state))._catalog.load_table(TABLE)
    table.delete("event_date = '2023-11-15'")
    world.grow(BATCHES)
    with pytest.raises(JournalConflict, match="another program has rewritten it"):
        compact_files(world.session, world.settings)


def test_what_is_no_table_of_the_archive_is_refused(world: World, tmp_path: Path) -> None:
    with pytest.raises(BadOptions, match="no such Iceberg table"):
        compact_files(world.session, replace(world.settings, target="lake.other"))
    with pytest.raises(BadOptions, match="no state directory"):
        compact_files(world.session, replace(world.settings, state_dir=str(tmp_path / "none")))
    assert not list(Journal(str(world.state)).names("compactions"))


def test_the_command_line_reports_a_dry_run(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "compact-files",
        "--target",
        TABLE,
        "--state-dir",
        str(world.state),
        "--dry-run",
        "--json",
    ]
    assert main(words) == JobCode.DONE
    assert json.loads(capsys.readouterr().out)["joined"] == len(world.files())
    assert main([*words, "--small", "many"]) == JobCode.USAGE
    assert "--small" in capsys.readouterr().err

"""Audit of an archive against its topic: equal counts, and every way in which they differ."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipeline.errors import BadOptions, DataLoss
from pipeline.jobs.archive import ArchiveSettings, archive
from pipeline.jobs.audit import AuditSettings, audit
from pipeline.jobs.outcome import JobCode, Outcome
from tests.pipeline.conftest import START_MS, Broker

HOUR_MS = 3_600_000


class World:
    """A topic of two partitions, 40 records each over ten hours, and its archive."""

    def __init__(self, spark: Any, broker: Broker, folder: Path, **settings: str) -> None:
        self.spark, self.broker = spark, broker
        self.topic = broker.topic(2, **settings)
        for partition in range(2):
            broker.produce(self.topic, partition, 40, step_ms=HOUR_MS // 4)
        self.lake, self.state_dir = folder / "lake", str(folder / "state")
        self.archive()

    def archive(self) -> None:
        settings = ArchiveSettings(
            options={**self.broker.options, "subscribe": self.topic},
            target=str(self.lake), state_dir=self.state_dir,
        )  # fmt: skip
        assert archive(self.spark, settings).code == JobCode.DONE

    def audit(self, **options: str) -> Outcome:
        named = {**self.broker.options, "subscribe": self.topic, **options}
        return audit(self.spark, AuditSettings(options=named, state_dir=self.state_dir))

    def file(self) -> Path:
        """The file of the topic's first date with the most rows."""
        return max(self.lake.rglob("*.parquet"), key=lambda path: path.stat().st_size)


@pytest.fixture
def world(no_spark: Any, broker: Broker, tmp_path: Path) -> World:
    return World(no_spark, broker, tmp_path)


def test_both_sides_have_the_same_hours_and_bytes(world: World) -> None:
    world.broker.produce(world.topic, 0, 5)  # not archived: no part of the audit
    outcome = world.audit()
    assert outcome.code == JobCode.DONE
    # START_MS is 22:13:20: four records an hour, from the first quarter of an hour on.
    assert (outcome.report["hours"], outcome.report["records"]) == (20, 80)
    first = outcome.rows[0]
    assert first["hour"].startswith("2023-11-14T22:00:00")
    assert first["archive_records"] == 4
    assert first["archive_bytes"] == first["topic_bytes"] == sum(len(f"k0v{n}") for n in range(4))


def test_only_offsets_that_both_sides_have_are_compared(world: World) -> None:
    world.broker.delete_before(world.topic, 0, 30)
    outcome = world.audit()
    assert (outcome.code, outcome.report["records"]) == (JobCode.DONE, 50)
    for partition in range(2):
        world.broker.delete_before(world.topic, partition, 40)
    assert world.audit().code == JobCode.NOTHING_TO_DO


@pytest.mark.parametrize("change", ["rows", "bytes", "times"])
def test_a_file_that_holds_something_else_is_damage(world: World, change: str) -> None:
    """One record less, one value shorter, or one an hour later; the counts in the commits stay."""
    table = pq.ParquetFile(world.file()).read()
    rows = table.to_pylist()
    if change == "rows":
        del rows[5]
    elif change == "bytes":
        rows[5]["value"] = b""
    else:
        rows[5]["timestamp"] = rows[9]["timestamp"]
    pq.write_table(type(table).from_pylist(rows, schema=table.schema), world.file())
    outcome = world.audit()
    assert outcome.code == JobCode.DAMAGED
    assert outcome.report["damaged"] == (2 if change == "times" else 1)
    assert "differ" in outcome.sentence
    assert all(not row["same"] for row in outcome.rows)


def test_a_file_that_is_gone_is_data_loss(world: World) -> None:
    world.file().unlink()
    with pytest.raises(DataLoss, match="it is not there"):
        world.audit()


def test_retention_during_the_count_is_no_difference(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While both are counted first, the log of partition 1 loses its first half."""
    looks: list[int] = []

    def run_tasks(_: Any, work: Callable[[Any], Any], tasks: Sequence[Any]) -> list[Any]:
        if not looks:
            world.broker.delete_before(world.topic, 1, 20)
        looks.append(len(tasks))
        return [work(task) for task in tasks]

    monkeypatch.setattr("pipeline.jobs.audit.run_tasks", run_tasks)
    outcome = world.audit()
    assert (outcome.code, outcome.report["records"]) == (JobCode.DONE, 60)
    assert looks == [4, 2]


def test_a_compacted_topic_may_have_fewer_records_but_no_more(
    no_spark: Any, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = World(no_spark, broker, tmp_path)

    def settings(*_: object) -> dict[str, str]:
        return {"cleanup.policy": "compact"}

    monkeypatch.setattr("pipeline.net.cluster.Cluster.settings", settings)
    whole = pq.ParquetFile(made.file()).read()
    pq.write_table(type(whole).from_pylist(whole.to_pylist() * 2, schema=whole.schema), made.file())
    outcome = made.audit()
    assert outcome.code == JobCode.DONE
    assert "compacted topic" in outcome.sentence
    pq.write_table(whole.slice(0, 3), made.file())
    assert made.audit().code == JobCode.DAMAGED


def test_options_that_choose_rows_are_refused(world: World) -> None:
    with pytest.raises(BadOptions, match="option startingTimestamp means nothing to an audit"):
        world.audit(startingTimestamp=str(START_MS))

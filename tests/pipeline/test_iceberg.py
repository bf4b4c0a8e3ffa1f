"""Iceberg tables of an archive: partitioned by event date, and those of earlier releases."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipeline.jobs.archive import ArchiveSettings, archive
from pipeline.jobs.files import FILE_SCHEMA
from pipeline.jobs.lake import IcebergLake
from pipeline.jobs.outcome import JobCode
from tests.pipeline.conftest import START_MS, Broker

DAY_MS = 86_400_000
TABLE = "lake.events"


class Death(Exception):
    """A driver that dies."""


def settings_of(broker: Broker, topic: str, folder: Path) -> ArchiveSettings:
    return ArchiveSettings(
        options={**broker.options, "subscribe": topic}, target=TABLE, lake="iceberg",
        state_dir=str(folder / "state"),
    )  # fmt: skip


def table_of(settings: ArchiveSettings) -> Any:
    return IcebergLake(TABLE, settings.state_dir)._catalog.load_table(TABLE)


@pytest.mark.core
def test_a_query_of_a_day_opens_the_files_of_that_day(
    no_spark: Any, broker: Broker, tmp_path: Path
) -> None:
    """Three days, and records without a time; two batches."""
    topic = broker.topic(1)
    settings = settings_of(broker, topic, tmp_path)
    for first in (0, 30):
        broker.produce(topic, 0, 30, first=first, start_ms=START_MS - first * DAY_MS // 10,
                       step_ms=DAY_MS // 10)  # fmt: skip
        broker.produce(topic, 0, 2, first=99, start_ms=-1, step_ms=0)
        assert archive(no_spark, settings).code == JobCode.DONE
    table = table_of(settings)
    assert [field.name for field in table.spec().fields] == ["event_date"]
    days = {str(one["partition"]["event_date"]) for one in table.inspect.partitions().to_pylist()}
    assert days == {f"2023-11-{day}" for day in range(14, 18)} | {"None"}
    for text, rows in (("event_date = '2023-11-15'", 20), ("event_date IS NULL", 4)):
        scan = table.scan(row_filter=text)
        assert (len(list(scan.plan_files())), scan.to_arrow().num_rows) == (2, rows), text
    dates = table.scan().to_arrow().select(["event_date", "timestamp"]).to_pylist()
    assert len(dates) == 64
    assert all(row["event_date"] in (None, row["timestamp"].date()) for row in dates)


def test_a_table_of_an_earlier_release_goes_on_without_partitions(
    no_spark: Any, broker: Broker, tmp_path: Path
) -> None:
    topic = broker.topic(1)
    settings = settings_of(broker, topic, tmp_path)
    catalog = IcebergLake(TABLE, settings.state_dir)._catalog
    catalog.create_namespace("lake")
    catalog.create_table(TABLE, FILE_SCHEMA)
    broker.produce(topic, 0, 5)
    assert archive(no_spark, settings).code == JobCode.DONE
    assert not table_of(settings).spec().fields
    assert table_of(settings).scan().to_arrow().column_names == FILE_SCHEMA.names
    (file,) = (tmp_path / "state").rglob("*.parquet")
    assert pq.read_schema(file).names == FILE_SCHEMA.names


def test_a_batch_that_an_earlier_release_has_written_is_committed(
    no_spark: Any, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It died before its commit: its files have no date of their own."""
    topic = broker.topic(1)
    settings = settings_of(broker, topic, tmp_path)
    broker.produce(topic, 0, 5)

    def die(step: str) -> None:
        if step == "commit":
            raise Death

    with monkeypatch.context() as earlier:
        earlier.setattr(IcebergLake, "has_dated_files", False)
        with pytest.raises(Death):
            archive(no_spark, settings, die)
    assert archive(no_spark, settings).report["rows"] == 5
    broker.produce(topic, 0, 5, first=5)
    assert archive(no_spark, settings).report["rows"] == 5
    assert not table_of(settings).spec().fields
    assert table_of(settings).scan().to_arrow().num_rows == 10

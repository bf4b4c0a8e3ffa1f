"""The jobs against a real broker, a real Spark and real tables; and the flights end to end."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from client.times import MS_PER_DAY
from pipeline.errors import BadOptions, DataLoss, Fenced, JournalConflict, NotShared
from pipeline.jobs import archive as archiving
from pipeline.jobs.archive import ArchiveSettings, archive
from pipeline.jobs.outcome import JobCode
from pipeline.jobs.restore import RestoreSettings, read_archive, restore
from pipeline.jobs.skew import SkewSettings, skew
from pipeline.jobs.translate import TranslateSettings, translate
from pipeline.launch import main
from pipeline.plan.archived import ArchivePlan
from pipeline.plan.journal import Journal
from pipeline.spark.session import by_partition
from tests.pipeline.conftest import START_MS, Broker, expected, values


class Death(BaseException):
    """The driver dies here."""


def settings_of(broker: Broker, topic: str, folder: Path, **fields: Any) -> ArchiveSettings:
    return ArchiveSettings(
        options={**broker.options, "subscribe": topic},
        target=fields.pop("target", str(folder / "lake")),
        state_dir=str(folder / "state"),
        **fields,
    )


@pytest.mark.core
def test_an_archive_is_incremental_and_says_when_there_is_nothing(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic = broker.topic(2)
    broker.produce(topic, 0, 10)
    settings = settings_of(broker, topic, tmp_path)
    assert archive(spark, settings).report["rows"] == 10
    assert archive(spark, settings).code == JobCode.NOTHING_TO_DO
    broker.produce(topic, 1, 5, start_ms=START_MS + MS_PER_DAY, first=10)
    assert archive(spark, settings).report["rows"] == 5
    frame = read_archive(spark, settings.target, settings.state_dir)
    assert values(frame) == [f"v{number}" for number in range(15)]
    days = {
        str(row["event_date"]): row["count"]
        for row in frame.groupBy("event_date").count().collect()
    }
    assert days == {"2023-11-14": 10, "2023-11-15": 5}


def test_a_dry_run_shows_every_partition_and_changes_nothing(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic, copy = broker.topic(2), broker.topic(2)
    broker.produce(topic, 0, 10)
    dry = settings_of(broker, topic, tmp_path, dry_run=True)
    outcome = archive(spark, dry)
    assert outcome.sentence == "would archive 10 of 10 offsets in 1 task as batch 0"
    assert outcome.report["offsets"] == 10
    assert [(row["partition"], row["end"], row["read"]) for row in outcome.rows] == [
        (0, 10, "0-10"), (1, 0, ""),
    ]  # fmt: skip
    assert list(tmp_path.iterdir()) == []
    archive(spark, replace(dry, dry_run=False))
    broker.produce(topic, 1, 4, first=10)
    outcome = archive(spark, dry)
    assert outcome.sentence == "would archive 4 of 14 offsets in 1 task as batch 1"
    assert [row["read"] for row in outcome.rows] == ["", "0-4"]
    assert archive(spark, replace(dry, dry_run=False)).report["rows"] == 4
    window = RestoreSettings(
        options=broker.options, source=dry.target, topic=copy, oldest_ms=START_MS + 2000,
        dry_run=True,
    )  # fmt: skip
    assert restore(spark, window).rows == (
        {"topic": topic, "partition": 0, "read": "2-10", "records": 8},
        {"topic": topic, "partition": 1, "read": "0-4", "records": 4},
    )
    assert broker.ends(copy) == [0, 0]


def test_a_dry_run_shows_the_batch_that_a_dead_run_left(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """Its topic may be one that the options no longer choose."""
    left, chosen = broker.topic(1), broker.topic(1)
    broker.produce(left, 0, 3)
    settings = settings_of(broker, left, tmp_path)
    with pytest.raises(Death):
        archive(spark, settings, lambda step: raise_death() if step == "write" else None)
    outcome = archive(spark, settings_of(broker, chosen, tmp_path, dry_run=True))
    assert {row["topic"]: row["read"] for row in outcome.rows} == {left: "0-3", chosen: ""}


@pytest.mark.core
@pytest.mark.parametrize("lake", ["parquet", "delta", "iceberg"])
def test_twenty_deaths_of_the_driver_archive_each_row_once(
    spark: SparkSession, broker: Broker, tmp_path: Path, lake: str
) -> None:
    """In turn before the plan is kept, before the write, before the commit, and after none."""
    topic = broker.topic(2)
    target = "lake.events" if lake == "iceberg" else str(tmp_path / "lake")
    settings = settings_of(broker, topic, tmp_path, lake=lake, target=target)
    deaths = 20 if lake == "parquet" else 6
    for death in range(deaths):
        broker.produce(topic, death % 2, 3, first=death * 3)
        fatal = ("plan", "write", "commit")[death % 3]

        def die(step: str, fatal: str = fatal) -> None:
            if step == fatal:
                raise Death

        with pytest.raises(Death):
            archive(spark, settings, die)
        if death % 2:
            assert archive(spark, settings).code == JobCode.DONE
    while archive(spark, settings).code == JobCode.DONE:
        pass
    expected = sorted(f"v{number}" for number in range(deaths * 3))
    assert sorted(table_values(spark, lake, settings)) == expected


def table_values(spark: SparkSession, lake: str, settings: ArchiveSettings) -> list[str]:
    if lake == "delta":
        import deltalake

        table = deltalake.DeltaTable(settings.target).to_pyarrow_table(columns=["value"])
    elif lake == "iceberg":
        from pipeline.jobs.lake import IcebergLake

        opened = IcebergLake(settings.target, settings.state_dir)
        table = opened._catalog.load_table(settings.target).scan().to_arrow()
    else:
        # The journal's list and the bare directory must agree.
        bare = values(spark.read.parquet(settings.target))
        assert bare == values(read_archive(spark, settings.target, settings.state_dir))
        return bare
    return [value.decode() for value in table.column("value").to_pylist()]


@pytest.mark.core
def test_of_two_archives_at_once_the_second_ends_and_no_row_is_there_twice(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = broker.topic(1)
    broker.produce(topic, 0, 10)
    settings = settings_of(broker, topic, tmp_path)
    put = Journal.put

    def put_late(journal: Journal, name: str, document: Any) -> Any:
        """Before the plan of the first run is written, another one does all of it."""
        if name.startswith("plans/"):
            monkeypatch.setattr(Journal, "put", put)
            broker.produce(topic, 0, 5, first=10)
            assert archive(spark, settings).report["rows"] == 15
        return put(journal, name, document)

    monkeypatch.setattr(Journal, "put", put_late)
    with pytest.raises(Fenced, match="another run of this archive"):
        archive(spark, settings)
    assert values(spark.read.parquet(settings.target)) == expected((0, 15))


@pytest.mark.core
@pytest.mark.parametrize("lake", ["parquet", "delta"])
def test_a_death_between_the_tables_commit_and_the_journals_touches_no_file_again(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lake: str
) -> None:
    """Also when retention has taken the records meanwhile."""
    topic = broker.topic(1)
    broker.produce(topic, 0, 10)
    settings = settings_of(broker, topic, tmp_path, lake=lake)
    with monkeypatch.context() as deadly:
        deadly.setattr(archiving, "_finish", raise_death)
        with pytest.raises(Death):
            archive(spark, settings)
    files = {path: path.stat().st_mtime_ns for path in Path(settings.target).rglob("*.parquet")}
    broker.delete_before(topic, 0, 10)
    assert archive(spark, settings).report["rows"] == 10
    assert {path: path.stat().st_mtime_ns for path in files} == files
    assert table_values(spark, lake, settings) == expected((0, 10))


def raise_death(*_: Any) -> None:
    raise Death


def test_retention_that_overtook_the_archive_is_data_loss(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic = broker.topic(1)
    broker.produce(topic, 0, 5)
    settings = settings_of(broker, topic, tmp_path)
    archive(spark, settings)
    broker.produce(topic, 0, 10, first=5)
    broker.delete_before(topic, 0, 9)
    with pytest.raises(DataLoss, match="removed 4 offsets before they were archived"):
        archive(spark, settings)


@pytest.mark.parametrize("is_old", [False, True])
def test_a_topic_with_nothing_new_is_known_when_it_is_made_again(
    broker: Broker, tmp_path: Path, no_spark: None, is_old: bool
) -> None:
    """The offsets of the new topic were taken for those after the archived ones.

    Earlier releases wrote the ids of topics with new records alone.
    """
    prefix = broker.topic(1)
    for name in ("a", "b"):
        broker.topic(1, f"{prefix}-{name}")
        broker.produce(f"{prefix}-{name}", 0, 10)
    options = {**broker.options, "subscribePattern": f"{prefix}-[ab]"}
    settings = replace(settings_of(broker, prefix, tmp_path), options=options)
    without: Any = None
    assert archive(without, settings).report["rows"] == 20
    broker.produce(f"{prefix}-a", 0, 5, first=10)
    assert archive(without, settings).report["rows"] == 5
    if is_old:
        (tmp_path / "state" / "topic-ids.json").unlink()
        plan = tmp_path / "state" / "plans" / "00000001.json"
        document = json.loads(plan.read_text())
        del document["topic_ids"][f"{prefix}-b"]
        plan.write_text(json.dumps(document))
    broker.delete_topic(f"{prefix}-b")
    broker.produce(f"{prefix}-a", 0, 5, first=15)
    assert archive(without, settings).report["rows"] == 5, "one that is gone stops no other"
    broker.topic(1, f"{prefix}-b")
    broker.produce(f"{prefix}-b", 0, 25, first=1000)
    with pytest.raises(DataLoss, match=f"topic {prefix}-b was deleted and created again"):
        archive(without, settings)
    broker.produce(f"{prefix}-a", 0, 5, first=20)
    alone = replace(settings, options={**broker.options, "subscribe": f"{prefix}-a"})
    assert archive(without, alone).report["rows"] == 5


def test_a_topic_without_a_record_to_archive_is_known_too(
    broker: Broker, tmp_path: Path, no_spark: None
) -> None:
    """It begins at 10, and so would the new topic."""
    topic, other = broker.topic(1), broker.topic(1)
    broker.produce(topic, 0, 10)
    broker.delete_before(topic, 0, 10)
    broker.produce(other, 0, 3)
    settings = settings_of(broker, f"{topic},{other}", tmp_path)
    without: Any = None
    assert archive(without, settings).report["rows"] == 3
    broker.delete_topic(topic)
    broker.topic(1, topic)
    broker.produce(topic, 0, 25)
    with pytest.raises(DataLoss, match=f"topic {topic} was deleted and created again"):
        archive(without, settings)


def test_a_state_directory_belongs_to_one_archive(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic = broker.topic(1)
    broker.produce(topic, 0, 1)

    def die(step: str) -> None:
        if step == "write":
            raise Death

    with pytest.raises(Death):
        archive(spark, settings_of(broker, topic, tmp_path), die)
    with pytest.raises(JournalConflict, match="plan of another archive"):
        archive(spark, settings_of(broker, topic, tmp_path, target=str(tmp_path / "other")))


@pytest.mark.core
def test_days_become_complete_and_late_rows_are_counted(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic = broker.topic(1)
    broker.produce(topic, 0, 2)
    broker.produce(topic, 0, 1, start_ms=START_MS + 2 * MS_PER_DAY, first=2)
    settings = settings_of(broker, topic, tmp_path)
    assert archive(spark, settings).report["complete_days"] == ["2023-11-14"]
    marker = tmp_path / "lake" / "_complete" / "2023-11-14.json"
    assert json.loads(marker.read_text()) == {"batch": 0, "date": "2023-11-14"}
    broker.produce(topic, 0, 3, first=3)
    assert archive(spark, settings).report["late_rows"] == 3


def test_two_archives_into_one_table_do_not_take_each_others_batches(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    target = str(tmp_path / "lake")
    for first in (0, 10):
        topic = broker.topic(1)
        broker.produce(topic, 0, 10, first=first)
        folder = tmp_path / str(first)
        settings = settings_of(broker, topic, folder, lake="delta", target=target)
        assert archive(spark, settings).report["rows"] == 10
    assert sorted(table_values(spark, "delta", settings)) == sorted(expected((0, 20)))


def test_an_archive_reads_files_if_asked_and_refuses_to_choose_rows(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic = broker.topic(1, segment_bytes="9000")
    for first in range(0, 2000, 400):
        broker.produce(topic, 0, 400, first=first, batchBytes="2k")
    settings = settings_of(broker, topic, tmp_path)
    hybrid = {"readFrom": "hybrid", "segments.path": str(broker.directory)}
    asked = replace(settings, options={**settings.options, **hybrid})
    assert archive(spark, asked).report["rows"] == 2000
    assert values(spark.read.parquet(settings.target)) == expected((0, 2000))
    strict = replace(settings, options={**settings.options, "timeWindow": "strict"})
    with pytest.raises(BadOptions, match="option timeWindow means nothing to an archive"):
        archive(spark, strict)


def test_a_restore_that_was_done_before_says_so(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic, copy = broker.topic(2), broker.topic(2)
    broker.produce(topic, 0, 5)
    archive(spark, settings_of(broker, topic, tmp_path))
    settings = RestoreSettings(
        options=broker.options, source=str(tmp_path / "lake"), topic=copy, name=copy
    )
    assert restore(spark, settings).report["rows"] == 5
    again = restore(spark, settings)
    assert (again.code, again.report["rows"]) == (JobCode.NOTHING_TO_DO, 0)


def test_restore_refuses_a_topic_that_would_spoil_the_records(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic = broker.topic(1)
    broker.produce(topic, 0, 5)
    archive(spark, settings_of(broker, topic, tmp_path))
    short = broker.topic(1, retention_ms="3600000")
    settings = RestoreSettings(options=broker.options, source=str(tmp_path / "lake"), topic=short)
    with pytest.raises(BadOptions, match="would delete records"):
        restore(spark, settings)


@pytest.mark.core
def test_a_relative_target_is_the_users_and_another_one_needs_another_state(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = broker.topic(1)
    broker.produce(topic, 0, 5)
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    settings = ArchiveSettings(
        options={**broker.options, "subscribe": topic}, target="lake",
        state_dir=str(tmp_path / "state"),
    )  # fmt: skip
    assert archive(spark, settings).report["rows"] == 5
    broker.produce(topic, 0, 5, first=5)
    monkeypatch.chdir(tmp_path / "there")
    with pytest.raises(JournalConflict, match=f"target {str(tmp_path / 'here' / 'lake')!r}"):
        archive(spark, settings)
    monkeypatch.chdir(tmp_path / "here")
    assert archive(spark, settings).report["rows"] == 5
    source = {"source": "lake", "state_dir": settings.state_dir}
    assert values(read_archive(spark, *source.values())) == expected((0, 10))
    # A lake is read where it is: the journal knows names, and the user the place.
    moved = tmp_path / "moved"
    (tmp_path / "here" / "lake").rename(moved)
    assert values(read_archive(spark, str(moved), settings.state_dir)) == expected((0, 10))
    with pytest.raises(DataLoss, match=r"lists .*here/lake.* it is not there"):
        read_archive(spark, "lake", settings.state_dir)
    with pytest.raises(BadOptions, match="here/lake does not exist"):
        read_archive(spark, "lake")


def test_a_file_that_is_gone_before_the_commit_stops_it(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic = broker.topic(1)
    broker.produce(topic, 0, 5)
    settings = settings_of(broker, topic, tmp_path)

    def lose(step: str) -> None:
        if step == "commit":
            for file in (tmp_path / "lake").rglob("*.parquet"):
                file.write_bytes(b"torn")

    with pytest.raises(NotShared, match=r"is of 4 bytes.*Mount one shared file system"):
        archive(spark, settings, lose)
    assert not (tmp_path / "state" / "commits").exists()


@pytest.mark.core
def test_what_dead_tasks_left_is_swept(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    topic = broker.topic(1)
    broker.produce(topic, 0, 5)
    settings = settings_of(broker, topic, tmp_path)
    with pytest.raises(Death):
        archive(spark, settings, lambda step: raise_death() if step == "write" else None)
    plan = ArchivePlan.parse(Journal(settings.state_dir).get("plans/00000000"))
    folder = tmp_path / "lake" / "event_date=2023-11-14"
    folder.mkdir(parents=True)
    ours = folder / f"_x-0-{plan.digest}.parquet.1-ab.tmp"
    stale, fresh = folder / "_y-0-beef0001.parquet.2.tmp", folder / "_z-0-beef0001.parquet.3.tmp"
    for path in (ours, stale, fresh):
        path.touch()
    os.utime(stale, (0, 0))
    assert archive(spark, settings).report["rows"] == 5
    assert [path.name for path in folder.glob("_*")] == [fresh.name]
    assert not list((tmp_path / "lake").glob("_probe*"))


@pytest.mark.core
def test_jobs_need_no_spark_context(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session of Spark Connect has none; what PySpark does with its own is its business."""
    topic = broker.topic(1)
    broker.produce(topic, 0, 5)

    def for_spark_only(session: SparkSession) -> Any:
        caller = sys._getframe(1).f_globals["__name__"]
        assert caller.startswith("pyspark."), f"{caller} uses the SparkContext"
        return session._sc

    monkeypatch.setattr(type(spark), "sparkContext", property(for_spark_only))
    assert archive(spark, settings_of(broker, topic, tmp_path)).report["rows"] == 5
    chosen = {**broker.options, "subscribe": topic}
    assert skew(spark, SkewSettings(options=chosen)).report["records"] == 5


@pytest.mark.core
def test_a_restore_says_how_many_partitions_it_needs_and_ends_as_it_began(
    spark: SparkSession, broker: Broker, tmp_path: Path, read: Any
) -> None:
    topic, narrow = broker.topic(3), broker.topic(2)
    for partition in range(3):
        broker.produce(topic, partition, 20, first=20 * partition)
    archive(spark, settings_of(broker, topic, tmp_path))
    settings = RestoreSettings(
        options=broker.options, source=str(tmp_path / "lake"), topic=narrow, name=narrow
    )
    with pytest.raises(BadOptions, match=r"has 2 partitions.*partition 2: add.*--by-key"):
        restore(spark, settings)
    by_key = replace(settings, keep_partitions=False)
    # One of two transactions is there when the run dies, and then the topic grows.
    frame = read_archive(spark, settings.source).drop("partition")
    spread = by_partition(frame, broker.bootstrap, narrow).where("partition = 0")
    sink = {"topic": narrow, "delivery": "exactly-once", "transactionalIdPrefix": narrow}
    columns = ("key", "value", "headers", "timestamp", "partition")
    writer = spread.select(*columns).write.format("tidelog").mode("append")
    writer.options(**broker.options, **sink).save()
    broker.add_partitions(narrow, 5)
    restore(spark, by_key)
    committed = read(narrow, kafka__isolation__level="read_committed")
    assert sorted(values(committed)) == sorted(expected((0, 60)))


@pytest.mark.core
def test_skew_tells_disorder_by_partition_and_hour(spark: SparkSession, broker: Broker) -> None:
    topic = broker.topic(2)
    broker.produce(topic, 0, 10)
    broker.produce(topic, 0, 2, start_ms=START_MS - 15_000, first=10)
    outcome = skew(spark, SkewSettings(options={**broker.options, "subscribe": topic}))
    assert outcome.report["records"] == 12
    assert outcome.report["out_of_order"] == 2
    assert outcome.rows[0]["largest_step_back_ms"] == 14_000


@pytest.mark.core
def test_offsets_are_translated_by_time(broker: Broker) -> None:
    """The same broker plays both clusters; the group's own topic is its copy at equal offsets."""
    topic = broker.topic(1)
    broker.produce(topic, 0, 100)
    group = f"g-{topic}"
    with broker.cluster() as cluster:
        cluster.commit(group, {(topic, 0): 50})
        settings = TranslateSettings(
            options=broker.options, target_options=broker.options, groups=[group],
            overlap_ms=10_000, commit=True,
        )  # fmt: skip
        assert translate(settings).rows[0]["target_offset"] == 40
        assert cluster.committed(group)[topic, 0].offset == 40


@pytest.mark.core
def test_the_command_line_speaks_json_and_codes(
    broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["skew", "-b", broker.bootstrap, "--topic", broker.topic(1), "--dry-run", "--json"]
    assert main(line) == 7
    assert json.loads(capsys.readouterr().out)["code"] == 7


def test_flights_are_streamed_archived_queried_and_restored(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A twentieth of the flights of 2013, by the demo's own words; `make spark-demo` has all."""
    from demo.flight_data import DataMissing, load_flights
    from demo.spark_flights import tell_story

    try:
        flights = load_flights()[::20]
    except DataMissing as problem:
        pytest.skip(str(problem))
    alone = Broker(tmp_path / "data")
    try:
        tell_story(spark, alone.bootstrap, flights, tmp_path)
    finally:
        alone.stop()

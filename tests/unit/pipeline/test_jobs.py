"""The parts of jobs that decide: names, dates, completeness, lateness, refusals, exit codes."""

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

pa = pytest.importorskip("pyarrow")

import pyarrow.parquet as pq  # noqa: E402

from client.errors import AddressUnusable, BrokerRefused, BrokerUnreachable  # noqa: E402
from client.types import OffsetAndTimestamp  # noqa: E402
from pipeline import launch  # noqa: E402
from pipeline.errors import (  # noqa: E402
    BadOptions,
    CorruptData,
    Fenced,
    NoJava,
    NotShared,
)
from pipeline.jobs import files  # noqa: E402
from pipeline.jobs.archive import (  # noqa: E402
    ArchiveSettings,
    _mark_days,
    _new_plan,
    complete_days,
    youngest_by_partition,
)
from pipeline.jobs.files import file_name, split_by_date  # noqa: E402
from pipeline.jobs.lake import ParquetLake  # noqa: E402
from pipeline.jobs.outcome import JobCode, code_of  # noqa: E402
from pipeline.jobs.restore import find_spoilers  # noqa: E402
from pipeline.jobs.skew import judge  # noqa: E402
from pipeline.launch import duration_ms, main  # noqa: E402
from pipeline.net.cluster import Cluster  # noqa: E402
from pipeline.options.options import TopicChoice, TopicPartition, parse_source_options  # noqa: E402
from pipeline.options.reader import spark_path  # noqa: E402
from pipeline.plan.archived import ArchivePlan, WrittenFile  # noqa: E402
from pipeline.plan.folders import folder_of  # noqa: E402
from pipeline.plan.journal import Journal  # noqa: E402
from pipeline.plan.splits import OffsetRange  # noqa: E402
from pipeline.records.batches import COLUMN_TYPES  # noqa: E402
from protocol.records.lateness import Lateness, quantile  # noqa: E402

DAY_MS = 86_400_000
JULY_4_MS = 1_372_896_000_000


def times(*moments_ms: int) -> Any:
    micros = pa.array([ms * 1000 for ms in moments_ms], pa.timestamp("us", "UTC"))
    kinds = pa.array([0] * len(moments_ms), pa.int32())
    return pa.RecordBatch.from_arrays([micros, kinds], names=["timestamp", "timestampType"])


def test_rows_go_to_their_day_of_utc_and_keep_their_order() -> None:
    batch = times(JULY_4_MS, JULY_4_MS - 1, -1, JULY_4_MS + DAY_MS - 1)
    split = {date: rows.num_rows for date, rows in split_by_date(batch)}
    assert split == {"": 1, "2013-07-03": 1, "2013-07-04": 2}


def test_a_file_is_named_by_topic_identity_offsets_and_plan() -> None:
    """Two topics' equal names once made a Delta commit replace rows without an error."""
    one = OffsetRange("a/b", 3, 10, 99)
    name = file_name([one], "5a0f12cd99", "beef0001")
    assert name == "a_b-5a0f12cd-3-000000000010-000000000099-beef0001.parquet"
    assert "000000000099+1-beef" in file_name([one, one], "5a0f12cd99", "beef0001")


def test_a_plan_survives_the_journal_and_keeps_its_digest() -> None:
    plan = ArchivePlan(
        number=0, cluster_id="c", topic_ids={"t": "5a"}, target="/x",
        tasks=(
            (OffsetRange("t", 0, 1, 5), OffsetRange("t", 1, 0, 2)),
            (OffsetRange("t", 2, 0, 2),),
        ),
    )  # fmt: skip
    again = ArchivePlan.parse(json.loads(json.dumps(plan.document())))
    assert again == plan
    assert again.digest == plan.digest


def test_a_day_is_complete_when_every_partition_is_past_it_by_the_grace() -> None:
    days = ["2013-07-04", "2013-07-05"]
    end = JULY_4_MS + DAY_MS
    assert complete_days(days, {"t-0": end + 10, "t-1": end + 9}, (), 10) == []
    assert complete_days(days, {"t-0": end + 10, "t-1": end + 10}, (), 10) == ["2013-07-04"]


def test_an_idle_partition_holds_no_day_back_unless_all_are_idle() -> None:
    youngest = {"t-0": JULY_4_MS + 3 * DAY_MS, "t-1": 0}
    assert complete_days(["2013-07-04"], youngest, ["t-1"], 0) == ["2013-07-04"]
    assert complete_days(["2013-07-04"], youngest, ["t-0", "t-1"], 0) == []


def test_lateness_is_the_distance_to_the_youngest_before() -> None:
    first = times(10_000, 20_000, 15_000)
    second = times(19_000, 20_000, 21_000)
    (row,) = judge("t", 0, [first, second], newest_ms=20_500)
    assert row["records"] == 6
    assert row["out_of_order"] == 2
    assert row["largest_step_back_ms"] == 5000
    assert row["future"] == 1
    assert (row["late_p50_ms"], row["late_p99_ms"]) == (0, 60_000)
    assert row["unit"] == "ms"


def test_seconds_are_recognised_for_what_they_are() -> None:
    (row,) = judge("t", 0, [times(1_372_896_000)], newest_ms=2**60)
    assert "looks like seconds" in row["unit"]


def test_the_columns_say_the_same_as_the_broker() -> None:
    chance = random.Random(5)
    for _ in range(50):
        hour = [chance.randrange(3_600_000) for _ in range(chance.randrange(1, 40))]
        core = Lateness()
        for timestamp in hour:
            core.add(timestamp)
        (row,) = judge("t", 0, [times(*hour)], newest_ms=2**60)
        assert row["records"] == core.records
        assert row["out_of_order"] == core.out_of_order
        assert row["largest_step_back_ms"] == core.largest_step_back_ms
        assert row["late_p50_ms"] == quantile(core.histogram, 0.5)
        assert row["late_p99_ms"] == quantile(core.histogram, 0.99)


def test_a_topic_that_would_spoil_a_restore_is_refused() -> None:
    kept = {"message.timestamp.type": "CreateTime", "retention.ms": "-1"}
    assert find_spoilers(kept, JULY_4_MS, JULY_4_MS + DAY_MS) == []
    short = {**kept, "retention.ms": "3600000", "cleanup.policy": "delete"}
    assert "at once" in find_spoilers(short, JULY_4_MS, JULY_4_MS + DAY_MS)[0]
    assert find_spoilers({**short, "cleanup.policy": "compact"}, JULY_4_MS, 2 * JULY_4_MS) == []
    stamped = {**kept, "message.timestamp.type": "LogAppendTime"}
    assert "LogAppendTime" in find_spoilers(stamped, JULY_4_MS, JULY_4_MS)[0]


def test_errors_have_the_codes_that_the_documentation_lists() -> None:
    assert code_of(BadOptions("x")) == JobCode.USAGE
    assert code_of(NoJava("x")) == JobCode.FAILED, "as for other commands that lack a package"
    assert code_of(CorruptData("x")) == JobCode.DAMAGED
    assert code_of(Fenced("x")) == JobCode.FENCED
    assert code_of(BrokerRefused("x", 3)) == JobCode.NOT_FOUND
    assert code_of(BrokerRefused("x", 87)) == JobCode.FAILED
    assert code_of(BrokerUnreachable("x")) == JobCode.UNREACHABLE
    assert code_of(AddressUnusable("x")) == JobCode.UNREACHABLE


def test_bad_words_end_with_a_sentence_and_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["skew", "--topic", "t", "--future", "soon"]) == 2
    assert "--future 'soon': write a duration" in capsys.readouterr().err
    assert main(["nonsense"]) == 2
    capsys.readouterr()
    assert main(["skew", "--topic", "t", "--option", "x"]) == 2
    assert "--option 'x': write KEY=VALUE" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["compact", "lag", "plan"])
def test_a_job_that_was_removed_is_refused(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([word, "--topic", "t"]) == 2
    assert f"invalid choice: '{word}'" in capsys.readouterr().err


def test_a_relative_time_is_no_option(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["skew", "--dry-run", "-b", "127.0.0.1:1", "--topic", "t", "--option", "nonsense=1"]
    assert main([*line, "--from", "-15m", "--to", "-5m"]) == 2
    assert "option nonsense is not known" in capsys.readouterr().err


def test_without_the_extra_a_sentence_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*_: object) -> None:
        raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")

    line, describe, _ = launch._JOBS["skew"]
    monkeypatch.setattr(launch, "_JOBS", {"skew": (line, describe, run)})
    assert main(["skew", "--topic", "t"]) == 1
    assert "pip install 'tidelog[spark]'" in capsys.readouterr().err


def test_durations() -> None:
    assert duration_ms("--grace", "15m") == 900_000


def test_the_columns_have_an_order_that_users_see() -> None:
    assert list(COLUMN_TYPES)[:5] == ["key", "value", "topic", "partition", "offset"]


class Log:
    """Stands for a cluster with the partitions t-0 and t-1, whose records are times in ms."""

    cluster_id = "c"

    def __init__(self) -> None:
        self.times: dict[TopicPartition, list[int]] = {("t", 0): [], ("t", 1): []}

    def partitions(self, _: TopicChoice) -> list[TopicPartition]:
        return sorted(self.times)

    def topic_id(self, _: str) -> str:
        return "aa"

    def sizes(self, _: Any) -> dict[TopicPartition, int]:
        return {}

    def list_offsets(
        self, questions: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        def find(tp: TopicPartition, when: int) -> int:
            times = self.times[tp]
            places = {-1: len(times), -2: 0}
            later = (offset for offset, time_ms in enumerate(times) if time_ms >= when)
            return places[when] if when in places else next(later, -1)

        return {tp: OffsetAndTimestamp(find(tp, when), -1, -1) for tp, when in questions.items()}


@pytest.mark.parametrize(
    "start",
    [{"startingOffsets": "latest"}, {"startingTimestamp": "-15m"}],
    ids=["latest", "a quarter of an hour"],
)
def test_an_archive_starts_where_it_first_looked(tmp_path: Path, start: dict[str, str]) -> None:
    """Not where the options point to at a later run, by which time records have come."""
    log, journal = Log(), Journal(tmp_path / "state")
    settings = ArchiveSettings(options={}, target="x", state_dir=str(tmp_path / "state"))
    base = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", **start}
    base["startingOffsetsByTimestampStrategy"] = "latest"
    options = parse_source_options(base, is_stream=False)
    cluster = cast("Cluster", log)
    log.times["t", 0] = [1, 2]
    assert _new_plan(cluster, options, settings, journal, "/x", {}) is None
    log.times["t", 0] += [3]
    log.times["t", 1] += [4]
    log.times["t", 2] = [5, 6]
    plan = _new_plan(cluster, options, settings, journal, "/x", {})
    assert plan is not None
    assert [(one.partition, one.start, one.end) for one in sorted(plan.ranges)] == [
        (0, 2, 3), (1, 0, 1), (2, 0, 2),
    ]  # fmt: skip


def test_a_marker_that_a_death_left_out_is_written_by_the_next_run(tmp_path: Path) -> None:
    lake = ParquetLake(str(tmp_path / "lake"), str(tmp_path / "state"))
    _mark_days(lake, None)
    _mark_days(lake, {"number": 3, "complete_days": ["2023-11-14"]})
    assert lake.is_complete("2023-11-14")


@pytest.mark.parametrize("address", ["hdfs://nn:8020/j", "dbfs:/lake", "s3:///state"])
def test_a_directory_on_no_file_system_is_refused_and_not_made_here(address: str) -> None:
    with pytest.raises(BadOptions, match="is no path of a file system"):
        Journal(address)
    with pytest.raises(BadOptions, match="is no path of a file system"):
        ParquetLake(address, "/tmp")


def file_rows(folder: Path) -> Any:
    """The only file below `folder`."""
    (path,) = folder.rglob("*.parquet")
    return pq.ParquetFile(path)


def record_batch(times_ms: list[int], value: bytes) -> Any:
    rows = {
        "key": [None] * len(times_ms),
        "value": [value] * len(times_ms),
        "topic": ["t"] * len(times_ms),
        "partition": [0] * len(times_ms),
        "offset": list(range(len(times_ms))),
        "timestamp": [ms * 1000 for ms in times_ms],
        "timestampType": [0] * len(times_ms),
        "headers": [None] * len(times_ms),
    }
    columns = [pa.array(rows[name], kind) for name, kind in COLUMN_TYPES.items()]
    return pa.RecordBatch.from_arrays(columns, names=list(COLUMN_TYPES))


def test_a_row_group_is_bounded_by_its_bytes_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of a megabyte once waited until there were 262,144 of them."""
    monkeypatch.setattr(files, "_ROW_GROUP_BYTES", 1 << 20)
    folder = folder_of(str(tmp_path))
    with files._DateWriter(folder, "x.parquet", 0, files.FILE_SCHEMA) as writer:
        for _ in range(8):
            writer.add(0, record_batch([JULY_4_MS] * 4, b"v" * (128 << 10)))
        writer.finish("t")
    assert file_rows(tmp_path).num_row_groups == 4


def test_many_days_at_once_are_bounded_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_PENDING_BYTES", 1 << 20)
    folder = folder_of(str(tmp_path))
    with files._DateWriter(folder, "x.parquet", 0, files.FILE_SCHEMA) as writer:
        for _ in range(4):
            for day in range(8):
                writer.add(0, record_batch([JULY_4_MS + day * DAY_MS], b"v" * (128 << 10)))
            assert sum(one.pending_bytes for one in writer._files.values()) <= 1 << 20
        written = writer.finish("t")
    assert [one.rows for one in written] == [4] * 8


def test_times_without_a_date_and_before_1970_have_their_place() -> None:
    year_10000 = 253_402_300_800_000
    batch = times(year_10000 - 1, year_10000, -1, -2, -DAY_MS, -62_135_596_800_001)
    split = {day: rows.num_rows for day, rows in split_by_date(batch)}
    assert split == {"9999-12-31": 1, "": 3, "1969-12-31": 2}


def test_a_day_before_1970_is_not_complete_because_a_record_has_no_time() -> None:
    def written(when: int) -> WrittenFile:
        return WrittenFile(
            path="/x", event_date="", topic="t", youngest=((0, when),), rows=1, size_bytes=1,
            first_offset=0, last_offset=0, min_timestamp_ms=when, max_timestamp_ms=when,
        )  # fmt: skip

    youngest = youngest_by_partition({}, [written(-5 * DAY_MS), written(-1)])
    assert youngest == {"t-0": -5 * DAY_MS}
    assert youngest_by_partition(youngest, [written(7)]) == {"t-0": 7}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "give --topic TOPIC for a topic, or --state-dir DIR for an archive by itself"),
        (["--topic", "t", "--source", "lake"], "--source 'lake' needs --state-dir"),
        (["--state-dir", "s", "--option", "a=b"], "give --topic with --option archive=DIR"),
        (["--state-dir", "s", "--to", "x"], "--to: "),
    ],
)  # fmt: skip
def test_skew_refuses_what_mixes_topics_and_archives(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["skew", *words]) == 2
    assert sentence in capsys.readouterr().err


def test_a_relative_path_is_made_absolute_where_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An executor would take it for one below its own working directory."""
    monkeypatch.chdir(tmp_path)
    asked = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", "journalDir": "j"}
    files_option = {"readFrom": "hybrid", "segments.path": "file:data"}
    parsed = parse_source_options({**asked, **files_option}, is_stream=False)
    assert parsed.journal_dir == str(tmp_path / "j")
    assert parsed.segments_path == str(tmp_path / "data")
    assert Journal("state").address == str(tmp_path / "state")
    lake = ParquetLake("lake", "state")
    assert (lake.folder, lake.target, lake.target_of("lake")) == (str(tmp_path / "lake"),) * 3
    assert spark_path("last") == f"file://{tmp_path}/last"
    assert spark_path("s3a://b/last") == "s3a://b/last"
    with pytest.raises(BadOptions, match="'' is no path"):
        Journal("")


def test_a_directory_of_the_executors_own_is_noticed_before_and_after_the_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files lay in disposable directories of the executors, and the state had advanced."""
    monkeypatch.setattr(files, "_LOOK_AGAIN_S", 0)
    drivers, executors = tmp_path / "driver" / "lake", tmp_path / "executor" / "lake"
    with files.probing(str(drivers), "beef") as probe:
        assert files.find_unshared(str(drivers), probe) is None
        complaint = files.find_unshared(str(executors), probe)
    assert complaint is not None
    assert f"target {str(executors)!r} is not the driver's directory" in complaint
    assert "Mount one shared file system" in complaint
    assert list(drivers.iterdir()) == []
    assert not executors.exists()
    one = WrittenFile(
        path=str(drivers / "x.parquet"), event_date="", topic="t", youngest=(), rows=1,
        size_bytes=4, first_offset=0, last_offset=0, min_timestamp_ms=0, max_timestamp_ms=0,
    )  # fmt: skip
    with pytest.raises(NotShared, match=r"1 of 1 .*x.parquet \(4 bytes .*\) is not there"):
        files.check_files([one])
    Path(one.path).write_bytes(b"abc")
    with pytest.raises(NotShared, match="is of 3 bytes"):
        files.check_files([one])
    Path(one.path).write_bytes(b"abcd")
    files.check_files([one])
    assert code_of(NotShared("x")) == JobCode.USAGE


def test_the_broker_is_named_as_for_other_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["audit", "--topic", "t", "--state-dir", "d"]
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)
    assert launch._parser().parse_args(words).bootstrap == "127.0.0.1:9092"
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "broker:1")
    assert launch._parser().parse_args(words).bootstrap == "broker:1"
    assert launch._parser().parse_args([*words, "-b", "other:2"]).bootstrap == "other:2"

"""An archive whose lake and state are objects of a real S3 server (versitygw).

Spark runs in a process of its own, because its planner and its workers take the server's address
from the environment in which Java was started. The other tests run the tasks in this process.
"""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import BadOptions, StoreFailed
from pipeline.jobs.archive import ArchiveSettings, archive
from pipeline.jobs.outcome import JobCode
from pipeline.options.options import parse_source_options
from pipeline.plan import folders
from pipeline.plan.journal import Journal
from tests.pipeline.conftest import START_MS, Broker, expected
from tests.pipeline.test_union import read_rows
from tests.s3.server import BUCKET, S3Server, find_versitygw, s3_server

DAY_MS = 86_400_000
ROOT = Path(__file__).parents[2]

_PROGRAM = find_versitygw()
pytestmark = pytest.mark.skipif(_PROGRAM is None, reason="make spark-test installs versitygw")

SCRIPT = """
import json, sys
from pipeline.launch import main
from pipeline.plan.journal import Journal
from pipeline.spark.session import session, where
spark = session("local[2]", settings={"spark.driver.memory": "700m"})
bootstrap, topic, again, state, journal, folder, commands, window = sys.argv[1:]
base = {"kafka.bootstrap.servers": bootstrap}
codes = [main([*words, "-b", bootstrap]) for words in json.loads(commands)]
source = spark.read.format("tidelog").options(**base, subscribe=topic, archive=state)
strict = source.options(**json.loads(window)).load()
both = where(spark, {**base, "subscribe": topic, "archive": state}, "offset >= 0")
restored = spark.read.format("tidelog").options(**base, subscribe=again).load()
stream = spark.readStream.format("tidelog").options(**base, subscribe=topic)
stream = stream.options(startingOffsets="earliest", journalDir=journal, archive=state).load()
query = stream.writeStream.format("parquet").option("path", folder + "/out")
query = query.option("checkpointLocation", folder + "/check").trigger(availableNow=True).start()
query.awaitTermination()
streamed = spark.read.parquet(folder + "/out")
values = [
    sorted(bytes(row[0]).decode() for row in frame.select("value").collect())
    for frame in (both, strict, restored, streamed)
]
kept = Journal(journal).get("initial-offset")["offset"]["offsets"]
print(json.dumps([codes, values, kept]))
"""


class Death(Exception):
    """The driver ends here."""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    assert _PROGRAM is not None
    folders._store_at.cache_clear()
    with s3_server(_PROGRAM, tmp_path) as started:
        for name, value in started.environment.items():
            monkeypatch.setenv(name, value)
        yield started
    folders._store_at.cache_clear()


def place(tmp_path: Path, name: str) -> str:
    return f"s3://{BUCKET}/{tmp_path.name}/{name}"


def settings_of(broker: Broker, topic: str, tmp_path: Path, lake: str) -> ArchiveSettings:
    return ArchiveSettings(
        options={**broker.options, "subscribe": topic},
        target=place(tmp_path, "lake"), state_dir=place(tmp_path, "state"), lake=lake,
    )  # fmt: skip


def page_commands(topic: str, again: str, at: str) -> list[list[str]]:
    """The commands of the page, with other names of topics and of the bucket."""
    page = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
    lines = re.findall(r"^tidelog spark (.* s3://lake/.*)$", page, re.M)
    assert [line.split()[0] for line in lines] == ["archive", "skew", "restore"]
    names = {"flights": topic, "again": again}
    return [
        [names.get(word, word.replace("s3://lake", at)) for word in line.split()] for line in lines
    ]


@pytest.mark.parametrize("lake", ["parquet", "delta"])
def test_topic_and_lake_are_one_table_and_the_commands_of_the_page_run(
    server: S3Server, no_spark: Any, broker: Broker, tmp_path: Path, lake: str
) -> None:
    """Two batches over three days, the second by the page's command; the topic keeps a part."""
    topic, again = broker.topic(2), broker.topic(2)
    at = f"s3://{BUCKET}/{tmp_path.name}"
    settings = ArchiveSettings(
        options={**broker.options, "subscribe": topic}, target=f"{at}/flights",
        state_dir=f"{at}/flights-state", lake=lake,
    )  # fmt: skip
    for partition in range(2):
        broker.produce(topic, partition, 18, step_ms=DAY_MS // 6)
    assert archive(no_spark, settings).report["rows"] == 36
    for partition in range(2):
        broker.delete_before(topic, partition, 15)
        broker.produce(topic, partition, 2, first=18, start_ms=START_MS + 9 * DAY_MS)
    commands = page_commands(topic, again, at)
    commands[0] += ["--format", lake]
    window = {
        "timeWindow": "strict", "startingTimestamp": str(START_MS + DAY_MS),
        "endingTimestamp": str(START_MS + 2 * DAY_MS),
    }  # fmt: skip
    answer = subprocess.run(
        [sys.executable, "-c", SCRIPT, broker.bootstrap, topic, again, settings.state_dir,
         f"{at}/journal", str(tmp_path), json.dumps(commands), json.dumps(window)],
        capture_output=True, text=True, timeout=500, check=False, cwd=ROOT,
        env={**os.environ, **server.environment},
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr[-3000:]
    codes, (both, strict, restored, streamed), kept = json.loads(answer.stdout.splitlines()[-1])
    assert codes == [0, 0, 0]
    everything = sorted(expected((0, 20), (0, 20)))
    assert both == restored == streamed == everything
    assert strict == sorted(expected((6, 12), (6, 12)))
    assert kept == {topic: {"0": 0, "1": 0}}
    if lake == "delta":
        import deltalake

        from pipeline.jobs.lake import STORAGE

        table = deltalake.DeltaTable(settings.target, storage_options=STORAGE)
        assert table.to_pyarrow_table(columns=["offset"]).num_rows == 40


def archived(broker: Broker, topic: str, state_dir: str) -> list[str]:
    """The values of a topic and its archive as one table."""
    named = {**broker.options, "subscribe": topic, "archive": state_dir}
    rows = read_rows(broker, parse_source_options(named, is_stream=False))
    return [row[3].decode() for row in sorted(rows)]


@pytest.mark.parametrize("lake", ["parquet", "delta"])
def test_deaths_of_the_driver_archive_each_row_once(
    server: S3Server, no_spark: Any, broker: Broker, tmp_path: Path, lake: str
) -> None:
    topic = broker.topic(1)
    settings = settings_of(broker, topic, tmp_path, lake)
    for death, fatal in enumerate(("plan", "write", "commit") * 2):
        broker.produce(topic, 0, 3, first=death * 3)

        def die(step: str, fatal: str = fatal) -> None:
            if step == fatal:
                raise Death

        with pytest.raises(Death):
            archive(no_spark, settings, die)
        if death % 2:
            assert archive(no_spark, settings).code == JobCode.DONE
    while archive(no_spark, settings).code == JobCode.DONE:
        pass
    broker.delete_before(topic, 0, 18)
    assert archived(broker, topic, settings.state_dir) == expected((0, 18))


def test_a_store_that_is_away_fails_the_run_and_the_next_one_finishes_it(
    no_spark: Any,
    broker: Broker,
    server: S3Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = broker.topic(1)
    settings = settings_of(broker, topic, tmp_path, "parquet")
    broker.produce(topic, 0, 5)
    monkeypatch.setattr(folders, "_RETRIES", 0)
    folders._store_at.cache_clear()

    def stop(step: str) -> None:
        if step == "commit":
            server.stop()

    with pytest.raises(StoreFailed):
        archive(no_spark, settings, stop)
    server.start()
    assert archive(no_spark, settings).report["rows"] == 5
    assert archive(no_spark, settings).code == JobCode.NOTHING_TO_DO
    broker.delete_before(topic, 0, 5)
    assert archived(broker, topic, settings.state_dir) == expected((0, 5))


def test_of_many_writers_one_wins_and_all_continue_with_its_decision(
    server: S3Server, tmp_path: Path
) -> None:
    answers: list[Any] = []
    begin = threading.Barrier(8)

    def decide(number: int) -> None:
        journal = Journal(place(tmp_path, "state"))
        begin.wait()
        answers.append(journal.put("plans/00000000", {"writer": number}))

    threads = [threading.Thread(target=decide, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = Journal(place(tmp_path, "state")).get("plans/00000000")
    assert answers == [kept] * 8


def test_iceberg_is_refused_with_the_cure(
    server: S3Server, tmp_path: Path, broker: Broker, no_spark: Any
) -> None:
    settings = ArchiveSettings(
        options={**broker.options, "subscribe": broker.topic(1)}, target="lake.events",
        state_dir=place(tmp_path, "state"), lake="iceberg",
    )  # fmt: skip
    with pytest.raises(BadOptions, match="Iceberg's catalogue and files"):
        archive(no_spark, settings)

"""Every snippet of docs/spark.md, run as it stands there; only addresses and places are exchanged.

What needs a cluster is in `test_cluster`; what installs packages is left out.
"""

import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.launch import main
from tests.pipeline.conftest import Broker
from tests.support.schema_registry import fake_registry
from tidelog import spark as tidelog_spark

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
JULY_4_MS = 1_372_896_000_000
MINUTE_MS = 60_000


def blocks(language: str) -> list[str]:
    """The fenced blocks of the page in one language."""
    text = PAGE.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


def snippet(word: str, language: str = "python") -> str:
    """The first block of the page that contains `word`."""
    return next(block for block in blocks(language) if word in block)


def submission(application: str) -> list[str]:
    """The words of the command that submits `application` to a cluster."""
    joined = re.sub(r" \\\n\s+", " ", "".join(blocks("sh")))
    lines = [line for line in joined.splitlines() if "spark-submit " in line]
    return next(shlex.split(line) for line in lines if f" {application}" in line)


def job_examples() -> list[str]:
    """The commands in the table of jobs."""
    text = PAGE.read_text(encoding="utf-8")
    return re.findall(r"^\| [a-z-]+ \| `(tidelog spark [^`]+)` \|$", text, re.M)


@pytest.fixture
def flights(tmp_path: Path, spark: SparkSession) -> Any:
    """A broker with what the page speaks of: flights of 4 July 2013, and the other topics."""
    running = Broker(tmp_path / "data")
    for name in ("flights", "copies", "again"):
        running.topic(2, name)
    for partition in range(2):
        running.produce("flights", partition, 50, start_ms=JULY_4_MS, step_ms=MINUTE_MS)
    yield running
    running.stop()


def test_the_python_of_the_page_runs_as_written(
    spark: SparkSession, flights: Broker, tmp_path: Path
) -> None:
    names: dict[str, Any] = {}
    for word in ("spark.session()", "spark.where(", "spark.watch(", "journalDir"):
        here = snippet(word).replace("127.0.0.1:9092", flights.bootstrap)
        exec(here.replace("/data/q1", str(tmp_path / "q1")), names)
    assert names["flights"].count() == 100
    assert names["morning"].count() == 30
    assert (tmp_path / "q1" / "checkpoint" / "commits" / "0").exists()
    spark.streams.removeListener(names["listener"])


def test_the_table_over_topic_and_lake_runs_as_written(
    flights: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the records are only in the lake, and half only in the topic.

    The session is one that starts in the directory from which the relative path counts.
    """
    monkeypatch.chdir(tmp_path)
    archive = next(line for line in job_examples() if " archive " in line)
    words = shlex.split(re.sub(r" \[[^\]]*\]", "", archive))[2:]
    assert main([*words, "-b", flights.bootstrap]) == 0
    for partition in range(2):
        flights.delete_before("flights", partition, 50)
        flights.produce("flights", partition, 50, start_ms=JULY_4_MS, step_ms=MINUTE_MS)
    script = tmp_path / "union.py"
    script.write_text(
        "from tidelog import spark\nsession = spark.session('local[2]')\n"
        + snippet("archive").replace("127.0.0.1:9092", flights.bootstrap)
        + "print(fourth.count(), fourth.select('partition', 'offset').distinct().count())\n"
    )
    answer = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=300, check=False
    )
    assert answer.returncode == 0, answer.stderr[-3000:]
    assert answer.stdout.splitlines()[-1] == "200 200"


def test_history_from_the_bucket_is_read_as_written(spark: SparkSession, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/bucket"
    broker = Broker(tmp_path / "data", f"remote.storage.url={url}")
    try:
        topic = broker.topic(2, "flights", segment_bytes="400", remote_storage_enable="true")
        for partition in range(2):
            for first in range(0, 50, 10):
                broker.produce(
                    topic, partition, 10, first=first, start_ms=JULY_4_MS, step_ms=MINUTE_MS
                )
        deadline = time.monotonic() + 60
        while len(list((tmp_path / "bucket").rglob("*.segment"))) < 2:
            assert time.monotonic() < deadline, "nothing was uploaded"
            time.sleep(0.2)
        names: dict[str, Any] = {"session": spark}
        here = snippet("segments.remote").replace("s3://my-bucket/history", url)
        exec(here.replace("127.0.0.1:9092", broker.bootstrap), names)
        assert names["flights"].count() == 100
    finally:
        broker.stop()


def test_the_values_of_the_page_are_decoded_and_encoded_as_written(
    spark: SparkSession, flights: Broker
) -> None:
    """A record that is no Avro comes beside them, so that each frame of the page has rows."""
    flight = {
        "type": "record",
        "name": "Flight",
        "fields": [{"name": "tail", "type": "string"}, {"name": "delay", "type": "int"}],
    }
    for name in ("typed-flights", "delays"):
        flights.topic(1, name)
    flights.produce("typed-flights", 0, 1)
    with fake_registry() as registry:
        registry.register("typed-flights-value", flight)
        values = spark.range(100).selectExpr("named_struct('tail', 'N1', 'delay', int(id)) value")
        encoded = tidelog_spark.encode(values, registry.url, "typed-flights-value")
        sink = encoded.write.format("tidelog").mode("append").options(**flights.options)
        sink.option("topic", "typed-flights").save()
        names: dict[str, Any] = {"session": spark}
        for word in ("spark.decode(", "spark.encode("):
            here = snippet(word).replace("http://127.0.0.1:8081", registry.url)
            exec(here.replace("127.0.0.1:9092", flights.bootstrap), names)
        assert names["late"].columns == ["timestamp", "tail", "delay"]
        assert names["late"].count() == 39
        (bad,) = names["unreadable"].collect()
        assert bytes(bad.bytes) == b"v0"
        delays = spark.read.format("tidelog").options(**flights.options, subscribe="delays")
        found = tidelog_spark.decode(delays.load(), registry.url, "delays-value")
        assert [row[0] for row in found.select("value.delay").orderBy("delay").collect()] == list(
            range(1, 100)
        )


def test_the_jobs_of_the_page_run_as_written(
    flights: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an empty directory, one after the other, with the broker's address added."""
    other = Broker(tmp_path / "other")
    try:
        with flights.cluster() as cluster:
            cluster.commit("g", {("flights", 0): 10})
        other.topic(2, "flights")
        other.produce("flights", 0, 50, start_ms=JULY_4_MS, step_ms=MINUTE_MS)
        monkeypatch.chdir(tmp_path)
        examples = job_examples()
        assert len(examples) == 12
        for example in examples:
            line = example.replace("other:9092", other.bootstrap)
            # What stands in brackets may be left out.
            words = shlex.split(re.sub(r" \[[^\]]*\]", "", line))[2:]
            assert main([*words, "-b", flights.bootstrap]) == 0, example
            if words[0] == "archive" and words[-1] == "iceberg":
                # A second batch, so that there are files to join.
                flights.produce("flights", 0, 10, start_ms=JULY_4_MS, step_ms=MINUTE_MS)
                assert main([*words, "-b", flights.bootstrap]) == 0
    finally:
        other.stop()
    assert {path.name for path in tmp_path.iterdir()} >= {"lake", "state"}

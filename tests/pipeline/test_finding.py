"""Spark finds the format by itself: sessions that no line of ours has prepared."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql.datasource import DataSource

from pipeline.spark.session import prepare_environment
from tests.pipeline.conftest import Broker
from tests.support.kafka_peer import free_ports

ROOT = Path(__file__).parents[2]
PLAIN = """
import sys
from pyspark.sql import SparkSession
bootstrap, topic, pushdown = sys.argv[1:]
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.sql.python.filterPushdown.enabled", pushdown)
session = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "maxRecordsPerPartition": 10}
frame = session.read.format("tidelog").options(**options).load()
late = frame.where("offset >= 15")
named = f"('kafka.bootstrap.servers' '{bootstrap}', subscribe '{topic}')"
session.sql(f"CREATE TEMPORARY VIEW v USING tidelog OPTIONS {named}")
print(late.count(), late.rdd.getNumPartitions(), session.sql("SELECT * FROM v").count())
assert not {"tidelog", "pipeline", "pyspark_tidelog"} & sys.modules.keys()
"""
CONNECTED = """
import sys
from pyspark.sql import SparkSession
bootstrap, topic, copy, port, folder = sys.argv[1:]
settings = {
    "spark.connect.grpc.binding.port": port, "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false",
    "spark.sql.python.filterPushdown.enabled": "true",
}
builder = SparkSession.builder.remote("local[1]")
for name, value in settings.items():
    builder = builder.config(name, value)
session = builder.getOrCreate()
assert "connect" in type(session).__module__
base = {"kafka.bootstrap.servers": bootstrap}
frame = session.read.format("tidelog").options(**base, subscribe=topic).load()
counts = [frame.where("offset >= 15").count(), frame.count()]
from tidelog import spark
spread = spark.by_partition(frame.select("key", "value", "timestamp"), bootstrap, copy)
spread.write.format("tidelog").mode("append").options(**base, topic=copy).save()
from pipeline.jobs.archive import ArchiveSettings, archive
settings = ArchiveSettings(
    options={**base, "subscribe": copy}, target=folder + "/lake", state_dir=folder + "/state"
)
counts.append(archive(session, settings).report["rows"])
both = session.read.format("tidelog").options(**base, subscribe=copy, archive=folder + "/state")
print(*counts, both.load().count())
"""


def run(script: str, *arguments: str, **environment: str) -> str:
    """The last line of a script in an environment that is not activated."""
    prepare_environment()
    known = {name: text for name, text in os.environ.items() if "PYSPARK" not in name}
    bare = {"PATH": "/usr/local/bin:/usr/bin:/bin", **environment}
    answer = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True, text=True, timeout=300, check=False, cwd=ROOT, env={**known, **bare},
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr[-3000:]
    return answer.stdout.splitlines()[-1]


@pytest.mark.core
@pytest.mark.parametrize(("pushdown", "tasks"), [("true", 1), ("false", 3)])
def test_a_session_that_was_not_prepared_finds_the_format(
    broker: Broker, pushdown: str, tasks: int
) -> None:
    """Filters narrow the plan where Spark's setting is on, and are no error where it is off."""
    topic = broker.topic(1)
    broker.produce(topic, 0, 21)
    found = run(PLAIN, broker.bootstrap, topic, pushdown, PYSPARK_PYTHON=sys.executable)
    assert found == f"6 {tasks} 21"


@pytest.mark.slow
def test_spark_connect_reads_writes_archives_and_reads_both(broker: Broker, tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="Spark Connect is an extra of PySpark; make spark-setup")
    topic, copy = broker.topic(1), broker.topic(2)
    broker.produce(topic, 0, 21)
    (port,) = free_ports(1)
    arguments = (broker.bootstrap, topic, copy, str(port), str(tmp_path))
    assert run(CONNECTED, *arguments, PYSPARK_PYTHON=sys.executable) == "6 21 21 21"


def test_a_missing_package_is_named_by_the_format_and_breaks_no_other_source(
    tmp_path: Path,
) -> None:
    """Spark imports the module in every session, also where the extra is not installed."""
    (tmp_path / "pyarrow.py").write_text("raise ModuleNotFoundError('gone', name='pyarrow')\n")
    script = (
        "import pyspark_tidelog as found\n"
        "try: found.DefaultSource({}).schema()\n"
        "except ModuleNotFoundError as error: print(found.DefaultSource.name(), error)\n"
    )
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    assert "tidelog format tidelog needs the Python package pyarrow" in run(script, PYTHONPATH=path)


def test_the_class_travels_by_its_name() -> None:
    from pyspark_tidelog import DefaultSource

    assert issubclass(DefaultSource, DataSource)
    assert pickle.loads(pickle.dumps(DefaultSource)) is DefaultSource

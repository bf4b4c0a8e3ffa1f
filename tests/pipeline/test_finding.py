"""Spark finds the format by itself: sessions that no line of ours has prepared."""

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql.datasource import DataSource

from pipeline.spark.session import prepare_environment
from tests.pipeline.conftest import Broker

ROOT = Path(__file__).parents[2]
NULL_CHECK = "arrow.enable_null_check_for_get"
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
whole = session.sql("SELECT * FROM v")
print(late.count(), late.rdd.getNumPartitions(), frame.count(), whole.count())
assert not {"tidelog", "pipeline", "pyspark_tidelog"} & sys.modules.keys()
"""
SERVER = """
import sys
from pyspark.sql import SparkSession
settings = {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.port": "0", "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false",
    "spark.sql.python.filterPushdown.enabled": "true",
}
builder = SparkSession.builder.master("local[1]")
for name, value in settings.items():
    builder = builder.config(name, value)
session = builder.getOrCreate()
service = "org.apache.spark.sql.connect.service.SparkConnectService$"
print(getattr(getattr(session._jvm, service), "MODULE$").localPort(), flush=True)
sys.stdin.read()
session.stop()
"""
CONNECTED = """
import sys
from pyspark.sql import SparkSession
bootstrap, topic, copy, port, folder = sys.argv[1:]
session = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
assert "connect" in type(session).__module__
base = {"kafka.bootstrap.servers": bootstrap}
frame = session.read.format("tidelog").options(**base, subscribe=topic).load()
counts = [frame.where("offset >= 15").count(), frame.count()]
from tidelog import spark
narrowed = spark.where(session, {**base, "subscribe": topic}, "timestamp < '2024' AND offset < 4")
counts.append(narrowed.count())
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
@pytest.mark.parametrize("pushdown", ["true", "false"])
def test_a_session_that_was_not_prepared_finds_the_format(broker: Broker, pushdown: str) -> None:
    """Whether Spark offers filters or not: the frame is read whole, before and after one."""
    topic = broker.topic(1)
    broker.produce(topic, 0, 21)
    found = run(PLAIN, broker.bootstrap, topic, pushdown, PYSPARK_PYTHON=sys.executable)
    assert found == "6 3 21 21"


@pytest.mark.slow
def test_spark_connect_reads_writes_archives_and_reads_both(broker: Broker, tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="Spark Connect is an extra of PySpark; make spark-setup")
    topic, copy = broker.topic(1), broker.topic(2)
    broker.produce(topic, 0, 21)
    with connect_server() as port:
        arguments = (broker.bootstrap, topic, copy, port, str(tmp_path))
        assert run(CONNECTED, *arguments, PYSPARK_PYTHON=sys.executable) == "6 21 4 21 21"


@contextmanager
def connect_server() -> Iterator[str]:
    """A server of Spark Connect in a process of its own; its port, chosen by the system.

    `remote("local[1]")` would not do: it calls port 15002 whatever the server's port is.
    """
    prepare_environment()
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        cwd=ROOT, env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        port = process.stdout.readline().strip()
        assert port.isdigit(), "the server ended at its start"
        yield port
    finally:
        process.stdin.close()
        process.wait(timeout=60)
        process.stdout.close()


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


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "false 1 A 3"),
        ({"spark.driver.extraJavaOptions": f"-D{NULL_CHECK}=true"}, "true 1 A 3"),
        ({"spark.driver.defaultJavaOptions": "-Db=mine"}, "false None mine 3"),
    ],
)
def test_the_java_options_of_the_site_and_of_the_caller_stay(
    tmp_path: Path, settings: dict[str, str], expected: str
) -> None:
    """A file as Java reads it: another encoding, a continued line, an escape."""
    site = b"# Z\xfcrich\nspark.driver.defaultJavaOptions -Da=1 \\\n    -Db=\\u0041\n"
    (tmp_path / "spark-defaults.conf").write_bytes(site)
    script = (
        "import os\n"
        "from pipeline.spark.session import session\n"
        f"system = session('local[1]', settings={settings!r})._jvm.java.lang.System\n"
        f"print(*(system.getProperty(name) for name in ('{NULL_CHECK}', 'a', 'b', 'c')))\n"
        "assert os.environ['SPARK_SUBMIT_OPTS'] == '-Dc=3'\n"
    )
    found = run(script, SPARK_CONF_DIR=str(tmp_path), SPARK_SUBMIT_OPTS="-Dc=3")
    assert expected in found

"""A session of the user's own, from an environment that is not activated and has no pandas."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.spark.session import prepare_environment
from tests.pipeline.conftest import Broker

SCRIPT = """
import sys
from pyspark.sql import SparkSession
from tidelog import spark
bootstrap, topic = sys.argv[1:]
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
session = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
spark.register(session)
options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
frame = session.read.format("tidelog").options(**options).load()
spread = spark.by_partition(frame.select("key", "value"), bootstrap, topic)
keys = spread.groupBy("key").count().collect()
print(frame.count(), sorted(row["count"] for row in keys))
"""


@pytest.mark.core
def test_workers_run_this_python_and_need_no_pandas(broker: Broker, tmp_path: Path) -> None:
    topic = broker.topic(2)
    broker.produce(topic, 0, 21)
    prepare_environment()
    (tmp_path / "pandas.py").write_text("raise ModuleNotFoundError('no pandas', name='pandas')\n")
    bare = {"PATH": "/usr/local/bin:/usr/bin:/bin", "PYTHONPATH": str(tmp_path)}
    environment = {name: text for name, text in os.environ.items() if "PYSPARK" not in name}
    answer = subprocess.run(
        [sys.executable, "-c", SCRIPT, broker.bootstrap, topic],
        capture_output=True, text=True, timeout=300, check=False,
        cwd=Path(__file__).parents[2], env={**environment, **bare},
    )  # fmt: skip
    assert answer.stdout.split(maxsplit=1) == ["21", "[3, 3, 3, 3, 3, 3, 3]\n"], answer.stderr[
        -3000:
    ]
    assert "pandas" not in answer.stderr.lower()

"""Beyond one process: two workers on loopback read, write and archive.

Once in Spark's own small cluster inside a driver, and once as a user has it: a standalone master
and two workers as processes, a job by spark-submit, and the package from the zip. Each driver runs
in a process of its own, because a process has one Spark session.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.launch import main
from tests.pipeline.conftest import Broker
from tests.support.kafka_peer import answers, free_ports

SCRIPT = """
import json, sys
from pipeline.jobs.archive import ArchiveSettings, archive
from pipeline.session import by_partition, session
bootstrap, origin, copy, folder = sys.argv[1:]
spark = session(
    "local-cluster[2,1,900]",
    settings={
        "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false", "spark.executor.memory": "900m", "spark.log.level": "ERROR",
    },
)
base = {"kafka.bootstrap.servers": bootstrap}
frame = spark.read.format("tidelog").options(**base, subscribe=origin, minPartitions="4").load()
count = frame.count()
spread = by_partition(frame.select("key", "value", "timestamp", "partition"), bootstrap, copy)
sink = {**base, "topic": copy, "delivery": "exactly-once", "transactionalIdPrefix": copy}
spread.write.format("tidelog").mode("append").options(**sink).save()
copied = spark.read.format("tidelog").options(**base, subscribe=copy).load().count()
settings = ArchiveSettings(
    options={**base, "subscribe": copy}, target=folder + "/lake", state_dir=folder + "/state"
)
archived = archive(spark, settings).report["rows"]
workers = len(spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()) - 1
print(json.dumps([count, copied, archived, workers]))
"""


def test_a_standalone_cluster_of_two_workers(broker: Broker, tmp_path: Path) -> None:
    origin, copy = broker.topic(2), broker.topic(2)
    for partition in range(2):
        broker.produce(origin, partition, 500, first=500 * partition)
    answer = subprocess.run(
        [sys.executable, "-c", SCRIPT, broker.bootstrap, origin, copy, str(tmp_path)],
        capture_output=True, text=True, timeout=500, check=False, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr[-3000:]
    assert json.loads(answer.stdout.splitlines()[-1]) == [1000, 1000, 1000, 2]


@pytest.fixture
def spark_home() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent


@pytest.fixture
def master(spark_home: Path, tmp_path: Path) -> Iterator[str]:
    """The address of a standalone master with two workers of one core each, all on loopback."""
    from pipeline.session import prepare_environment

    prepare_environment()
    port, *pages = free_ports(4)
    started: list[subprocess.Popen[bytes]] = []

    def start(kind: str, page: int, *arguments: str) -> None:
        # The workers have nothing of ours but the zip that comes with the job.
        environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
        environment.pop("PYTHONPATH", None)
        with (tmp_path / "daemons.log").open("ab") as log:
            started.append(
                subprocess.Popen(
                    [str(spark_home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}",
                     "--host", "127.0.0.1", "--webui-port", str(page), *arguments],
                    stdout=log, stderr=log, env=environment, cwd=tmp_path,
                )
            )  # fmt: skip

    url = f"spark://127.0.0.1:{port}"
    try:
        start("master.Master", pages[0], "--port", str(port))
        deadline = time.monotonic() + 120
        while not answers(port):
            assert time.monotonic() < deadline, (tmp_path / "daemons.log").read_text()[-2000:]
            time.sleep(0.2)
        for page in pages[1:]:
            work = str(tmp_path / f"work{page}")
            start("worker.Worker", page, "--cores", "1", "--memory", "900m", "-d", work, url)
        yield url
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(60)


@pytest.mark.slow
def test_spark_submit_runs_a_job_on_standalone_workers_out_of_the_zip(
    broker: Broker, spark_home: Path, master: str, tmp_path: Path
) -> None:
    topic = broker.topic(2)
    for partition in range(2):
        broker.produce(topic, partition, 500, first=500 * partition)
    bundle = tmp_path / "tidelog-spark.zip"
    assert main(["bundle", "--output", str(bundle)]) == 0
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment.pop("PYTHONPATH", None)

    def submit() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(spark_home / "bin" / "spark-submit"), "--master", master,
             "--py-files", str(bundle), "--conf", "spark.executor.memory=700m",
             "--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=127.0.0.1",
             "--conf", "spark.log.level=ERROR",
             str(tmp_path / "tidelog-spark-job.py"), "archive", "-b", broker.bootstrap,
             "--topic", topic, "--target", str(tmp_path / "lake"),
             "--state-dir", str(tmp_path / "state"), "--json"],
            capture_output=True, text=True, timeout=400, check=False, cwd=tmp_path,
            env=environment,
        )  # fmt: skip

    first = submit()
    assert first.returncode == 0, first.stderr[-3000:]
    assert json.loads(first.stdout.splitlines()[-1])["rows"] == 1000
    again = submit()
    assert again.returncode == 7, again.stderr[-3000:]

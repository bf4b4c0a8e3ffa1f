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

import pyarrow.parquet as pq
import pytest

from pipeline.launch import main
from tests.pipeline.conftest import Broker
from tests.pipeline.test_documentation import blocks, submission
from tests.support.kafka_peer import answers, free_ports

LAUNCHER = "tidelog-spark-job.py"
SCRIPT = """
import json, sys
from pipeline.jobs.archive import ArchiveSettings, archive
from pipeline.spark.session import by_partition, session
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
    from pipeline.spark.session import prepare_environment

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


class Submit:
    """The commands of docs/spark.md, run in a directory of their own."""

    def __init__(self, broker: Broker, spark_home: Path, master: str, folder: Path) -> None:
        self.folder = folder
        self._broker, self._home, self._master = broker, spark_home, master
        assert main(["bundle", "--output", str(folder / "tidelog-spark.zip")]) == 0

    def job(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A job of the launcher that is written beside the zip."""
        words = submission(LAUNCHER)
        words = [*words[: words.index(LAUNCHER) + 1], *arguments]
        return self.run(*words, "-b", self._broker.bootstrap, "--json")

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A spark-submit: the page's, with the address of this cluster and less memory."""
        environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
        environment.pop("PYTHONPATH", None)
        if words[0].startswith("PYTHONPATH="):
            environment["PYTHONPATH"] = words[0].removeprefix("PYTHONPATH=")
            words = words[1:]
        program, *rest = [self._master if one == "spark://host:7077" else one for one in words]
        settings = {
            "spark.executor.memory": "700m", "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1", "spark.log.level": "ERROR",
        }  # fmt: skip
        named = [part for pair in settings.items() for part in ("--conf", "=".join(pair))]
        return subprocess.run(
            [str(self._home / "bin" / program), *named, *rest],
            capture_output=True, text=True, timeout=400, check=False, cwd=self.folder,
            env=environment,
        )  # fmt: skip


@pytest.fixture
def submit(broker: Broker, spark_home: Path, master: str, tmp_path: Path) -> Submit:
    folder = tmp_path / "user"
    folder.mkdir()
    return Submit(broker, spark_home, master, folder)


@pytest.mark.slow
def test_the_example_of_the_docs_archives_and_restores_on_standalone_workers_out_of_the_zip(
    broker: Broker, submit: Submit
) -> None:
    """Relative paths once meant the working directory of each executor, and all was lost."""
    topic, again = broker.topic(2), broker.topic(2)
    for partition in range(2):
        broker.produce(topic, partition, 500, first=500 * partition)
    words = submission(LAUNCHER)
    archive = [topic if one == "flights" else one for one in words[words.index(LAUNCHER) + 1 :]]
    first = submit.job(*archive)
    assert first.returncode == 0, first.stderr[-3000:]
    assert json.loads(first.stdout.splitlines()[-1])["rows"] == 1000
    assert submit.job(*archive).returncode == 7
    files = list((submit.folder / "lake").rglob("*.parquet"))
    assert sum(pq.read_metadata(file).num_rows for file in files) == 1000
    restored = submit.job(
        "restore", "--source", "lake", "--state-dir", "state", "--topic", again, "--name", "r1",
    )  # fmt: skip
    assert restored.returncode == 0, restored.stderr[-3000:]
    assert json.loads(restored.stdout.splitlines()[-1])["rows"] == 1000
    assert [end >= 500 for end in broker.ends(again)] == [True, True]


@pytest.mark.slow
def test_a_query_of_the_page_runs_on_standalone_workers_out_of_the_zip(
    broker: Broker, submit: Submit
) -> None:
    topic = broker.topic(2)
    for partition in range(2):
        broker.produce(topic, partition, 500, first=500 * partition)
    query = blocks("python")[0].replace("127.0.0.1:9092", broker.bootstrap)
    query = query.replace('"flights")', f'"{topic}")').replace("2013-07-0", "2023-11-1")
    (submit.folder / "your_query.py").write_text(f"{query}\nprint('rows', flights.count())\n")
    read = submit.run(*submission("your_query.py"))
    assert read.stdout.splitlines()[-1] == "rows 1000", read.stderr[-3000:]


@pytest.mark.slow
def test_a_query_without_a_line_of_ours_finds_the_format_in_the_zip(
    broker: Broker, submit: Submit
) -> None:
    topic = broker.topic(2)
    for partition in range(2):
        broker.produce(topic, partition, 500, first=500 * partition)
    query = (
        "from pyspark.sql import SparkSession\n"
        "frame = SparkSession.builder.getOrCreate().read.format('tidelog')\n"
        f"frame = frame.options(**{{'kafka.bootstrap.servers': '{broker.bootstrap}'}})\n"
        f"frame = frame.option('subscribe', '{topic}').load()\n"
        "print('rows', frame.count())\n"
    )
    (submit.folder / "plain_query.py").write_text(query)
    read = submit.run(*submission("plain_query.py"))
    assert read.stdout.splitlines()[-1:] == ["rows 1000"], read.stderr[-3000:]


@pytest.mark.slow
def test_a_target_that_executors_do_not_share_fails_before_the_state_advances(
    broker: Broker, submit: Submit
) -> None:
    """/proc/self/cwd is one path and another directory in every process, like a local disk."""
    topic = broker.topic(2)
    broker.produce(topic, 0, 500)
    archive = ("archive", "--topic", topic, "--state-dir", "state", "--target")
    lost = submit.job(*archive, "/proc/self/cwd/lake")
    assert lost.returncode == 2, lost.stderr[-3000:]
    # Spark prints both of a Python driver's outputs as its own output.
    assert "target '/proc/self/cwd/lake' is not the driver's directory" in lost.stdout
    assert "Mount one shared file system" in lost.stdout
    state = submit.folder / "state"
    assert not (state / "files").exists()
    assert not (state / "commits").exists()
    assert not list(submit.folder.parent.rglob("*.parquet"))
    assert not list(submit.folder.rglob("_probe*"))
    shared = submit.job(*archive, "lake")
    assert shared.returncode == 0, shared.stderr[-3000:]
    assert json.loads(shared.stdout.splitlines()[-1])["rows"] == 500

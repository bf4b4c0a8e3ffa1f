"""Beyond one process: a standalone master with two workers on loopback reads, writes, archives.

It runs in a process of its own, because a process has one Spark session.
"""

import json
import subprocess
import sys
from pathlib import Path

from tests.pipeline.conftest import Broker

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

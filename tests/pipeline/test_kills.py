"""Twenty real deaths: a driver kills itself, its JVM and its tasks with SIGKILL at a chosen step.

Every run copies a topic exactly once and archives the copy, from the same checkpoint and state. It
dies in turn where a crash could hurt: after a plan, amid the writing, and after the writing before
the commit, in the sink and in the archive. The last two live, and every row is there once.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.conftest import Broker, expected

STEPS = ("sink plan", "sink write", "sink commit", "plan", "write", "commit")
DEATHS = 20
ROWS = 20

DRIVER = """
import json, os, signal, sys
from pipeline.jobs.archive import ArchiveSettings, archive
from pipeline.jobs.restore import read_archive
from pipeline.options.options import parse_sink_options
from pipeline.spark.session import session
from pipeline.spark.stream_sink import StreamWriter
from pipeline.spark.source import TidelogSource

bootstrap, origin, copy, folder, fatal = sys.argv[1:]
group = os.getpgid(0)

def reach(step):
    if step == fatal:
        open(folder + "/died", "w").write(step)
        os.killpg(group, signal.SIGKILL)
        os._exit(1)

class DeadlyWriter(StreamWriter):
    def write(self, iterator):
        reach("sink plan")
        return super().write(self.by_row(iterator))
    def by_row(self, iterator):
        for batch in iterator:
            for row in range(batch.num_rows):
                if row == batch.num_rows // 2:
                    reach("sink write")
                yield batch.slice(row, 1)
    def commit(self, messages, batchId):
        reach("sink commit")

class DeadlySource(TidelogSource):
    def streamWriter(self, schema, overwrite):
        return DeadlyWriter(parse_sink_options(dict(self.options)), schema)

spark = session("local[2]", settings={"spark.driver.memory": "700m"})
spark.dataSource.register(DeadlySource)
base = {"kafka.bootstrap.servers": bootstrap}
query = (
    spark.readStream.format("tidelog").options(**base, subscribe=origin)
    .options(startingOffsets="earliest", journalDir=folder + "/journal").load()
    .select("key", "value", "timestamp", "partition").repartition("partition")
    .writeStream.format("tidelog").options(**base, topic=copy, delivery="exactly-once")
    .options(transactionalIdPrefix=copy, batchBytes="64", checkpointLocation=folder + "/check")
    .trigger(availableNow=True).start()
)
query.awaitTermination()
committed = {**base, "subscribe": copy, "kafka.isolation.level": "read_committed"}
settings = ArchiveSettings(options=committed, target=folder + "/lake", state_dir=folder + "/state")
archive(spark, settings, reach)
copied = spark.read.format("tidelog").options(**committed).load()
kept = read_archive(spark, settings.target, settings.state_dir)
bare = spark.read.parquet(settings.target)
print(json.dumps([
    sorted(bytes(row[0]).decode() for row in frame.select("value").collect())
    for frame in (copied, kept, bare)
]))
"""


def run_driver(arguments: Sequence[str], step: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", DRIVER, *arguments, step], capture_output=True, text=True,
        timeout=300, check=False, start_new_session=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_twenty_killed_drivers_leave_every_row_once_in_topic_and_archive(
    broker: Broker, tmp_path: Path
) -> None:
    origin, copy = broker.topic(2), broker.topic(2)
    arguments = [broker.bootstrap, origin, copy, str(tmp_path)]
    for death in range(DEATHS):
        for partition in range(2):
            first = (2 * death + partition) * ROWS
            broker.produce(origin, partition, ROWS, first=first)
        step = STEPS[death % len(STEPS)]
        killed = run_driver(arguments, step)
        assert killed.returncode == -9, killed.stderr[-2000:]
        assert (tmp_path / "died").read_text() == step
        (tmp_path / "died").unlink()
    # One batch a run: the first ends the one that died so often, the second takes the rest.
    for _ in range(2):
        lived = run_driver(arguments, "")
        assert lived.returncode == 0, lived.stderr[-3000:]
    found: Any = json.loads(lived.stdout.splitlines()[-1])
    everything = sorted(expected((0, 2 * DEATHS * ROWS)))
    assert [len(values) for values in found] == [len(everything)] * 3
    assert found == [everything] * 3

"""One broker and one Spark session for all tests here; both on loopback, both small."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from protocol.api.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.api.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.api.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from protocol.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.structs import ConfigText as TopicConfigEntry
from protocol.time_windows import window_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from pipeline.net.cluster import Cluster

# Without the extra there is nothing to collect here; `make spark-test` installs it.
collect_ignore_glob = [] if find_spec("pyspark") else ["*"]

START_MS = 1_700_000_000_000
TEST_TIMEOUT_S = 600
"""Of a test without a limit of its own; a query starts several processes."""
QUERY_TIMEOUT_S = 300


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests here more time than the others: an interrupted one spoils the session."""
    for item in items:
        if Path(__file__).parent in item.path.parents and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(TEST_TIMEOUT_S))


class Broker:
    """A broker process over a directory, and the few things tests ask of it."""

    def __init__(self, directory: Path, *settings: str) -> None:
        self.directory = directory
        self.security: dict[str, str] = {}
        command = [sys.executable, "-m", "broker", f"log.dirs={directory}",
                   "listeners=PLAINTEXT://127.0.0.1:0", "metrics.listener=127.0.0.1:0",
                   "group.initial.rebalance.delay.ms=0",
                   "transaction.abort.timed.out.transaction.cleanup.interval.ms=1000",
                   *settings]  # fmt: skip
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            cwd=Path(__file__).parents[2], env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.port = int(line.split()[1].rpartition(":")[2])
        self.metrics = f"127.0.0.1:{line.split()[3]}"

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def options(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap, **self.security}

    def topic(self, partitions: int = 3, name: str = "", **settings: str) -> str:
        """Make a topic that keeps old records, with a name of its own; its name."""
        name = name or f"t{uuid.uuid4().hex[:10]}"
        configs = {"retention.ms": "-1", **{k.replace("_", "."): v for k, v in settings.items()}}
        with self.cluster() as cluster:
            answer = cluster.call(
                CreateTopicsRequest(
                    timeout_ms=10_000,
                    topics=[
                        CreatableTopic(
                            name=name,
                            num_partitions=partitions,
                            replication_factor=1,
                            configs=[TopicConfigEntry(name=k, value=v) for k, v in configs.items()],
                        )
                    ],
                )
            )
        assert not answer.topics[0].error_code, answer
        return name

    def cluster(self) -> Cluster:
        from pipeline.net.cluster import Cluster
        from pipeline.options.options import parse_sink_options

        return Cluster(parse_sink_options({**self.options, "topic": "x"}).connection)

    def ends(self, topic: str, *, read_committed: bool = False) -> list[int]:
        """The ends of all partitions of `topic`."""
        from pipeline.net.cluster import LATEST
        from pipeline.options.options import TopicChoice

        with self.cluster() as cluster:
            partitions = cluster.partitions(TopicChoice(names=(topic,)))
            found = cluster.list_offsets(
                dict.fromkeys(partitions, LATEST), read_committed=read_committed
            )
        return [found[tp].offset for tp in sorted(found)]

    def add_partitions(self, topic: str, count: int) -> None:
        """Have `topic` have `count` partitions."""
        with self.cluster() as cluster:
            answer = cluster.call(
                CreatePartitionsRequest(
                    topics=[CreatePartitionsTopic(name=topic, count=count, assignments=None)],
                    timeout_ms=10_000,
                )
            )
        assert not answer.results[0].error_code, answer

    def delete_topic(self, topic: str) -> None:
        """Delete `topic`, and return when the broker no longer knows it."""
        with self.cluster() as cluster:
            names, states = [topic], [DeleteTopicState(name=topic)]
            cluster.call(DeleteTopicsRequest(topic_names=names, topics=states, timeout_ms=10_000))
            deadline = time.monotonic() + 20
            while cluster.topics([topic]):
                assert time.monotonic() < deadline, f"{topic} is still there"
                time.sleep(0.1)

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Remove the records below `offset`, as retention would."""
        part = DeleteRecordsPartition(partition_index=partition, offset=offset)
        with self.cluster() as cluster:
            cluster.call(
                DeleteRecordsRequest(
                    topics=[DeleteRecordsTopic(name=topic, partitions=[part])], timeout_ms=10_000
                )
            )

    def produce(
        self,
        topic: str,
        partition: int,
        count: int,
        *,
        start_ms: int = START_MS,
        step_ms: int = 1000,
        first: int = 0,
        headers: tuple[tuple[bytes, bytes | None], ...] = (),
        transactional_id: str | None = None,
        abort: bool = False,
        **options: str,
    ) -> None:
        """Append `count` records with values v0, v1, ... a step of time apart."""
        from pipeline.net.producing import TaskProducer
        from pipeline.options.options import parse_sink_options

        parsed = parse_sink_options({**self.options, "topic": topic, **options})
        with self.cluster() as cluster:
            producer = TaskProducer(cluster, parsed, transactional_id=transactional_id)
            for number in range(first, first + count):
                producer.add(
                    topic, partition, start_ms + number * step_ms, b"k%d" % (number % 7),
                    b"v%d" % number, headers,
                )  # fmt: skip
            producer.flush()
            if transactional_id is not None:
                producer._end(committed=not abort)

    def stop(self) -> None:
        self.process.terminate()
        self.process.communicate(timeout=30)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    # Compaction and retention run at once where a topic asks for them.
    settings = ("log.cleaner.backoff.ms=500", "log.retention.check.interval.ms=500")
    folder = tmp_path_factory.mktemp("broker") / "data"
    running = Broker(folder, "time.windows.enable=true", *settings)
    yield running
    running.stop()


@pytest.fixture(scope="session")
def spark_settings() -> dict[str, str]:
    """Spark settings of the session; the connector's tests add its JARs."""
    return {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}


@pytest.fixture(scope="session")
def source_format() -> str:
    """The word for `format(...)` in `read`."""
    return "tidelog"


@pytest.fixture(scope="session")
def spark(spark_settings: dict[str, str]) -> Iterator[SparkSession]:
    from pipeline.spark.session import session as make_session

    # Two tries for a task: what fails once must not fail a query, and the tests kill tasks.
    running = make_session("local[2,2]", settings=spark_settings)
    yield running
    running.stop()


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The jobs with their tasks in this process; what stands for the session."""

    def run_tasks(_: Any, work: Callable[[Any], Any], tasks: Sequence[Any]) -> list[Any]:
        return [work(task) for task in tasks]

    for job in ("archive", "skew", "audit", "lateness", "compact_files"):
        monkeypatch.setattr(f"pipeline.jobs.{job}.run_tasks", run_tasks)


@pytest.fixture
def read(spark: SparkSession, broker: Broker, source_format: str) -> Any:
    """`read(topic, option=value, ...)`: a batch frame; `__` in a name stands for a dot."""

    def make(topic: str = "", **options: str) -> DataFrame:
        named = {name.replace("__", "."): value for name, value in options.items()}
        if topic:
            named.setdefault("subscribe", topic)
        return spark.read.format(source_format).options(**broker.options, **named).load()

    return make


@pytest.fixture(scope="module")
def topic(broker: Broker) -> str:
    """Partition 0: v0-v9 from START_MS, 1: v10-v19 from 10 s later, 2: v20 at 20 s."""
    name = broker.topic(3)
    broker.produce(name, 0, 10)
    broker.produce(name, 1, 10, first=10)
    broker.produce(name, 2, 1, first=20)
    return name


def finish(query: StreamingQuery) -> None:
    """Wait for the end of a query; stop one that does not end, so that no other test meets it."""
    try:
        assert query.awaitTermination(QUERY_TIMEOUT_S), f"no end after {QUERY_TIMEOUT_S} s"
    finally:
        query.stop()


def expected(*spans: tuple[int, int]) -> list[str]:
    """The values v{first} to v{end - 1} of each span."""
    return [f"v{number}" for first, end in spans for number in range(first, end)]


def values(frame: DataFrame) -> list[str]:
    """The values of a frame as text, sorted by partition and offset."""
    rows = frame.select("partition", "offset", "value").collect()
    return [bytes(row["value"]).decode() for row in sorted(rows)]


def window_equals_brute_force(broker: Broker, read: Any, **settings: str) -> None:
    """A window of a disordered topic, after what its settings remove, against a filter."""
    name = broker.topic(2, segment_bytes="300", **settings)
    for partition in range(2):
        for first in range(0, 60, 10):
            # Older and older ones in one batch, newer and newer ones in the next.
            step_ms = 1000 if first % 20 else -1000
            start_ms = START_MS + 40_000 - first * step_ms
            broker.produce(name, partition, 10, first=first, start_ms=start_ms, step_ms=step_ms)
    before, rows = None, _rows(read(name, failOnDataLoss="false"))
    deadline = time.monotonic() + QUERY_TIMEOUT_S
    while before != rows or (settings and len(rows) == 120):
        assert time.monotonic() < deadline, "nothing was compacted or deleted"
        time.sleep(2)
        # Retention may delete what this very query has planned to read.
        before, rows = rows, _rows(read(name, failOnDataLoss="false"))
    low, high = START_MS + 35_000, START_MS + 47_000
    kept = [row for row in rows if low <= row[2] < high]
    assert 2 < len(kept) < len(rows)
    assert _rows(read(window_name(name, low, high))) == kept


def _rows(frame: DataFrame) -> list[tuple[int, int, int, bytes]]:
    """Partition, offset, time in ms and value of each record, in the log's order."""
    time_ms = "CAST(unix_millis(timestamp) AS LONG) AS time_ms"
    found = frame.selectExpr("partition", "offset", time_ms, "value").collect()
    return sorted((row[0], row[1], row[2], bytes(row[3])) for row in found)


def offsets_json(topic: str, **partitions: int) -> str:
    """`offsets_json('t', p0=5)`: Spark's JSON of offsets or times by partition."""
    return json.dumps({topic: {name[1:]: number for name, number in partitions.items()}})

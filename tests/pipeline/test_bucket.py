"""Closed segments straight from the bucket: row for row what the broker answers.

The bucket is a folder, and a real S3 server (versitygw) where it is installed. Most tests run plan
and tasks in this process; those of Spark start one of its own, because its planner and workers take
the server's address from the environment in which Java was started.
"""

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from client.errors import ClientError
from pipeline.errors import BadOptions, DataLoss, StoreFailed
from pipeline.jobs.archive import ArchiveSettings, archive
from pipeline.jobs.skew import SkewSettings, skew
from pipeline.options.options import SourceOptions, parse_source_options
from pipeline.plan import bucket as bucket_module
from pipeline.plan.objects import store_at
from pipeline.plan.offsets import ReadPlan, plan_batch
from pipeline.spark.micro_batches import MicroBatchReader
from pipeline.spark.task import Columns, Task, read_task, tasks_of
from protocol.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from storage import errors
from storage.bucket.journal import read_state
from storage.remote import engine
from storage.segment.facts import RemoteObject
from storage.segment.manifest import parse_remote_lines
from tests.pipeline.conftest import START_MS, Broker, offsets_json
from tests.s3.server import BUCKET, find_versitygw, s3_server
from tests.support.cli import tidelog

ROOT = Path(__file__).parents[2]
COLUMNS = ("partition", "offset", "timestamp", "timestampType", "key", "value", "headers")
WAIT_S = 60
SMALL = {
    "segment_bytes": "600", "index_interval_bytes": "200", "remote_storage_enable": "true",
    "file_delete_delay_ms": "0",
}  # fmt: skip

Row = tuple[Any, ...]

SCRIPT = """
import json, sys
from pipeline.spark.session import session, where
spark = session("local[2]", settings={"spark.driver.memory": "700m"})
options, topic, folder, window = sys.argv[1:]
options = {**json.loads(options), "subscribe": topic}
frame = spark.read.format("tidelog").options(**options).load()
strict = spark.read.format("tidelog").options(**options, **json.loads(window)).load()
chosen = where(spark, options, "offset >= 10 AND offset < 30")
stream = spark.readStream.format("tidelog").options(**options)
stream = stream.options(startingOffsets="earliest", journalDir=folder + "/journal")
stream = stream.option("maxOffsetsPerTrigger", 50).load()
query = stream.writeStream.format("parquet").option("path", folder + "/out")
query = query.option("checkpointLocation", folder + "/check").trigger(availableNow=True).start()
query.awaitTermination()
streamed = spark.read.parquet(folder + "/out")
print(json.dumps([
    sorted(bytes(row[0]).decode() for row in one.select("value").collect())
    for one in (frame, strict, chosen, streamed)
] + [len(query.recentProgress)]))
"""


@dataclass
class Tier:
    """A broker with a bucket, and what a test asks of the two."""

    broker: Broker
    url: str
    gets: list[str] = field(default_factory=list)
    """The objects of segments whose log was asked for."""

    def options(self, topic: str, *, is_stream: bool = False, **named: str) -> SourceOptions:
        """Those of a query that reads the bucket, if `named` does not say otherwise."""
        given = {name.replace("__", "."): value for name, value in named.items()}
        given.setdefault("readFrom", "remote")
        if given["readFrom"] == "remote":
            given.setdefault("segments.remote", self.url)
        asked = {**self.broker.options, "subscribe": topic, "includeHeaders": "true", **given}
        return parse_source_options(asked, is_stream=is_stream)

    def plan(self, options: SourceOptions) -> ReadPlan:
        with self.broker.cluster() as cluster:
            return plan_batch(cluster, options, START_MS)

    def rows(self, topic: str, **named: Any) -> list[Row]:
        """The rows of a batch query, sorted by partition and offset."""
        options = self.options(topic, **named)
        return self.read(options, self.plan(options))

    def read(self, options: SourceOptions, plan: ReadPlan) -> list[Row]:
        tasks = tasks_of(plan.files, plan.tasks, plan.oldest_ms, plan.newest_ms, plan.objects)
        return sorted(row for task in tasks for row in rows_of(options, task))

    def stored(self, topic: str) -> list[RemoteObject]:
        """The objects that the bucket's journal names."""
        with self.broker.cluster() as cluster:
            topic_id = cluster.topic_id(topic)
            cluster_id = cluster.cluster_id
        if cluster_id not in engine.list_clusters(self.url):
            return []
        state = read_state(engine.open_store(self.url, cluster_id))
        return [
            parse_remote_lines(lines)[1]
            for key, lines in state.keys("segment")
            if key.topic_id.hex() == topic_id
        ]

    def there(self, topic: str) -> list[str]:
        """The objects of a topic that the store has."""
        with self.broker.cluster() as cluster:
            store, topic_id = (
                engine.open_store(self.url, self.cluster_id),
                cluster.topic_id(topic),
            )
        return [one.key for one in store.list_objects(f"{topic_id}/")]

    @property
    def cluster_id(self) -> str:
        with self.broker.cluster() as cluster:
            cluster.topics(None)
            return cluster.cluster_id

    def upload(self, topic: str) -> list[RemoteObject]:
        """Wait until the journal names all closed segments; their objects."""

        def is_done() -> bool:
            closed = {
                (int(folder.name.rpartition("-")[2]), int(log.stem))
                for folder in self.broker.directory.glob(f"{topic}-[0-9]")
                for log in sorted(folder.glob("*.log"))[:-1]
            }
            return closed <= {(it.partition, it.base_offset) for it in self.stored(topic)}

        wait(is_done)
        return self.stored(topic)


def wait(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline, f"not within {WAIT_S} s"
        time.sleep(0.2)


def rows_of(options: SourceOptions, task: Task) -> list[Row]:
    rows: list[Row] = []
    for batch in read_task(options, Columns(COLUMNS), task):
        whole = batch.to_pydict() | {
            "headers": [str(one) for one in batch.column("headers").to_pylist()]
        }
        rows += zip(*(whole[name] for name in COLUMNS), strict=True)
    return rows


@contextlib.contextmanager
def tiered(folder: Path, url: str, *settings: str) -> Iterator[Tier]:
    store_at.cache_clear()
    fast = ("log.cleaner.backoff.ms=500", "log.retention.check.interval.ms=500", *settings)
    broker = Broker(folder / "data", f"remote.storage.url={url}", *fast)
    try:
        yield Tier(broker, url)
    finally:
        broker.stop()


@pytest.fixture(scope="module", params=["folder", "s3"])
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One broker and its bucket for the tests that leave them as they are."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "folder":
        with tiered(folder, f"file://{folder}/bucket") as started:
            yield started
        return
    program = find_versitygw()
    if program is None:
        pytest.skip("make spark-test installs versitygw")
    with s3_server(program, folder) as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        with tiered(folder, f"s3://{BUCKET}/history") as started:
            yield started
    store_at.cache_clear()


@pytest.fixture
def tier(shared: Tier, monkeypatch: pytest.MonkeyPatch) -> Tier:
    """The shared one, which counts from here on what is fetched."""
    shared.gets = count_gets(monkeypatch)
    return shared


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tier]:
    """A broker of its own with a folder."""
    with tiered(tmp_path, f"file://{tmp_path}/bucket") as started:
        started.gets = count_gets(monkeypatch)
        yield started


def count_gets(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    gets: list[str] = []
    get = engine._Engine.get

    def counted(self: Any, key: str, start: int, end: int) -> bytes:
        if key.endswith(".segment") and start == 0:
            gets.append(key)
        return get(self, key, start, end)

    monkeypatch.setattr(engine._Engine, "get", counted)
    return gets


def fill(tier: Tier, topic: str, count: int = 120, partitions: int = 1, **options: Any) -> None:
    """Batches of ten, of which every other one is older and older ones."""
    for partition in range(partitions):
        for first in range(0, count, 10):
            step_ms = 1000 if first % 20 else -1000
            tier.broker.produce(
                topic, partition, 10, first=first, step_ms=step_ms,
                start_ms=START_MS + 1000 * first - first * step_ms + 40_000,
                headers=((b"h", b"%d" % first), (b"n", None)), **options,
            )  # fmt: skip


@pytest.mark.core
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_rows_are_those_of_the_broker(tier: Tier, compression: str) -> None:
    """Whole topics, then any offsets; closed segments do not pass through the broker."""
    topic = tier.broker.topic(2, **SMALL)
    fill(tier, topic, 120, 2, compression=compression)
    objects = tier.upload(topic)
    assert len(objects) > 6
    everything = tier.rows(topic, readFrom="broker")
    assert len(everything) == 240
    options = tier.options(topic)
    plan = tier.plan(options)
    ends = {p: max(it.next_offset for it in objects if it.partition == p) for p in (0, 1)}
    assert {(one.partition, one.start) for one in plan.ranges} == set(ends.items())
    tier.gets.clear()
    assert tier.read(options, plan) == everything
    assert sorted(tier.gets) == sorted(it.key for it in objects)
    luck = random.Random(3)
    for _ in range(20):
        spans = {f"p{p}": sorted(luck.sample(range(121), 2)) for p in (0, 1)}
        window = {
            "startingOffsets": offsets_json(topic, **{p: span[0] for p, span in spans.items()}),
            "endingOffsets": offsets_json(topic, **{p: span[1] for p, span in spans.items()}),
        }
        chosen = [
            row for row in everything if spans[f"p{row[0]}"][0] <= row[1] < spans[f"p{row[0]}"][1]
        ]
        assert tier.rows(topic, **window, maxRecordsPerPartition="7") == chosen


def test_times_by_the_broker_and_segments_without_records(tier: Tier) -> None:
    """Log append times; and transactions whose segments end with markers."""
    topic = tier.broker.topic(1, message_timestamp_type="LogAppendTime", **SMALL)
    fill(tier, topic, 60)
    for number in range(12):
        tier.broker.produce(topic, 0, 1, first=60 + number, transactional_id=topic)
    tier.upload(topic)
    rows = tier.rows(topic)
    assert rows == tier.rows(topic, readFrom="broker")
    assert len(rows) == 72
    assert {row[3] for row in rows} == {1}


def test_a_window_of_time_fetches_the_objects_that_may_have_it(tier: Tier) -> None:
    topic = tier.broker.topic(1, **SMALL)
    fill(tier, topic, 400)
    objects = tier.upload(topic)
    low, high = START_MS + 200_000, START_MS + 215_000
    window: dict[str, Any] = {
        "timeWindow": "strict", "startingTimestamp": str(low), "endingTimestamp": str(high),
    }  # fmt: skip
    rows = tier.rows(topic, **window, readFrom="broker")
    assert rows == tier.rows(topic, **window)
    assert len(rows) >= 10
    assert len(objects) > 15
    assert 0 < len(set(tier.gets)) <= 5
    options = tier.options(topic, **window)
    pruned = tier.plan(options).pruned
    # Those before the window are known by the time index already.
    assert pruned.known >= 8
    assert pruned.skipped >= pruned.known - 3


def test_aborted_transactions_are_left_out(tier: Tier) -> None:
    """Two producers in turns; transactions over several segments, and one that ends after them."""
    topic = tier.broker.topic(1, **SMALL)
    luck = random.Random(5)
    at = 0
    for number in range(30):
        producer, count = f"{topic}-{luck.randrange(2)}", luck.randint(1, 25)
        tier.broker.produce(
            topic, 0, count, first=at, transactional_id=producer, abort=luck.random() < 0.5
        )
        at += count + 1
        if number % 7 == 0:
            tier.broker.produce(topic, 0, 3, first=at)
            at += 3
    tier.broker.produce(
        topic, 0, 60, first=at, transactional_id="last", abort=True, batchBytes="200"
    )
    objects = tier.upload(topic)
    # Its marker is in the open segment, its records are not.
    assert at < max(it.next_offset for it in objects) <= at + 60
    for level in ("read_committed", "read_uncommitted"):
        isolation = {"kafka__isolation__level": level}
        everything = tier.rows(topic, **isolation, readFrom="broker")
        assert tier.rows(topic, **isolation) == everything
        for start in range(0, at + 60, 41):
            window = {
                "startingOffsets": offsets_json(topic, p0=start),
                "endingOffsets": offsets_json(topic, p0=min(start + 20, at + 60)),
            }
            chosen = [row for row in everything if start <= row[1] < start + 20]
            assert tier.rows(topic, **isolation, **window) == chosen
    committed = tier.rows(topic, kafka__isolation__level="read_committed")
    assert 0 < len(committed) < len(tier.rows(topic)) - 60


def test_compacted_topics_are_read_from_the_broker(tier: Tier) -> None:
    """At once, and also when they no longer are: their objects may be older than the log."""
    topic = tier.broker.topic(
        1, min_cleanable_dirty_ratio="0.01", local_retention_ms="600000", **SMALL
    )
    fill(tier, topic, 200)
    # Local copies may go before the journal names their objects, so none shows what is missing.
    wait(lambda: bool(tier.plan(tier.options(topic)).objects))

    def is_cleaned() -> bool:
        state = read_state(engine.open_store(tier.url, tier.cluster_id))
        with tier.broker.cluster() as cluster:
            log = state.documents[f"log/{cluster.topic_id(topic)}/0"]
        return isinstance(log, dict) and "cleaned" in log

    for policy in ("compact", "delete"):
        change = AlterableConfig(name="cleanup.policy", config_operation=0, value=policy)
        resource = AlterConfigsResource(resource_type=2, resource_name=topic, configs=[change])
        with tier.broker.cluster() as cluster:
            answer = cluster.call(IncrementalAlterConfigsRequest(resources=[resource]))
        assert not answer.responses[0].error_code
        assert tier.plan(tier.options(topic)).objects == ()
        wait(is_cleaned)
        # Compaction may go on, and keeps the last value of each key.
        ours, brokers = tier.rows(topic), tier.rows(topic, readFrom="broker")
        assert {row[4]: row[5] for row in ours} == {row[4]: row[5] for row in brokers}


def test_a_topic_that_is_not_tiered_and_a_window_are_read_from_the_broker(tier: Tier) -> None:
    from protocol.time_windows import window_name

    topic = tier.broker.topic(1)
    fill(tier, topic, 60)
    assert tier.rows(topic) == tier.rows(topic, readFrom="broker")
    with pytest.raises(ClientError, match="does not exist"):
        tier.rows(window_name(topic, START_MS, START_MS + 1))


def test_a_topic_of_the_same_name_has_its_own_objects(own: Tier) -> None:
    for count in (100, 60):
        topic = own.broker.topic(1, "again", **SMALL)
        fill(own, topic, count)
        own.upload(topic)
        rows = own.rows(topic)
        assert len(rows) == count
        assert rows == own.rows(topic, readFrom="broker")
        own.broker.delete_topic(topic)


@pytest.mark.parametrize("fails", [True, False])
def test_what_retention_deletes_after_the_plan_is_data_loss(own: Tier, fails: bool) -> None:
    """The rule is that of a reader of the broker: an error, or what is there."""
    topic = own.broker.topic(1, **SMALL)
    fill(own, topic, 120)
    objects = sorted(own.upload(topic), key=lambda it: it.base_offset)
    options = own.options(topic, failOnDataLoss=str(fails).lower())
    plan = own.plan(options)
    cut = objects[len(objects) // 2]
    own.broker.delete_before(topic, 0, cut.base_offset + 1)
    wait(lambda: objects[0].key not in own.there(topic))
    wait(lambda: len(own.there(topic)) <= len(objects) - len(objects) // 2)
    if fails:
        with pytest.raises(DataLoss, match=f"the partition now starts at {cut.base_offset + 1}"):
            own.read(options, plan)
        return
    rows = own.read(options, plan)
    # Of the object in which the log now starts, a part was deleted after the plan.
    assert rows[-1][1] == 119
    assert [row[1] for row in rows] == list(range(cut.base_offset, 120))
    assert [row[1] for row in own.rows(topic)] == list(range(cut.base_offset + 1, 120))


def test_closed_segments_need_no_broker_after_the_plan(own: Tier) -> None:
    topic = own.broker.topic(1, **SMALL)
    fill(own, topic, 120)
    end = max(it.next_offset for it in own.upload(topic))
    closed = own.options(topic, endingOffsets=offsets_json(topic, p0=end))
    expected = own.rows(topic, readFrom="broker", endingOffsets=offsets_json(topic, p0=end))
    plan = own.plan(closed)
    own.broker.process.kill()
    own.broker.process.wait()
    assert own.read(closed, plan) == expected
    assert len(expected) == end


def test_what_another_broker_has_written_is_not_read(own: Tier, tmp_path: Path) -> None:
    """A bucket that was restored elsewhere has other records at the offsets of the first owner."""
    topic = own.broker.topic(1, **SMALL)
    fill(own, topic, 200)
    own.upload(topic)
    copy = f"file://{tmp_path}/copy"
    shutil.copytree(tmp_path / "bucket", tmp_path / "copy")
    fill(own, topic, 200)
    done = tidelog("restore", copy, "--data-dir", str(tmp_path / "new"), "--take-over")
    assert done.returncode == 0, done.stderr
    other = Tier(Broker(tmp_path / "new", f"remote.storage.url={copy}"), copy)
    try:
        (end,) = other.broker.ends(topic)
        other.broker.produce(topic, 0, 200, first=1000, batchBytes="300")
        assert max(it.next_offset for it in other.upload(topic)) > end + 100
        for one, last in ((own, b"v199"), (other, b"v1199")):
            rows = one.rows(topic, segments__remote=copy)
            assert rows == one.rows(topic, readFrom="broker")
            assert rows[-1][5] == last
        assert own.plan(own.options(topic, segments__remote=copy)).objects
    finally:
        other.broker.stop()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"segments__remote": "file:///nowhere/bucket"}, "what is there is of no cluster"),
        ({"segments__remote": "/data/bucket"}, "not an address that begins with s3:"),
        ({"segments__remote": "s3://"}, "it names no bucket"),
        ({"segments__remote": ""}, "readFrom=remote needs segments.remote"),
        ({"segments__path": "/data"}, "readFrom=remote reads a bucket: leave it out"),
        (
            {"readFrom": "broker", "segments__remote": "s3://b/p"},
            "segments.remote is for readFrom=remote alone",
        ),
    ],
)
def test_bad_options_are_one_clear_sentence(
    own: Tier, change: dict[str, str], message: str
) -> None:
    topic = own.broker.topic(1, **SMALL)
    fill(own, topic, 60)
    own.upload(topic)
    with pytest.raises(BadOptions, match=message) as caught:
        own.rows(topic, **change)
    assert len(caught.value.problems) == 1
    assert not Path("/nowhere").exists()


def test_the_bucket_of_another_cluster_is_refused(
    own: Tier, tmp_path: Path, broker: Broker
) -> None:
    topic = own.broker.topic(1, **SMALL)
    fill(own, topic, 60)
    own.upload(topic)
    stranger = Tier(broker, own.url)
    name = broker.topic(1)
    with pytest.raises(BadOptions) as caught:
        stranger.rows(name)
    assert f"is cluster {stranger.cluster_id}, and what is there is of {own.cluster_id}" in str(
        caught.value
    )


def test_a_store_that_is_down_fails_the_plan_and_the_task(
    own: Tier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = own.broker.topic(1, **SMALL)
    fill(own, topic, 60)
    own.upload(topic)
    options = own.options(topic)
    plan = own.plan(options)

    def refuse(self: Any, key: str, *_: int) -> bytes:
        raise errors.StoreFailed(f"GET {key}: out of reach")

    monkeypatch.setattr(engine._Engine, "get", refuse)
    with pytest.raises(StoreFailed, match=r"option segments.remote: .*\.segment: GET .*reach"):
        own.read(options, plan)
    with pytest.raises(StoreFailed, match=r"option segments.remote: the journal: GET"):
        own.plan(options)


def test_jobs_refuse_it(own: Tier, tmp_path: Path, no_spark: Any) -> None:
    named = {
        **own.broker.options, "subscribe": own.broker.topic(1), "readFrom": "remote",
        "segments.remote": own.url,
    }  # fmt: skip
    with pytest.raises(BadOptions, match="a job reads from the broker"):
        skew(no_spark, SkewSettings(options=named))
    settings = ArchiveSettings(
        options=named, target=str(tmp_path / "lake"), state_dir=str(tmp_path / "state")
    )
    with pytest.raises(BadOptions, match="a job reads from the broker"):
        archive(no_spark, settings)


def test_a_lake_and_a_bucket_and_the_broker_are_one_table(
    own: Tier, tmp_path: Path, no_spark: Any
) -> None:
    """The lake has the first records, objects the next ones, the broker the last ones.

    Retention deletes between plan and reading what an object had and what is archived by then.
    """
    topic = own.broker.topic(1, **SMALL)
    fill(own, topic, 60)
    settings = ArchiveSettings(
        options={**own.broker.options, "subscribe": topic},
        target=str(tmp_path / "lake"), state_dir=str(tmp_path / "state"),
    )  # fmt: skip
    archive(no_spark, settings)
    own.broker.delete_before(topic, 0, 60)
    own.broker.produce(topic, 0, 100, first=60, headers=((b"h", b"0"),), batchBytes="300")
    objects = own.upload(topic)
    options = own.options(topic, archive=settings.state_dir)
    plan = own.plan(options)
    assert plan.files
    assert plan.objects
    assert plan.tasks
    assert [row[1] for row in own.read(options, plan)] == list(range(160))
    archive(no_spark, settings)
    own.broker.delete_before(topic, 0, 120)
    wait(lambda: len(own.there(topic)) < len(objects) - 1)
    rows = own.read(options, plan)
    assert [(row[1], row[5]) for row in rows] == [(n, b"v%d" % n) for n in range(160)]


def test_a_stream_reads_history_from_objects_and_then_the_tail(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Micro-batches of 17 offsets; segments that are closed while it runs are found."""
    monkeypatch.setattr(bucket_module, "_REFRESH_S", 0.0)
    topic = tier.broker.topic(1, **SMALL)
    fill(tier, topic, 120)
    objects = tier.upload(topic)
    options = tier.options(
        topic, is_stream=True, startingOffsets=offsets_json(topic, p0=0), maxOffsetsPerTrigger="17"
    )
    stream = MicroBatchReader(options, Columns(COLUMNS))
    at = stream.initialOffset()
    seen: list[Row] = []
    from_objects = 0
    for end in (120, 240):
        while len(seen) < end:
            following = stream.latestOffset(at, stream.getDefaultReadLimit())
            assert following != at, f"{end - len(seen)} rows are missing"
            tasks = stream.partitions(at, following)
            from_objects += sum(one.wanted.size for task in tasks for one in task.objects)
            for task in tasks:
                assert isinstance(task, Task)
                seen += rows_of(options, task)
            at = following
        if end == 120:
            assert from_objects == max(it.next_offset for it in objects)
            fill(tier, topic, 120)
            objects = tier.upload(topic)
    assert from_objects > 180
    assert [row[1] for row in seen] == list(range(240))
    assert seen == tier.rows(topic, readFrom="broker")
    stream.stop()


def test_spark_reads_both_in_batch_and_as_a_stream(tier: Tier, tmp_path: Path) -> None:
    topic = tier.broker.topic(2, **SMALL)
    fill(tier, topic, 120, 2)
    tier.upload(topic)
    options = {
        **tier.broker.options, "readFrom": "remote", "segments.remote": tier.url,
        "failOnDataLoss": "true",
    }  # fmt: skip
    low, high = START_MS + 60_000, START_MS + 70_000
    window = {
        "timeWindow": "strict", "startingTimestamp": str(low), "endingTimestamp": str(high),
    }  # fmt: skip
    answer = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(options), topic, str(tmp_path),
         json.dumps(window)],
        capture_output=True, text=True, timeout=500, check=False, cwd=ROOT, env={**os.environ},
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr[-3000:]
    frame, strict, chosen, streamed, batches = json.loads(answer.stdout.splitlines()[-1])
    everything = sorted(row[5].decode() for row in tier.rows(topic, readFrom="broker"))
    assert frame == streamed == everything
    assert len(everything) == 240
    assert batches >= 4
    inside = tier.rows(topic, **window, readFrom="broker")
    assert strict == sorted(row[5].decode() for row in inside)
    assert inside
    assert chosen == sorted(f"v{n}" for n in range(10, 30) for _ in (0, 1))

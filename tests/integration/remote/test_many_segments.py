"""A bucket of very many segments: restored and served without reading them.

SEGMENTS=10000 pytest -s tests/integration/remote/test_many_segments.py
"""

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from random import Random

from config import load
from protocol.records.checksums import crc32c
from storage.bucket.journal import BucketJournal, read_state
from storage.bucket.map import Key
from storage.bucket.restore import restore
from storage.bucket.shipping import Shipper
from storage.directory.data_dir import DataDir
from storage.disk.checkpoints import format_uuid
from storage.disk.files import RealFiles
from storage.disk.steps import run_steps
from storage.remote.engine import open_store
from storage.segment.manifest import parse_remote_lines, remote_lines
from tests.support.broker import RawClient, broker_settings, running_broker
from tests.support.cli import environment, tidelog
from tests.support.logs import batch
from tests.support.requests import fetch, list_offset, values_of
from tests.support.tiered import upload_all

SEGMENTS = int(os.environ.get("SEGMENTS", "1000"))
TIERED = {"remote.storage.enable": "true", "segment.bytes": "1000", "retention.ms": "-1"}
T0 = 1_500_000_000_000


def make_bucket(tmp_path: Path, url: str) -> str:
    """Upload one segment of one record, then copy it with other offsets and times; the cluster."""
    path = tmp_path / "first"
    config = load(command_line=broker_settings(path, {"remote_storage_url": url}))
    data_dir = DataDir.open(str(path), files=RealFiles(), broker_config=config, now_ms=T0)
    store = open_store(url, data_dir.cluster_id)
    journal = BucketJournal(store, data_dir.directory_id, Random(1))
    shipper = Shipper(data_dir, journal, lambda name: False)
    topic = run_steps(data_dir.create_topic("t", 1, TIERED, T0))
    log = topic.logs[0]
    for _ in range(2):
        log.append(memoryview(batch(T0, size=900)), now_ms=T0)
    log.flush()
    run_steps(shipper.begin())
    assert upload_all(log, store, topic_id=topic.topic_id) == 1
    run_steps(shipper.ship())
    part = (topic.topic_id, 0)
    key = str(Key("segment", *part, 0))
    facts, where = parse_remote_lines(str(journal.state.documents[key]))
    content = store.get(where.key, 0, where.object_bytes)
    changes = {str(Key("tail", *part, 1, 0)): None}
    for base in range(1, SEGMENTS):
        # The checksum of a batch does not cover its base offset.
        moved = base.to_bytes(8, "big") + content[8:]
        there = replace(where, base_offset=base, next_offset=base + 1, crc=crc32c(moved))
        lines = replace(facts, base_offset=base, next_offset=base + 1, max_timestamp_offset=base)
        store.put_new(there.key, moved)
        changes[str(Key("segment", *part, base))] = remote_lines(lines, there)  # type: ignore[assignment]
    assert run_steps(journal.append(lambda _: changes)) is not None
    run_steps(journal.checkpoint())
    cluster = data_dir.cluster_id
    data_dir.close(T0)
    return cluster


async def test_a_restore_reads_no_segment(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/bucket"
    cluster = make_bucket(tmp_path, url)
    store = open_store(url, cluster)
    os.sync()  # The bucket stands for another machine: the restore must not wait for its writes.
    began = time.perf_counter(), time.process_time()
    path = tmp_path / "second"
    path.mkdir()
    journal = BucketJournal(store, format_uuid(bytes(range(16))), Random(2))
    journal.state = read_state(store)
    run_steps(journal.take_over())
    restored = restore(
        journal.state,
        store,
        str(path),
        RealFiles(),
        cluster_id=cluster,
        directory_id=bytes(range(16)),
    )
    made = time.perf_counter(), time.process_time()
    assert restored.segments == SEGMENTS
    async with running_broker(path, remote_storage_url=url) as running:
        client = await running.client()
        data = await fetch(client, "t", SEGMENTS // 2, max_wait_ms=5_000)
        assert len(values_of(data)) == 1
        served = time.perf_counter(), time.process_time()
        assert (await list_offset(client, "t", -1)).offset == SEGMENTS
        assert (await list_offset(client, "t", T0)).offset == 0
        remote = running.broker.metrics.remote
        # Indexes and log, of two segments.
        assert remote.fetched <= 4
    print(
        f"{SEGMENTS} segments: restored in {made[0] - began[0]:.2f} s (CPU "
        f"{made[1] - began[1]:.2f}), first fetch answered after {served[0] - made[0]:.2f} s (CPU "
        f"{served[1] - made[1]:.2f})"
    )


async def test_the_commands_of_a_user_read_no_segment(tmp_path: Path) -> None:
    """Both as new processes: their start and imports belong to what a user waits for."""
    url = f"file://{tmp_path}/bucket"
    make_bucket(tmp_path, url)
    os.sync()
    began = time.perf_counter()
    done = tidelog("restore", url, "--data-dir", str(tmp_path / "second"), "--take-over")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{SEGMENTS:,} segments in the bucket" in done.stdout
    made = time.perf_counter()
    settings = ["--listen", "127.0.0.1:0", "--set", f"remote.storage.url={url}"]
    with subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tidelog",
            "serve",
            "--data-dir",
            str(tmp_path / "second"),
            *settings,
        ],
        env=environment(None),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as broker:
        assert broker.stdout is not None
        try:
            address = broker.stdout.readline().split()[4]
            ready = time.perf_counter()
            client = await RawClient.connect("127.0.0.1", int(address.rpartition(":")[2]))
            data = await fetch(client, "t", SEGMENTS // 2, max_wait_ms=5_000)
            assert len(values_of(data)) == 1
            served = time.perf_counter()
            await client.close()
        finally:
            broker.terminate()
    print(
        f"{SEGMENTS} segments: tidelog restore {made - began:.2f} s, tidelog serve "
        f"{ready - made:.2f} s, first fetch {served - ready:.2f} s, together {served - began:.2f} s"
    )

"""Tidelog writes, Apache Kafka judges the files, then starts on them and serves the same."""

import signal
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from protocol.error_codes import ErrorCode
from protocol.records.builder import build_batch
from protocol.records.record import Record
from storage.audit.fsck import audit_directory
from storage.disk.files import RealFiles
from tests.compat.brokers import TidelogProcess
from tests.roundtrip import workload
from tests.roundtrip.judge import differences, findings, metadata_problems, view
from tests.roundtrip.moving import peer_on, raise_features, tidelog
from tests.support.kafka_peer import LAST_WITH_OLD_PROTOCOLS, NEWEST
from tests.support.wire import Produced, Wire

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

INTENDED = [
    # Kafka answers with a record below the log's start, which DeleteRecords has taken away,
    ("lookups", "shortened", -3),
    # and with the first record where none has a timestamp. docs/compatibility.md.
    ("lookups", "untimed", -3),
]

QUICK_UPKEEP = {"log.retention.check.interval.ms": "500", "log.initial.task.delay.ms": "100"}


def crash_and_go_on(directory: Path, settings: dict[str, str], rounds: Sequence[int]) -> None:
    """Fill, restart, fill, kill, fill: what a directory goes through in its life."""
    random = Random(7)
    for i, count in enumerate(rounds):
        with TidelogProcess(directory, settings=settings) as broker, Wire(broker.bootstrap) as wire:
            if i == 0:
                made = workload.topics(workload.SMALL)
                workload.write(wire, made, rounds=count, old_formats=True)
            else:
                workload.fill(wire, rounds=count, random=random, old_formats=True)
            if i % 2 == 1:
                assert broker.process is not None
                broker.process.send_signal(signal.SIGKILL)
                broker.process.wait()


@pytest.mark.parametrize("variant", ["none", "minute-map"])
def test_kafka_finds_nothing_wrong_after_rolls_restarts_kills_and_deletions(
    tmp_path: Path, variant: str
) -> None:
    directory = tmp_path / "tide"
    crash_and_go_on(directory, {"log.time.index.variant": variant}, (8, 6, 6))
    assert any(directory.glob("formats-0/*.density")) == (variant != "none")
    assert sum(1 for _ in directory.glob("formats-0/*.log")) > 1, "the workload has to roll"
    assert list(directory.glob("transactions-0/*.txnindex"))
    assert findings(directory) == []
    audit = audit_directory(str(directory), RealFiles())
    assert audit.errors == 0, [str(finding) for finding in audit.findings]


def test_kafka_finds_nothing_wrong_while_retention_deletes(tmp_path: Path) -> None:
    directory = tmp_path / "tide"
    crash_and_go_on(directory, {**QUICK_UPKEEP, "log.retention.bytes": "30000"}, (10,))
    tight = {**QUICK_UPKEEP, "log.retention.bytes": "1"}
    with TidelogProcess(directory, settings=tight) as broker, Wire(broker.bootstrap) as wire:
        fresh = build_batch([Record(0, workload.START_MS, None, b"after")])
        assert wire.produce("formats", fresh).error == ErrorCode.NONE
    assert findings(directory) == []


@pytest.mark.parametrize("version", [NEWEST, LAST_WITH_OLD_PROTOCOLS])
def test_kafka_starts_on_what_tidelog_wrote_and_serves_the_same(
    tmp_path: Path, version: str
) -> None:
    ours, theirs = tmp_path / "tide", tmp_path / "kafka-data"
    with TidelogProcess(ours) as broker, Wire(broker.bootstrap) as wire:
        made = workload.topics(workload.LARGE)
        workload.write(wire, made, rounds=6, old_formats=True)
        workload.leave_open(wire, Random(5))
        before = view(wire)
    report = tidelog("export-kraft", ours, theirs)
    assert report["partitions"] >= sum(count for count, _ in made.values())

    assert metadata_problems(theirs) == []
    with peer_on(tmp_path / "kafka", theirs, version) as peer, Wire(peer.bootstrap) as wire:
        assert differences(before, view(wire)) == INTENDED
        _goes_on(wire)
        if version == NEWEST:
            raise_features(peer.bootstrap)
    assert not list(theirs.glob("*-stray")), "Kafka knew every directory"

    back = tmp_path / "back"
    tidelog("import", theirs, back)
    with TidelogProcess(back) as broker, Wire(broker.bootstrap) as wire:
        _is_where_kafka_left_it(wire)
    assert findings(back) == []


def test_in_place_there_and_back_copies_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "tide"
    settings = {"log.time.index.variant": "interval"}
    with TidelogProcess(directory, settings=settings) as broker, Wire(broker.bootstrap) as wire:
        workload.write(wire, workload.topics(workload.LARGE), rounds=4, old_formats=True)
        before = view(wire)
    assert list((directory / "formats-0").glob("*.density"))
    inodes = {path.name: path.stat().st_ino for path in (directory / "formats-0").glob("*.log")}
    tidelog("export-kraft", directory, "--in-place")
    assert not list(directory.glob("*/*.density"))
    with peer_on(tmp_path / "kafka", directory, NEWEST) as peer, Wire(peer.bootstrap) as wire:
        assert differences(before, view(wire)) == INTENDED
    tidelog("import", directory, "--in-place")
    with TidelogProcess(directory, settings=settings) as broker, Wire(broker.bootstrap) as wire:
        assert differences(before, view(wire)) == []
    after = {path.name: path.stat().st_ino for path in (directory / "formats-0").glob("*.log")}
    assert after == inodes
    assert findings(directory) == []


def _goes_on(wire: Wire) -> None:
    """Writes, with new and with known producers, and commits."""
    records = [Record(0, workload.START_MS, None, b"by kafka")]
    for topic in ("formats", "transactions", "compacted", "empty"):
        keyed = [record._replace(key=b"k") for record in records]
        assert wire.produce(topic, build_batch(keyed)).error == ErrorCode.NONE
    workload.idempotent(wire, 3, Random(1))
    wire.commit(workload.GROUP, "formats", 8, "eight", partition=1)


def _is_where_kafka_left_it(wire: Wire) -> None:
    end = wire.offset_at("formats", -1).offset
    (last,) = wire.fetch_all("formats", end - 1)
    assert last.value == b"by kafka"
    assert wire.committed(workload.GROUP)["formats", 1] == (8, "eight")
    again = build_batch([Record(0, last.timestamp, None, b"and back")])
    assert wire.produce("formats", again) == Produced(ErrorCode.NONE, end, log_start_offset=0)

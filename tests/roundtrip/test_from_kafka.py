"""Apache Kafka writes, Tidelog takes the directory over and serves the same."""

import signal
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
from tests.roundtrip.judge import differences, findings, view
from tests.roundtrip.moving import peer_on, tidelog, tidelog_fails
from tests.support.kafka_peer import LAST_BEFORE_KRAFT, LAST_WITH_OLD_PROTOCOLS, NEWEST, KafkaPeer
from tests.support.wire import Wire

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

INTENDED = [("lookups", "shortened", -3), ("lookups", "untimed", -3)]
"""See `tests.roundtrip.test_to_kafka`."""


def kill(peer: KafkaPeer) -> None:
    assert peer.process is not None
    peer.process.send_signal(signal.SIGKILL)
    peer.process.wait()


@pytest.mark.parametrize(
    ("version", "is_killed"),
    [(NEWEST, False), (NEWEST, True), (LAST_WITH_OLD_PROTOCOLS, False)],
    ids=["4.3 stopped", "4.3 killed", "3.9 stopped"],
)
def test_tidelog_serves_what_kafka_wrote(tmp_path: Path, version: str, is_killed: bool) -> None:
    theirs, ours = tmp_path / "kafka" / "data", tmp_path / "tide"
    with peer_on(tmp_path / "kafka", None, version) as peer, Wire(peer.bootstrap) as wire:
        made = workload.topics(workload.LARGE)
        workload.write(wire, made, rounds=6, old_formats=version != NEWEST, deletes=not is_killed)
        workload.leave_open(wire, Random(5))
        before = view(wire)
        if is_killed:
            kill(peer)
    if not is_killed:
        assert findings(theirs) == [], "the judge has nothing against Kafka's own files"
    report = tidelog("import", theirs, ours)
    assert report["topics"] >= len(made)

    intended = INTENDED[1:] if is_killed else INTENDED
    with TidelogProcess(ours) as broker, Wire(broker.bootstrap) as wire:
        assert differences(view(wire), before) == intended
        workload.fill(wire, rounds=2, random=Random(8), old_formats=True)
        after = view(wire)
    assert findings(ours) == []
    assert audit_directory(str(ours), RealFiles()).errors == 0
    if is_killed:
        return
    home = tmp_path / "home"
    tidelog("export-kraft", ours, home)
    with peer_on(tmp_path / "kafka2", home, NEWEST) as peer, Wire(peer.bootstrap) as wire:
        assert differences(after, view(wire)) == intended


def test_directory_from_the_time_of_zookeeper_keeps_all_but_settings(tmp_path: Path) -> None:
    theirs, ours = tmp_path / "kafka" / "data", tmp_path / "tide"
    peer = peer_on(
        tmp_path / "kafka",
        None,
        LAST_BEFORE_KRAFT,
        {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"},
    )
    with peer, Wire(peer.bootstrap) as wire:
        made = workload.topics(workload.LARGE)
        workload.write(wire, made, rounds=4, old_formats=True)
        # Only records with timestamps are the same: 2.8 looks into the file's times for others.
        before = {
            (name, p): wire.fetch_all(
                name, wire.offset_at(name, -2, partition=p).offset, partition=p
            )
            for name, (count, _) in made.items()
            for p in range(count)
        }
        committed = wire.committed(workload.GROUP)
    # Up to 3.7 time entries name a record where they should name the end of its batch.
    known = [finding.replace(str(theirs), "") for finding in findings(theirs)]
    report = tidelog("import", theirs, ours)
    assert any("ZooKeeper" in sentence for sentence in report["notes"])

    with TidelogProcess(ours) as broker, Wire(broker.bootstrap) as wire:
        for (name, p), records in before.items():
            start = wire.offset_at(name, -2, partition=p).offset
            assert wire.fetch_all(name, start, partition=p) == records, (name, p)
        assert wire.committed(workload.GROUP) == committed
        fresh = build_batch([Record(0, workload.START_MS, None, b"after")])
        assert wire.produce("formats", fresh).error == ErrorCode.NONE
    new = [finding.replace(str(ours), "") for finding in findings(ours)]
    assert [finding for finding in new if finding not in known] == []


def test_import_says_what_cannot_come_along(tmp_path: Path) -> None:
    theirs, ours = tmp_path / "kafka" / "data", tmp_path / "tide"
    with peer_on(tmp_path / "kafka", None, NEWEST) as peer, Wire(peer.bootstrap) as wire:
        settings = {"internal.segment.bytes": "1048576", "segment.ms": "86400000"}
        wire.create_topic("plain", 2, settings)
        wire.create_topic("gone", 2)
        for partition in range(2):
            records = build_batch([Record(0, workload.START_MS, None, b"x")])
            wire.produce("plain", records, partition=partition)
        running = tidelog_fails("import", theirs, ours)
        assert "running" in running
    (theirs / "gone-1").rename(tmp_path / "elsewhere")
    report = tidelog("import", theirs, ours)
    notes = "\n".join(report["notes"])
    assert "internal.segment.bytes" in notes
    with TidelogProcess(ours) as broker, Wire(broker.bootstrap) as wire:
        assert wire.topic_settings("plain") == {"segment.ms": "86400000"}

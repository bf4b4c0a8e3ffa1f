"""Tidelog compacts, Apache Kafka judges the files."""

from pathlib import Path
from random import Random

import pytest

from config import load
from protocol.records.builder import build_batch, build_end_txn_marker
from protocol.records.layout import Codec
from protocol.records.record import Record
from storage.append.plan import Origin
from storage.audit.fsck import audit_directory
from storage.directory.data_dir import DataDir
from storage.disk.files import RealFiles
from storage.disk.steps import run_steps
from storage.log.compaction import compact
from storage.log.log import Log
from tests.roundtrip.judge import findings

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

NOW_MS = 1_700_000_000_000
SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "20000",
    "index.interval.bytes": "300",
    "delete.retention.ms": "100",
}


class Writer:
    """Appends of every kind to one log, in an order made by chance."""

    def __init__(self, log: Log, random: Random) -> None:
        self.log = log
        self.now_ms = NOW_MS
        self._random = random
        self._sequences = [0, 0, 0]

    def append(self) -> None:
        records = [self._record() for _ in range(self._random.randint(1, 8))]
        kind = self._random.choice((0, 0, 1, 2))
        codec = self._random.choice(list(Codec))
        data = build_batch(
            records,
            codec=codec,
            producer_id=kind + 10 if kind else -1,
            producer_epoch=0 if kind else -1,
            base_sequence=self._sequences[kind] if kind else -1,
            is_transactional=kind == 2,
        )
        self.log.append(memoryview(bytearray(data)), now_ms=self.now_ms)
        self._sequences[kind] += len(records) if kind else 0
        if kind == 2:
            marker = build_end_txn_marker(
                commit=self._random.random() < 0.5,
                producer_id=12,
                producer_epoch=0,
                timestamp_ms=self.now_ms,
            )
            self.log.append(
                memoryview(bytearray(marker)), now_ms=self.now_ms, origin=Origin.COORDINATOR
            )

    def _record(self) -> Record:
        value = None if self._random.random() < 0.1 else self._random.randbytes(60)
        timestamp = self.now_ms - self._random.randrange(1000)
        return Record(0, timestamp, b"key-%d" % self._random.randrange(40), value)


def test_kafka_finds_nothing_wrong_after_compaction(tmp_path: Path) -> None:
    directory = tmp_path / "tide"
    data_dir = DataDir.open(str(directory), files=RealFiles(), broker_config=load(), now_ms=NOW_MS)
    log = run_steps(data_dir.create_topic("ledger", 1, SETTINGS, NOW_MS)).logs[0]
    writer = Writer(log, Random(5))
    dropped = 0
    for _ in range(4):
        for _ in range(150):
            writer.append()
        log.roll(writer.now_ms)
        log.flush()
        result = run_steps(compact(log, now_ms=writer.now_ms, map_bytes=1 << 20))
        assert result is not None
        dropped += result.records_dropped
        writer.now_ms += 60
    assert dropped > 1000
    run_steps(data_dir.checkpoint())
    run_steps(data_dir.delete_pending_files(writer.now_ms + 100_000))
    data_dir.close(writer.now_ms)
    audit = audit_directory(str(directory), RealFiles())
    assert [str(finding) for finding in audit.findings] == []
    # Offsets that compaction leaves out are reported of Kafka's own compacted logs as well.
    gaps = ("Non-consecutive offsets", " is followed by ")
    wrong = [line for line in findings(directory) if not any(gap in line for gap in gaps)]
    assert wrong == []

"""kill -9 of a real broker under load: every acknowledged record is there after the restart.

librdkafka produces with acks=all, once idempotent and once plain, over two partitions; the process
is killed at a random moment of each cycle. After each kill the directory is audited as it lies, and
after each restart all records acknowledged in the cycle before are read back through the wire with
the offsets they were acknowledged with. At the end everything is read once more from the start.

`KILL9_CYCLES=50` sets the number of cycles. What this cannot show is power loss: a killed process
leaves the page cache behind. `tests.crash.campaign` is for that.
"""

import os
import random
import signal
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING

from storage.audit.fsck import Severity, audit_directory
from storage.disk.files import RealFiles
from tests.crash.client_load import PARTITIONS, Load, Records, create_topic, lost, read
from tests.support.broker import BrokerProcess

CYCLES = int(os.environ.get("KILL9_CYCLES", "4"))
TOPIC = "kills"
SEED = 20261121


@pytest.mark.timeout(60 + 10 * CYCLES)
def test_every_acknowledged_record_survives_kill_9(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    everything: Records = {}
    last: Records = {}
    for cycle in range(CYCLES + 1):
        broker = BrokerProcess(tmp_path)
        try:
            port = broker.wait_ready()
            if cycle == 0:
                create_topic(port, TOPIC)
            else:
                starts = {
                    partition: min(
                        (offset for number, offset in last if number == partition),
                        default=OFFSET_BEGINNING,
                    )
                    for partition in range(PARTITIONS)
                }
                check(read(port, TOPIC, starts), last)
            if cycle == CYCLES:
                check(read(port, TOPIC), everything)
                assert broker.stop() == 0
                break
            load = Load(port, TOPIC, cycle)
            load.run(rng.uniform(0.05, 0.4))
        finally:
            if broker.process.poll() is None:
                broker.stop(signal.SIGKILL)
        load.collect()
        last = load.acked
        everything |= last
        findings = audit_directory(data_directory(tmp_path), RealFiles()).findings
        assert [found for found in findings if found.severity is Severity.ERROR] == []
    assert len(everything) > 100 * CYCLES
    assert audit_directory(data_directory(tmp_path), RealFiles()).findings == []
    print(f"\n{CYCLES} kills, {len(everything)} acknowledged records, 0 lost")


def check(found: Records, acked: Records) -> None:
    gone = lost(found, acked)
    assert not gone, f"{len(gone)} of {len(acked)} acknowledged records lost: {list(gone)[:3]}"


def data_directory(tmp_path: Path) -> str:
    return str(next(path.parent for path in tmp_path.rglob("meta.properties")))

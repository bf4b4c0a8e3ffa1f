"""Kafka's own share consumer in each of its modes, in Java.

COMPAT_BROKER=kafka-4.3.1 judges the test.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.brokers import judged_broker
from tests.compat.programs import HEAP, jars
from tests.support import toolchains

SOURCE = Path(__file__).parent / "applications" / "ShareScenarios.java"
SETTINGS = {"group.share.min.record.lock.duration.ms": "1000"}
LINES = """\
implicit outcome: [ok]
implicit: [0x1, 1x1, 2x1, 3x1, 4x1, 5x1, 6x1, 7x1, 8x1, 9x1] then []
explicit 0: [ok]
explicit 1: [ok]
explicit 2: [ok]
explicit: [0x1, 1x1, 2x1, 3x1, 2x2, 3x2, 2x3, 3x3] then []
lock: Optional[3000]
renew: 0 again, [ok] then []
record_limit: 30 records, bounded true then []
callback: {0=ok, 1=ok, 2=ok, 3=ok, 4=ok} then []
close: [1x2, 2x2]
expiry: 0x2, late [InvalidRecordStateException]
transactions: [kept, last] then []
"""

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A broker whose locks may be short."""
    with judged_broker(tmp_path, SETTINGS) as bootstrap:
        yield bootstrap


def test_every_mode_of_the_share_consumer(address: str) -> None:
    clients = jars("kafka-clients")
    classes = toolchains.java_classes([SOURCE], clients)
    command = [toolchains.java(), HEAP, "-cp", f"{classes}:{clients}/*", "ShareScenarios", address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout == LINES, done.stderr[-3000:]

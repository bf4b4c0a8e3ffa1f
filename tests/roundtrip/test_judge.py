"""The judge finds what is wrong: each defect that is put into sound files is named."""

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compat.brokers import TidelogProcess
from tests.roundtrip import workload
from tests.roundtrip.judge import findings
from tests.support.wire import Wire

pytestmark = [pytest.mark.jvm, pytest.mark.slow]


def _patch(path: Path, at: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    assert len(content) >= at + len(data), f"{path} has {len(content)} bytes"
    content[at : at + len(data)] = data
    path.write_bytes(content)


DEFECTS: dict[str, Callable[[Path], None]] = {
    "00000000000000000000.index": lambda path: _patch(path, 4, struct.pack(">i", 3)),
    "00000000000000000000.timeindex": lambda path: _patch(path, 0, struct.pack(">q", 5)),
    "00000000000000000000.log": lambda path: _patch(path, 90, b"\xff\xff"),
}


@pytest.mark.timeout(180)
def test_every_defect_is_found(tmp_path: Path) -> None:
    directory = tmp_path / "tide"
    with TidelogProcess(directory) as broker, Wire(broker.bootstrap) as wire:
        workload.write(wire, workload.topics(workload.SMALL), rounds=4, old_formats=True)
    one = tmp_path / "one"
    shutil.copytree(directory / "formats-0", one / "formats-0")
    assert findings(one) == []
    for name, damage in DEFECTS.items():
        path = one / "formats-0" / name
        sound = path.read_bytes()
        damage(path)
        assert findings(one) != [], name
        path.write_bytes(sound)

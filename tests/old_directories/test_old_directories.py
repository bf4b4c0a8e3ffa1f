"""Directories of earlier commits open without loss, alarm or repair, and go on."""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from protocol.error_codes import ErrorCode
from protocol.records.builder import build_batch
from protocol.records.record import Record
from tests.compat.brokers import TidelogProcess
from tests.old_directories.contents import contents
from tests.old_directories.write import ARCHIVES
from tests.roundtrip import workload
from tests.roundtrip.moving import tidelog
from tests.support.wire import Wire

NAMES = sorted(path.name.removesuffix(".tar.xz") for path in ARCHIVES.glob("33ee9fd-*.tar.xz"))
# What would otherwise change with the date of the test: expiry, and compaction that goes further.
SETTINGS = {"log.cleaner.enable": "false", "offsets.retention.minutes": "2147483647"}


def test_there_are_archives() -> None:
    assert {"33ee9fd-stopped", "33ee9fd-killed"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_directory_opens_with_everything_in_it(name: str, tmp_path: Path) -> None:
    directory, expected = _unpacked(name, tmp_path)

    with TidelogProcess(directory, settings=SETTINGS) as broker:
        assert _differences(expected, contents(broker.bootstrap)) == {}
        with Wire(broker.bootstrap) as wire:
            _append(wire, expected)

    assert tidelog("fsck", directory)["findings"] == []
    with TidelogProcess(directory, settings=SETTINGS) as broker, Wire(broker.bootstrap) as wire:
        for topic in expected["topics"]:
            before = expected["ends"][f"{topic}/0"][2]
            assert [record.value for record in wire.fetch_all(topic, before)][-1] == b"later"


def _append(wire: Wire, expected: dict[str, Any]) -> None:
    """One record to each topic gets the next offset, and no offset for a second time."""
    record = Record(0, workload.START_MS, b"key", b"later")
    for topic in expected["topics"]:
        got = wire.produce(topic, build_batch([record]))
        assert (got.error, got.base_offset >= expected["ends"][f"{topic}/0"][2]) == (
            ErrorCode.NONE,
            True,
        ), (topic, got)


def _unpacked(name: str, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    with tarfile.open(ARCHIVES / f"{name}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="tar")
    return tmp_path / "data", json.loads((tmp_path / "expected.json").read_text(encoding="utf-8"))


def _differences(expected: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """Facts that changed, but for the open transaction: the coordinator aborts it when its time
    is up, which is before this test, and its partition gets a marker then.
    """
    changed: dict[str, Any] = {}
    for kind, facts in expected.items():
        if not isinstance(facts, dict):
            facts, other = {kind: facts}, {kind: found[kind]}
        else:
            other = found[kind]
        for key in facts.keys() | other.keys():
            if kind in {"ends", "lookups"} and key.startswith("transactions/0"):
                continue
            if facts.get(key) != other.get(key):
                changed[f"{kind} {key}"] = (facts.get(key), other.get(key))
    return changed

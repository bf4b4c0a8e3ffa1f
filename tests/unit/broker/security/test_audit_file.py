"""The file of the audit log: whole lines in order, none lost without a word, reopened on demand."""

import asyncio
import errno
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from broker.clocks.clock import SystemClock
from broker.errors import StartError
from broker.principal import user
from broker.security import audit_file
from broker.security.audit import Audit
from broker.security.audit_file import LINES_MAX, AuditFile
from broker.security.session import Session
from broker.threads import Pool
from protocol.acl import Operation, ResourceType
from tests.support.clock import FrozenClock

BOB = Session(peer_host="10.0.0.1", principal=user("bob"))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines() if line]


class Place:
    """A file with its thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.thread = Pool("audit", 1)
        self.file = AuditFile(str(path), self.thread, SystemClock())

    def write(self, number: int, *, is_kept: bool = False) -> None:
        self.file.write({"event": "test", "number": number}, is_kept=is_kept)

    async def settled(self) -> None:
        while self.file._is_busy:
            await asyncio.sleep(0.005)

    def close(self) -> list[int]:
        self.file.close()
        self.thread.close()
        return [line["number"] for line in lines(self.path) if line["event"] == "test"]


async def test_lines_are_appended_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_text('{"event": "former"}\n')
    place = Place(path)
    for number in range(500):
        place.write(number)
        if number % 50 == 0:
            await asyncio.sleep(0.001)
    assert place.close() == list(range(500))
    assert lines(path)[0] == {"event": "former"}
    assert set(lines(path)[1]) == {"time", "event", "number"}


async def test_a_new_file_is_for_the_broker_alone(tmp_path: Path) -> None:
    place = Place(tmp_path / "audit.jsonl")
    place.close()
    assert place.path.stat().st_mode & 0o777 == 0o600


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", ["missing/audit.jsonl", ".", "pipe"])
def test_a_file_that_cannot_be_written_refuses_the_start(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StartError, match=r"^audit\.log\.file: cannot write .*; name a file"):
        AuditFile(str(tmp_path / name), Pool("audit", 1), SystemClock())


async def test_a_moved_file_gets_lines_until_it_is_reopened(tmp_path: Path) -> None:
    place = Place(tmp_path / "audit.jsonl")
    place.write(0)
    await place.settled()
    moved = place.path.rename(tmp_path / "audit.1")
    place.write(1)
    place.file.reopen()
    place.write(2)
    assert place.close() == [2]
    assert [line["number"] for line in lines(moved)] == [0, 1]


async def test_a_file_that_cannot_be_reopened_stays_in_use(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = Place(tmp_path / "audit.jsonl")
    moved = place.path.rename(tmp_path / "audit.1")
    place.path.mkdir()
    place.file.reopen()
    place.write(0)
    await place.settled()
    place.file.close()
    place.thread.close()
    assert [line["number"] for line in lines(moved)] == [0]
    assert "lines are still written to the former file" in caplog.text


async def test_a_slow_disk_loses_no_change_and_counts_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    append = audit_file._append
    monkeypatch.setattr(audit_file, "_append", lambda *args: gate.wait() and append(*args))
    place = Place(tmp_path / "audit.jsonl")
    for number in range(LINES_MAX + 7):
        place.write(number)
    place.write(-1, is_kept=True)
    assert place.file.lost == 7
    gate.set()
    await place.settled()
    place.write(-2)
    assert place.close() == [*range(LINES_MAX), -1, -2]
    assert [line["count"] for line in lines(place.path) if line["event"] == "lines lost"] == [7]


@pytest.mark.parametrize("cut", [0, 1, 70, 150])
async def test_a_full_disk_delays_lines(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    cut: int,
) -> None:
    place = Place(tmp_path / "audit.jsonl")
    monkeypatch.setattr(audit_file, "RETRY_MS", 1)
    write, results = os.write, iter([cut, -1, -1, cut, -1])

    def write_on_full_disk(descriptor: int, data: memoryview) -> int:
        size = next(results, len(data))
        if size < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data[:size])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write_on_full_disk)
        for number in range(5):
            place.write(number)
        await place.settled()
        assert next(results, None) is None
    place.file.close()
    place.thread.close()
    whole = []
    for line in place.path.read_text().splitlines():
        assert line, "an empty line is no JSON object"
        try:
            whole.append(json.loads(line)["number"])
        except ValueError:
            assert cut, line
    assert whole == list(range(5))
    assert caplog.text.count("No space left on device") == 1
    assert place.file.lost == 0


@pytest.mark.parametrize("is_under_way", [False, True])
async def test_lines_that_a_stop_cannot_write_are_counted_and_reported(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    is_under_way: bool,
) -> None:
    place = Place(tmp_path / "audit.jsonl")
    gate = threading.Event()

    def write_on_full_disk(descriptor: int, data: memoryview) -> int:
        assert gate.wait(10)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", write_on_full_disk)
    place.write(0)
    if not is_under_way:
        gate.set()
        while "lines wait in memory" not in caplog.text:
            await asyncio.sleep(0.001)
    place.write(1)
    gate.set()
    assert place.close() == []
    await asyncio.sleep(0)
    assert place.file.lost == 2
    (line,) = [each.getMessage() for each in caplog.records if "lost" in each.getMessage()]
    assert line.endswith("No space left on device; 2 lines are lost, because the broker stops")


async def test_a_stop_says_how_many_lines_were_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_file, "LINES_MAX", 2)
    place = Place(tmp_path / "audit.jsonl")
    for number in range(5):
        place.write(number)
    assert place.close() == [0, 1]
    assert [line["count"] for line in lines(place.path) if line["event"] == "lines lost"] == [3]


async def test_events_have_their_facts_one_by_one(tmp_path: Path) -> None:
    place = Place(tmp_path / "audit.jsonl")
    audit = Audit(FrozenClock(), place.file)
    forged = 'bob\n{"event": "login"}\u202e\udc80'
    audit.authenticated(BOB, "SCRAM-SHA-512", again=True)
    audit.login_failed("10.0.0.1", "PLAIN", "SASL", "credentials", forged)
    audit.refused_certificate("10.0.0.1", "SSL", ValueError(forged))
    for _ in range(3):
        audit.decided(BOB, "FETCH", Operation.READ, ResourceType.TOPIC, forged, is_allowed=False)
    audit.reloaded("num.partitions")
    over_tls = Session(
        peer_host="10.0.0.1", principal=user("eve"), connection_id=7, tls="TLSv1.3 SUITE"
    )
    over_tls.software = ("librdkafka", "2.0.2")
    why = "no rule allows it"
    audit.decided(
        over_tls,
        "FETCH",
        Operation.READ,
        ResourceType.TOPIC,
        "t",
        is_allowed=False,
        why=lambda: why,
    )
    place.close()
    for line in (found := lines(place.path)):
        del line["time"]
    where = {"host": "10.0.0.1", "listener": "PLAINTEXT"}
    bob = where | {"principal": "User:bob"}
    failed = {"event": "login failed", "host": "10.0.0.1", "more_before": 0}
    assert found == [
        {"event": "login", **bob, "mechanism": "SCRAM-SHA-512", "again": True},
        {
            **failed, "listener": "SASL", "mechanism": "PLAIN",
            "reason": "credentials", "user": forged,
        },
        {**failed, "listener": "SSL", "mechanism": "certificate", "reason": forged},
        {
            "event": "refused", **bob, "api": "FETCH", "operation": "READ",
            "resource_type": "TOPIC", "resource": forged, "more_before": 0,
        },
        {"event": "reloaded", "what": "num.partitions"},
        {
            "event": "refused", **where, "connection": 7, "tls": "TLSv1.3 SUITE",
            "software": "librdkafka 2.0.2", "principal": "User:eve", "api": "FETCH",
            "operation": "READ", "resource_type": "TOPIC", "resource": "t",
            "rule": "no rule allows it", "more_before": 0,
        },
    ]  # fmt: skip

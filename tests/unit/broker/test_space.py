"""Is the reserve kept, at little cost, and given back?"""

import os
from types import SimpleNamespace

import pytest

from broker.space import LOOK_EVERY_BYTES, SpaceGuard
from storage.errors import DiskFull

RESERVED = 64 << 20


class Disk:
    """A file system whose free bytes a test sets; counts how often it is asked."""

    def __init__(self) -> None:
        self.total = 1 << 40
        self.free = 1 << 30
        self.asked = 0

    def __call__(self, path: str) -> SimpleNamespace:
        self.asked += 1
        return SimpleNamespace(f_frsize=1, f_blocks=self.total, f_bavail=self.free)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(os, "statvfs", disk)
    return disk


def test_is_the_disk_not_asked_for_every_batch(disk: Disk) -> None:
    guard = SpaceGuard("/data", RESERVED)
    for _ in range(1000):
        guard.check("/data/t-0", 1000)
    assert disk.asked == 1
    guard.check("/data/t-0", LOOK_EVERY_BYTES)
    assert disk.asked == 2


def test_is_the_reserve_kept_to_the_byte(disk: Disk) -> None:
    guard = SpaceGuard("/data", RESERVED)
    disk.free = RESERVED + 99
    with pytest.raises(DiskFull, match=r"append failed on /data/t-0: .*log\.reserved\.bytes"):
        guard.check("/data/t-0", 100)
    guard.check("/data/t-0", 99)


def test_do_appends_go_on_when_there_is_space(disk: Disk) -> None:
    guard = SpaceGuard("/data", RESERVED)
    disk.free = 0
    for _ in range(3):
        with pytest.raises(DiskFull):
            guard.check("/data/t-0", 1)
    disk.free = 1 << 30
    guard.check("/data/t-0", 1)


def test_is_a_small_disk_not_reserved_altogether(disk: Disk) -> None:
    disk.total, disk.free = 20_000, 2_000
    guard = SpaceGuard("/data", RESERVED)
    guard.check("/data/t-0", 1_000)
    disk.free = 1_000
    with pytest.raises(DiskFull):
        guard.check("/data/t-0", 1_000)


def test_may_the_reserve_be_given_up(disk: Disk) -> None:
    disk.free = 10
    SpaceGuard("/data", 0).check("/data/t-0", 10)


def test_is_the_credit_renewed_before_it_is_used_up(disk: Disk) -> None:
    guard = SpaceGuard("/data", RESERVED)
    guard.renew()
    assert guard.credit == LOOK_EVERY_BYTES
    disk.free = RESERVED + 1000
    guard.renew()
    assert guard.credit == 500
    disk.free = RESERVED - 1
    guard.renew()
    assert guard.credit == 0


def test_is_a_failed_look_left_to_the_append_that_can_report_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(path: str) -> None:
        raise OSError("planted")

    monkeypatch.setattr(os, "statvfs", fail)
    guard = SpaceGuard("/data", RESERVED)
    guard.renew()
    assert guard.credit == 0
    with pytest.raises(OSError, match="planted"):
        guard.check("/data/t-0", 1)

"""Local copies go; reads and lookups over both parts have no seam."""

import pytest

from storage.disk.steps import run_steps
from storage.log.retention import DeletionReason, delete_expired
from storage.log.segment_stats import collect_statistics
from storage.log.values import Isolation
from storage.remote.erase import erase_unused, objects_to_erase
from storage.segment.remote.log import RemoteBytesNeeded
from tests.property.remote_lookups import LookupTally, compare_lookups
from tests.support.simulated_store import StoreFault
from tests.support.tiered import TieredHarness, look_up


def filled(batches: int = 6, **settings: object) -> TieredHarness:
    """Batches of two records; two batches per segment."""
    tiered = TieredHarness(**settings)
    for number in range(batches):
        tiered.append(1_000 + 10 * number, 1_005 + 10 * number, size=150)
    return tiered


def logs_here(tiered: TieredHarness) -> list[str]:
    return [name for name in tiered.names() if name.endswith(".log")]


def test_only_the_newest_stays_here() -> None:
    tiered = filled()
    before = tiered.all_records()
    tiered.tier()
    assert logs_here(tiered) == [f"{8:020d}.log"]
    assert tiered.log.segments.first_local.base_offset == 8
    assert tiered.log.size_bytes == 300
    assert tiered.all_records() == before
    tiered.reopen()
    assert tiered.all_records() == before
    tiered.crash()
    assert tiered.all_records() == before
    assert tiered.store.count("PUT") == 2


def test_a_start_reads_no_object() -> None:
    tiered = filled()
    tiered.tier()
    requests = len(tiered.store.operations)
    tiered.reopen()
    tiered.crash()
    assert len(tiered.store.operations) == requests
    assert [s.is_remote for s in tiered.log.segments] == [True, True, False]


def test_local_size_counts_what_is_here() -> None:
    tiered = filled(local_retention_ms=-2, local_retention_bytes=300)
    tiered.upload()
    assert tiered.drop_local() == [0, 4]
    tiered.append(2_000, size=150)
    tiered.append(2_000, size=150)
    assert tiered.log.size_bytes == 600
    assert tiered.drop_local() == []
    tiered.upload()
    assert tiered.drop_local() == [8]


def test_what_is_not_uploaded_stays() -> None:
    tiered = filled()
    tiered.now_ms += 100_000
    assert tiered.drop_local() == []
    tiered.store.is_down = True
    with pytest.raises(Exception, match="does not answer"):
        tiered.upload()
    assert tiered.drop_local() == []
    assert len(logs_here(tiered)) == 3


def test_a_read_without_bytes_names_them_and_changes_nothing() -> None:
    tiered = filled()
    tiered.tier()
    with pytest.raises(RemoteBytesNeeded) as need:
        tiered.log.read(0, max_bytes=100, isolation=Isolation.READ_UNCOMMITTED)
    assert (need.value.start, need.value.end) == (0, 300)
    with pytest.raises(RemoteBytesNeeded):
        tiered.log.offset_for_timestamp(1_005)
    assert tiered.all_records()[0] == (0, 1_000)


def test_indexes_that_are_lost_come_from_the_object() -> None:
    tiered = filled()
    tiered.tier()
    before = tiered.all_records()
    tiered.log.close(tiered.now_ms)
    for name in tiered.names():
        if name.endswith((".index", ".timeindex")) and name < f"{8:020d}":
            tiered.files.unlink(f"{tiered.path}/{name}")
    tiered.open(is_clean=True)
    assert tiered.log.quarantine is None
    found = look_up(tiered.log, tiered.store, 1_011)
    assert found is not None
    assert found.offset == 3
    assert tiered.all_records() == before
    assert f"{0:020d}.timeindex" in tiered.names()


def test_statistics_are_not_fetched() -> None:
    tiered = filled()
    tiered.tier()
    for segment in tiered.log.segments:
        segment.records = -1
    assert run_steps(collect_statistics(tiered.log, set())) == 0


@pytest.mark.parametrize("seed", range(12))
def test_lookups_equal_brute_force_at_one_get_each(seed: int) -> None:
    tally = LookupTally()
    compare_lookups(tally, seed=seed, lookups=300)
    assert tally.wrong == []
    assert tally.gets == tally.remote > 100
    assert tally.gets_max == 1


def test_retention_goes_over_both_parts_and_objects_follow() -> None:
    tiered = filled(8, retention_ms=5_000)
    tiered.tier()
    keys = list(tiered.store.objects)
    assert len(keys) == 3
    tiered.append(30_000, size=150)
    tiered.now_ms = 6_020
    deleted = delete_expired(tiered.log, tiered.now_ms)
    assert [(one.base_offset, one.reason) for one in deleted] == [(0, DeletionReason.TIME)]
    assert tiered.log.log_start_offset == 4
    # The first DELETE is lost: the object stays named until one was answered.
    tiered.store.faults["DELETE"] = [StoreFault.REFUSED]
    with pytest.raises(Exception, match="does not answer"):
        run_steps(erase_unused(tiered.log, tiered.store))
    tiered.crash()
    assert [where.key for where in objects_to_erase(tiered.log)] == keys[:1]
    assert run_steps(erase_unused(tiered.log, tiered.store)) == 1
    assert list(tiered.store.objects) == keys[1:]
    assert run_steps(erase_unused(tiered.log, tiered.store)) == 0
    tiered.reopen()
    assert tiered.log.log_start_offset == 4
    assert len(tiered.all_records()) == 13
    assert sorted(tiered.log.manifest.remote) == [4, 8]


def test_a_missing_log_is_read_from_its_object() -> None:
    tiered = filled()
    before = tiered.all_records()
    tiered.upload()
    tiered.log.close(tiered.now_ms)
    tiered.files.unlink(f"{tiered.path}/{4:020d}.log")
    tiered.open(is_clean=True)
    assert tiered.log.quarantine is None
    assert [s.is_remote for s in tiered.log.segments] == [False, True, False]
    assert tiered.all_records() == before
    assert tiered.log.segments.first_local.base_offset == 8
    tiered.now_ms = 100_000
    assert tiered.drop_local() == [0]


@pytest.mark.parametrize("content", [None, b"", b"x"])
@pytest.mark.parametrize("is_clean", [True, False])
def test_a_lost_manifest_quarantines_what_only_the_store_has(
    content: bytes | None, is_clean: bool
) -> None:
    """Also one whose name is there, after a crash too: its lines named the objects."""
    tiered = filled()
    tiered.tier()
    tiered.log.close(tiered.now_ms)
    path = f"{tiered.path}/segment-manifest"
    if content is None:
        tiered.files.unlink(path)
    else:
        tiered.files.replace_atomically(path, content)
    tiered.open(is_clean=is_clean)
    assert tiered.log.quarantine is not None
    reason = tiered.log.quarantine.reason
    assert "none can be read; stop the broker" in reason
    assert "make a new directory from the bucket (tidelog restore)" in reason


def test_an_empty_active_segment_that_a_crash_took_is_made_again() -> None:
    tiered = filled(4)
    tiered.log.roll(tiered.now_ms)
    tiered.log.flush()
    tiered.tier()
    assert logs_here(tiered) == [f"{8:020d}.log"]
    tiered.log.abandon()
    tiered.files.unlink(f"{tiered.path}/{8:020d}.log")
    tiered.open(is_clean=False)
    assert tiered.log.quarantine is None
    tiered.append(9_000, size=150)
    assert tiered.log.log_end_offset == 9
    assert len(tiered.all_records()) == 9

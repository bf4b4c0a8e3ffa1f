"""Crash states of logs with an object store, and the mistakes that this campaign must find."""

import os
from collections.abc import Callable
from typing import Any

import pytest

from storage.bucket import shipping
from storage.bucket.journal import BucketJournal
from storage.bucket.shipped_log import ShippedLog
from storage.bucket.shipping import Shipper
from storage.disk.steps import Steps
from storage.recovery import opening
from storage.remote import erase, upload
from storage.remote.cleaning import StoredLogs
from storage.segment.manifest import Manifest
from tests.crash.campaign import Tally, crash_states, fault_run, faults
from tests.crash.tiered_workload import CleaningWorkload, TieredWorkload

STATES = int(os.environ.get("CRASH_STATES", "600"))
STATES_PER_SEED = 300
FAULTS_PER_SEED = 15

Patch = pytest.MonkeyPatch


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(max(1, STATES // STATES_PER_SEED)))
def test_every_crash_state_keeps_what_was_promised(seed: int) -> None:
    tally = Tally()
    crash_states(tally, seed=seed, states=STATES_PER_SEED, kind=TieredWorkload)
    assert tally.states > STATES_PER_SEED // 2
    assert tally.examples == []


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(max(1, STATES // STATES_PER_SEED)))
def test_every_failing_operation_keeps_what_was_promised(seed: int) -> None:
    tally = Tally()
    for fault in faults(seed, FAULTS_PER_SEED):
        fault_run(tally, seed=seed, fault=fault, kind=TieredWorkload)
    assert tally.faults_raised > FAULTS_PER_SEED // 2
    assert tally.examples == []


@pytest.mark.timeout(3600)
def test_compaction_of_what_is_in_the_store_keeps_what_was_promised() -> None:
    tally = Tally()
    crash_states(tally, seed=1, states=STATES_PER_SEED, kind=CleaningWorkload)
    assert tally.states > STATES_PER_SEED // 2
    assert tally.examples == []


def local_copy_goes_before_the_line_is_synced(patch: Patch) -> None:
    """An object counts as soon as its line is written."""

    def record(log: Any, segment: Any, where: Any) -> Steps[None]:
        log.manifest.remember_remote(where)
        segment.remote = where
        yield None

    patch.setattr(upload, "record_object", record)


def local_copy_goes_without_an_object(patch: Patch) -> None:
    """Local retention does not ask for an object."""

    def drop(log: Any, now_ms: int, *, is_named: Any) -> list[Any]:
        dropped = [one for one in list(log.segments)[:-1] if not one.is_remote]
        for segment in dropped:
            path = segment.log.path
            log.changes._files.rename(path, path + ".deleted")
        return dropped

    patch.setattr("tests.crash.tiered_workload.drop_expired_locally", drop)


def uploads_are_not_verified(patch: Patch) -> None:
    """The answer of a PUT is believed."""

    def verify(store: Any, where: Any) -> Steps[None]:
        yield None

    patch.setattr(upload, "_verify", verify)


def unsynced_segments_are_uploaded(patch: Patch) -> None:
    """A segment is uploaded and recorded before it is durable here."""

    def following(log: Any) -> Any:
        closed = list(log.segments)[:-1]
        return next((one for one in closed if one.remote is None), None)

    patch.setattr("tests.crash.tiered_workload.next_to_upload", following)


def objects_go_before_the_start_is_durable(patch: Patch) -> None:
    """Objects are deleted whatever the log's start is, before the bucket's journal names them."""

    def every(log: Any) -> list[Any]:
        return list(log.manifest.remote.values())

    patch.setattr(erase, "objects_to_erase", every)


def a_start_forgets_the_store(patch: Patch) -> None:
    """Segments without a local log are not part of the log."""
    patch.setattr(opening.DirectoryOpening, "remote", property(lambda self: {}))


def recovery_reads_what_only_the_store_has(patch: Patch) -> None:
    """After a crash the segments in the store are verified like others."""
    from storage.recovery import recovery

    def first(opening: Any, segments: Any) -> int:
        below = [s for s in segments if s.base_offset < opening.recovery_point]
        return len(segments) if opening.is_clean else max(0, len(below) - 1)

    patch.setattr(recovery, "_first_to_recover", first)


def entries_are_not_read_back(patch: Patch) -> None:
    """An entry counts as soon as the store has answered."""
    patch.setattr(BucketJournal, "_is_there", lambda self, key, parts: True)


def objects_go_while_the_bucket_names_them(patch: Patch) -> None:
    """The start of the log is durable here, and a restore does not know it."""
    patch.setattr(Shipper, "names", lambda self, where: False)


def objects_go_while_an_entry_is_under_way(patch: Patch) -> None:
    """Only the entries that were written count, not the one that is being written."""
    patch.setattr(
        Shipper, "_drafted", property(lambda self: set(), lambda self, value: None), raising=False
    )


def entries_of_unknown_outcome_are_forgotten(patch: Patch) -> None:
    """An entry whose answer was lost counts as one that is not there."""
    patch.setattr(BucketJournal, "is_settled", True)


def records_are_shipped_before_they_are_on_disk(patch: Patch) -> None:
    """The bucket gets what a power cut takes away here."""
    patch.setattr(shipping, "durable_bytes", lambda log, segment, end: segment.size)


def checkpoints_delete_records_of_tails(patch: Patch) -> None:
    """All entries before a checkpoint go."""
    delete = BucketJournal._delete_before

    def every(self: BucketJournal, number: int, needed: set[int], newest: str) -> Steps[int]:
        return delete(self, number, set(), newest)

    patch.setattr(BucketJournal, "_delete_before", every)


def superseded_lines_are_not_synced(patch: Patch) -> None:
    """A rewritten segment has its name before the objects of the old ones are out of the log."""
    supersede = Manifest.supersede

    def unsynced(self: Manifest, bases: Any) -> bool:
        supersede(self, bases)
        return False

    patch.setattr(Manifest, "supersede", unsynced)


def compaction_is_ahead_of_the_bucket(patch: Patch) -> None:
    """Records that the bucket lacks replace older ones, which it has."""
    patch.setattr(StoredLogs, "shipped_end", lambda self, log: log.log_end_offset)


def rewritten_segments_are_shipped_in_pieces(patch: Patch) -> None:
    """What the bucket has of them goes first, or is there twice."""
    patch.setattr(ShippedLog, "is_rewritten", lambda self, segment: False)


TIERED_BUGS: dict[str, Callable[[Patch], None]] = {
    bug.__name__: bug
    for bug in (
        local_copy_goes_before_the_line_is_synced,
        local_copy_goes_without_an_object,
        uploads_are_not_verified,
        unsynced_segments_are_uploaded,
        objects_go_before_the_start_is_durable,
        a_start_forgets_the_store,
        recovery_reads_what_only_the_store_has,
        entries_are_not_read_back,
        objects_go_while_the_bucket_names_them,
        objects_go_while_an_entry_is_under_way,
        entries_of_unknown_outcome_are_forgotten,
        records_are_shipped_before_they_are_on_disk,
        checkpoints_delete_records_of_tails,
        superseded_lines_are_not_synced,
        compaction_is_ahead_of_the_bucket,
        rewritten_segments_are_shipped_in_pieces,
    )
}


_Runs = list[tuple[type[TieredWorkload], int, int]]

LOOKED_FOR_FIRST: dict[str, _Runs] = {
    "entries_of_unknown_outcome_are_forgotten": [(TieredWorkload, 84, 20)],
    "superseded_lines_are_not_synced": [(CleaningWorkload, seed, 600) for seed in (1, 17, 5)],
}
"""Workload, seed and number of states for bugs that most usual runs do not find."""


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", TIERED_BUGS)
def test_seeded_bug_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative controls: with any of these mistakes the same campaign finds something wrong."""
    TIERED_BUGS[name](monkeypatch)
    tally = Tally()
    usual: _Runs = [(TieredWorkload, seed, 20) for seed in range(120)]
    for kind, seed, states in [*LOOKED_FOR_FIRST.get(name, []), *usual]:
        crash_states(tally, seed=seed, states=states, until_found=True, kind=kind)
        if tally.examples:
            return
    pytest.fail(f"{name} was not found in {tally.states} states")

"""Closed segments go to a store, and count only when their object is verified and recorded."""

from random import Random

import pytest

from protocol.records.checksums import crc32c
from storage.disk.steps import run_steps
from storage.errors import StorageFailed, StoreFailed
from storage.remote.upload import next_to_upload, upload_segment
from storage.segment.manifest import Manifest
from storage.segment.remote.object import decode_trailer
from tests.support.power_loss import Survival
from tests.support.simulated_disk import Fault, Operation, SimulatedFile
from tests.support.simulated_store import StoreFault
from tests.support.tiered import TOPIC_ID, TieredHarness, try_upload


def filled(**settings: object) -> TieredHarness:
    """Five batches in three segments."""
    tiered = TieredHarness(**settings)
    for number in range(5):
        tiered.append(1_000 + number, 1_005 + number, size=150)
    assert tiered.bases() == [0, 4, 8]
    return tiered


def test_objects_have_the_log_and_what_serves_it() -> None:
    tiered = filled()
    assert tiered.upload() == 2
    first = tiered.log.segments.first
    assert first.remote is not None
    data = tiered.store.objects[first.remote.key]
    assert data[: first.size] == first.log.pread(first.size, 0)
    indexes, description = decode_trailer(data[first.size :])
    assert indexes == first.index_files()
    assert description["topic"] == "t"
    assert description["facts"]["next_offset"] == 4
    assert description["log_crc"] == f"{crc32c(data[: first.size]):08x}"
    assert description["epochs"] == [[0, 0]]
    assert tiered.log.segments.remote_end == 8
    assert next_to_upload(tiered.log) is None


def test_no_byte_of_the_log_is_read_in_the_thread_of_its_owner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A slice takes half a millisecond to read and sum up, for which appends would wait."""
    tiered = filled()
    segment = tiered.log.segments.first
    file, read = segment.log, 0
    pread = SimulatedFile.pread

    def counted(self: SimulatedFile, size: int, position: int) -> bytes:
        nonlocal read
        read += self is file
        return pread(self, size, position)

    monkeypatch.setattr(SimulatedFile, "pread", counted)
    steps = upload_segment(tiered.log, segment, TOPIC_ID, tiered.store, Random(1))
    read_elsewhere = 0
    for call in steps:
        before = read
        if call is not None:
            call.run()
        read_elsewhere += read - before
    assert read == read_elsewhere > 0
    assert segment.remote is not None


def test_a_log_that_another_program_has_shortened_is_not_sent() -> None:
    tiered = filled()
    file = tiered.log.segments.first.log
    tiered.files.open(file.path).truncate(100)
    error = try_upload(tiered.log, tiered.store)
    assert isinstance(error, StorageFailed)
    assert f"the file has 100 bytes, of {file.size}" in str(error)
    assert tiered.store.objects == {}
    assert tiered.log.manifest.remote == {}


def test_active_and_unsynced_segments_stay() -> None:
    tiered = TieredHarness()
    for number in range(3):
        tiered.append(1_000 + number, size=250, flush=False)
    assert tiered.bases() == [0, 1, 2]
    assert tiered.upload() == 0
    tiered.log.flush()
    assert tiered.upload() == 2


def test_a_segment_without_a_snapshot_of_producers_waits_for_the_next_one() -> None:
    """The disk refused the snapshots of two rolls: a start would forget who wrote the segments."""
    tiered = filled()
    for offset in (4, 8):
        tiered.log.producers.snapshots.delete(offset)
    assert tiered.upload() == 0
    for number in range(2):
        tiered.append(2_000 + number, 2_005 + number, size=150)
    assert len(tiered.bases()) == 4
    assert tiered.upload() == 3


def test_topics_that_did_not_ask_are_left_alone() -> None:
    tiered = filled(remote_storage_enable="false")
    assert tiered.upload() == 0
    paused = filled(remote_log_copy_disable="true")
    assert paused.upload() == 0
    assert paused.store.operations == []


@pytest.mark.parametrize("fault", [StoreFault.LOST, StoreFault.TWICE])
def test_a_lost_answer_is_settled_by_a_look(fault: StoreFault) -> None:
    tiered = filled()
    tiered.store.faults["PUT"] = [fault] * 2
    assert tiered.upload() == 2
    assert tiered.store.count("PUT") == 2
    assert tiered.store.count("HEAD") == 2


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        ("PUT", StoreFault.REFUSED),
        ("PUT", StoreFault.TORN),
        ("PUT", StoreFault.SHORT),
        ("GET", StoreFault.TORN),
        ("GET", StoreFault.LOST),
    ],
)
def test_an_object_that_is_not_verified_does_not_count(kind: str, fault: StoreFault) -> None:
    tiered = filled()
    tiered.store.faults[kind] = [fault]
    assert isinstance(try_upload(tiered.log, tiered.store), StoreFailed)
    assert tiered.log.manifest.remote == {}
    tiered.now_ms += 10_000
    assert tiered.drop_local() == []
    # The next attempt has another name, whatever the first has left.
    assert tiered.upload() == 2
    assert tiered.all_records()[0] == (0, 1_000)


def test_an_object_counts_after_a_power_cut_once_local_retention_may_see_it() -> None:
    for survival in Survival:
        tiered = filled()
        tiered.tier()
        after = TieredHarness.after_power_cut(tiered, 1, survival)
        assert isinstance(after, TieredHarness)
        after.store = tiered.store
        assert after.log.quarantine is None, survival
        assert len(after.all_records()) == 10, survival


def test_a_line_that_was_not_synced_does_not_count() -> None:
    tiered = filled()
    segment = next_to_upload(tiered.log)
    assert segment is not None
    tiered.files.fault = Fault(at=0, kinds=frozenset({Operation.SYNC}))
    with pytest.raises(StorageFailed):
        run_steps(upload_segment(tiered.log, segment, TOPIC_ID, tiered.store, Random(1)))
    assert segment.remote is None
    tiered.now_ms += 10_000
    assert tiered.drop_local() == []
    assert tiered.upload() == 2
    assert Manifest(tiered.path, tiered.files).remote == tiered.log.manifest.remote


def test_a_segment_that_goes_meanwhile_is_not_recorded() -> None:
    tiered = filled()
    segment = next_to_upload(tiered.log)
    assert segment is not None
    steps = upload_segment(tiered.log, segment, TOPIC_ID, tiered.store, Random(1))
    call = next(steps)
    assert call is not None
    call.run()
    tiered.log.abandon()
    assert "is gone" in str(try_upload_steps(steps))
    assert tiered.log.manifest.remote == {}


def try_upload_steps(steps: object) -> Exception | None:
    try:
        run_steps(steps)  # type: ignore[arg-type]
    except Exception as error:  # noqa: BLE001 - the test looks at it
        return error
    return None

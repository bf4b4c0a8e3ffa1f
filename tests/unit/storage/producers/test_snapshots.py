"""Producer snapshots: Kafka's bytes, and which file is taken, trusted, kept and deleted."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.disk.files import RealFiles, sync_file
from storage.producers.snapshots import (
    CorruptSnapshot,
    ProducerSnapshots,
    decode_snapshot,
    encode_snapshot,
)
from storage.producers.state import CachedBatch, ProducerEntry, ProducerState

ONE_PRODUCER = bytes.fromhex(
    "00015e39b7e7000000010000000000000001000000000004000000000000000a0000000200000000000013880000"
    "0000ffffffffffffffff"
)
EMPTY = bytes.fromhex("000148674bc700000000")


def one_entry() -> ProducerEntry:
    return ProducerEntry(
        producer_id=1,
        producer_epoch=0,
        coordinator_epoch=0,
        last_timestamp=5000,
        batches=[CachedBatch(4, 10, 2, 5000)],
    )


def state_at(offset: int, *entries: ProducerEntry) -> ProducerState:
    state = ProducerState()
    state.restore(entries, map_end_offset=offset, now_ms=5000)
    return state


def names(directory: Path) -> list[int]:
    return sorted(int(path.name.removesuffix(".snapshot")) for path in directory.iterdir())


def test_snapshot_bytes_are_kafkas() -> None:
    assert encode_snapshot([one_entry()]) == ONE_PRODUCER
    assert encode_snapshot([]) == EMPTY


def test_kafkas_snapshot_is_read() -> None:
    assert decode_snapshot(ONE_PRODUCER) == [one_entry()]
    assert decode_snapshot(EMPTY) == []


def test_only_the_last_cached_batch_is_stored() -> None:
    entry = one_entry()
    entry.batches.insert(0, CachedBatch(1, 7, 0, 4000))
    assert encode_snapshot([entry]) == ONE_PRODUCER


def test_entry_without_batches_keeps_its_epoch_and_transaction() -> None:
    entry = ProducerEntry(
        producer_id=9, producer_epoch=3, coordinator_epoch=2, last_timestamp=8, txn_first_offset=40
    )
    assert decode_snapshot(encode_snapshot([entry])) == [entry]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, len(ONE_PRODUCER) * 8 - 1))
def test_every_flipped_bit_is_noticed(bit: int) -> None:
    content = bytearray(ONE_PRODUCER)
    content[bit // 8] ^= 1 << bit % 8
    with pytest.raises(CorruptSnapshot):
        decode_snapshot(bytes(content))


@pytest.mark.parametrize("size", range(len(ONE_PRODUCER)))
def test_every_truncation_is_noticed(size: int) -> None:
    with pytest.raises(CorruptSnapshot):
        decode_snapshot(ONE_PRODUCER[:size])


def test_snapshot_is_named_after_the_next_offset(tmp_path: Path) -> None:
    snapshots = ProducerSnapshots(str(tmp_path), RealFiles())
    assert snapshots.take(state_at(11, one_entry()))
    assert (tmp_path / "00000000000000000011.snapshot").read_bytes() == ONE_PRODUCER
    assert snapshots.offsets == (11,)


def test_no_second_snapshot_without_progress(tmp_path: Path) -> None:
    snapshots = ProducerSnapshots(str(tmp_path), RealFiles())
    snapshots.take(state_at(11))
    assert not snapshots.take(state_at(11))
    assert not snapshots.take(state_at(10))


def test_reload_takes_the_newest_in_range_and_deletes_the_rest(tmp_path: Path) -> None:
    files = RealFiles()
    snapshots = ProducerSnapshots(str(tmp_path), files)
    for offset in (5, 10, 20, 30):
        snapshots.take(state_at(offset, one_entry()))
    state = ProducerState()
    reopened = ProducerSnapshots(str(tmp_path), files)
    replay_from = reopened.reload(state, log_start_offset=5, log_end_offset=25, now_ms=5000)
    assert replay_from == state.map_end_offset == 20
    assert state.find(1) is not None
    assert names(tmp_path) == [10, 20]


def test_case_81_corrupt_snapshot_is_deleted_and_the_one_before_is_used(tmp_path: Path) -> None:
    snapshots = ProducerSnapshots(str(tmp_path), RealFiles())
    snapshots.take(state_at(10, one_entry()))
    snapshots.take(state_at(20))
    (tmp_path / "00000000000000000020.snapshot").write_bytes(ONE_PRODUCER[:-1])
    state = ProducerState()
    assert snapshots.reload(state, log_start_offset=0, log_end_offset=25, now_ms=5000) == 10
    assert names(tmp_path) == [10]


def test_case_81_without_any_good_snapshot_everything_is_replayed(tmp_path: Path) -> None:
    (tmp_path / "00000000000000000020.snapshot").touch()
    snapshots = ProducerSnapshots(str(tmp_path), RealFiles())
    state = state_at(3, one_entry())
    assert snapshots.reload(state, log_start_offset=2, log_end_offset=25, now_ms=5000) == 2
    assert len(state) == 0
    assert names(tmp_path) == []


def test_expired_producers_are_left_out(tmp_path: Path) -> None:
    snapshots = ProducerSnapshots(str(tmp_path), RealFiles())
    snapshots.take(state_at(10, one_entry()))
    state = ProducerState(expiration_ms=100)
    snapshots.reload(state, log_start_offset=0, log_end_offset=10, now_ms=5100)
    assert len(state) == 0


def test_largest_stray_beyond_the_last_segment_is_kept(tmp_path: Path) -> None:
    snapshots = ProducerSnapshots(str(tmp_path), RealFiles())
    for offset in (3, 10, 12, 20, 25):
        snapshots.take(state_at(offset))
    snapshots.delete_stray([0, 10, 20], 99)
    assert names(tmp_path) == [10, 20, 25]


def test_stray_beyond_the_end_is_deleted(tmp_path: Path) -> None:
    snapshots = ProducerSnapshots(str(tmp_path), RealFiles())
    snapshots.take(state_at(7))
    snapshots.delete_stray([0], 6)
    assert names(tmp_path) == []


def test_stray_before_the_last_segment_is_deleted(tmp_path: Path) -> None:
    snapshots = ProducerSnapshots(str(tmp_path), RealFiles())
    snapshots.take(state_at(3))
    snapshots.delete_stray([0, 10], 99)
    assert names(tmp_path) == []


def test_snapshots_go_with_the_segments_before_an_offset(tmp_path: Path) -> None:
    snapshots = ProducerSnapshots(str(tmp_path), RealFiles())
    for offset in (3, 10, 20):
        snapshots.take(state_at(offset))
    snapshots.delete_before(10)
    assert names(tmp_path) == [10, 20]
    snapshots.delete(10)
    snapshots.delete(10)
    assert snapshots.offsets == (20,)


def test_snapshot_taken_without_sync_is_whole_once_synced(tmp_path: Path) -> None:
    snapshots = ProducerSnapshots(str(tmp_path), RealFiles())
    (tmp_path / "00000000000000000011.snapshot").write_bytes(b"left by a failed attempt")
    file = snapshots.take_unsynced(state_at(11, one_entry()))
    assert file is not None
    sync_file(file)
    file.close()
    assert (tmp_path / "00000000000000000011.snapshot").read_bytes() == ONE_PRODUCER
    assert snapshots.take_unsynced(state_at(11, one_entry())) is None


def test_empty_log_needs_no_snapshot(tmp_path: Path) -> None:
    snapshots = ProducerSnapshots(str(tmp_path), RealFiles())
    assert not snapshots.take(state_at(0))
    assert snapshots.take_unsynced(state_at(0)) is None
    assert names(tmp_path) == []

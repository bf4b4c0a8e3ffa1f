"""The producer map: which batch is new, which is a retry, which is refused, what stays open."""

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.records.entry import Entry
from protocol.records.layout import (
    CONTROL_BIT,
    CONTROL_KEY,
    END_TXN_VALUE,
    MAGIC_V2,
    TRANSACTIONAL_BIT,
)
from storage.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from storage.producers.state import (
    CACHED_BATCHES_MAX,
    SEQUENCE_MAX,
    CachedBatch,
    CompletedTxn,
    EndTxnMarker,
    ProducerEntry,
    ProducerState,
)

PID = 7
COMMIT = EndTxnMarker(is_commit=True, coordinator_epoch=0)
ABORT = EndTxnMarker(is_commit=False, coordinator_epoch=0)


def batch_of(
    *,
    base_offset: int,
    count: int = 1,
    base_sequence: int = 0,
    producer_id: int = PID,
    producer_epoch: int = 0,
    max_timestamp: int = 1000,
    is_transactional: bool = False,
    is_control: bool = False,
) -> Entry:
    """A batch with one record per offset."""
    return Entry(
        0, 100, MAGIC_V2, base_offset, base_offset + count - 1, max_timestamp,
        TRANSACTIONAL_BIT * is_transactional | CONTROL_BIT * is_control,
        0, 0, producer_id, producer_epoch, base_sequence, count,
    )  # fmt: skip


def append(state: ProducerState, batch: Entry) -> None:
    assert state.check(batch) is None
    state.update(batch)


def end(
    state: ProducerState, offset: int, marker: EndTxnMarker, *, epoch: int = 0, pid: int = PID
) -> CompletedTxn | None:
    control = batch_of(
        base_offset=offset,
        base_sequence=-1,
        producer_id=pid,
        producer_epoch=epoch,
        is_transactional=True,
        is_control=True,
        max_timestamp=2000,
    )
    return state.update(control, marker=marker)


# --- sequences ----------------------------------------------------------------------------------


@pytest.mark.parametrize("first_sequence", [0, 1, 17, SEQUENCE_MAX])
def test_unknown_producer_may_start_at_any_sequence(first_sequence: int) -> None:
    append(ProducerState(), batch_of(base_offset=0, base_sequence=first_sequence))


def test_next_sequence_follows_the_last_record_of_the_batch_before() -> None:
    state = ProducerState()
    append(state, batch_of(base_offset=0, count=3))
    append(state, batch_of(base_offset=3, base_sequence=3))


@pytest.mark.parametrize("sequence", [0, 2, 4, 100])
def test_gap_or_step_back_in_sequence_is_refused(sequence: int) -> None:
    state = ProducerState()
    append(state, batch_of(base_offset=0, count=3))
    with pytest.raises(OutOfOrderSequence, match=f"sent sequence {sequence}, expected 3"):
        state.check(batch_of(base_offset=3, base_sequence=sequence, count=2))


def test_sequence_zero_follows_the_largest() -> None:
    state = ProducerState()
    append(state, batch_of(base_offset=0, base_sequence=SEQUENCE_MAX))
    append(state, batch_of(base_offset=1, base_sequence=0))


def test_sequence_wraps_inside_a_batch() -> None:
    state = ProducerState()
    append(state, batch_of(base_offset=0, base_sequence=SEQUENCE_MAX - 1, count=4))
    wrapped = batch_of(base_offset=9, base_sequence=SEQUENCE_MAX - 1, count=4)
    assert wrapped.last_sequence == 1
    assert state.check(wrapped) == CachedBatch(1, 3, 3, 1000)
    append(state, batch_of(base_offset=4, base_sequence=2))


def test_refused_batch_changes_nothing() -> None:
    state = ProducerState()
    append(state, batch_of(base_offset=0))
    with pytest.raises(OutOfOrderSequence):
        state.check(batch_of(base_offset=1, base_sequence=5))
    append(state, batch_of(base_offset=1, base_sequence=1))


# --- duplicates ---------------------------------------------------------------------------------


def test_duplicate_returns_original_offsets_and_timestamp() -> None:
    state = ProducerState()
    append(state, batch_of(base_offset=10, count=3, max_timestamp=555))
    append(state, batch_of(base_offset=13, base_sequence=3))
    duplicate = state.check(batch_of(base_offset=14, count=3, max_timestamp=999))
    assert duplicate is not None
    assert (duplicate.first_offset, duplicate.last_offset) == (10, 12)
    assert duplicate.max_timestamp == 555
    assert (duplicate.first_sequence, duplicate.last_sequence) == (0, 2)


def test_exactly_five_batches_are_remembered() -> None:
    state = ProducerState()
    for number in range(CACHED_BATCHES_MAX + 1):
        append(state, batch_of(base_offset=number, base_sequence=number))
    with pytest.raises(OutOfOrderSequence):
        state.check(batch_of(base_offset=6, base_sequence=0))
    for number in range(1, CACHED_BATCHES_MAX + 1):
        duplicate = state.check(batch_of(base_offset=6, base_sequence=number))
        assert duplicate is not None
        assert duplicate.first_offset == number


def test_batch_with_only_part_of_a_cached_range_is_no_duplicate() -> None:
    state = ProducerState()
    append(state, batch_of(base_offset=0, count=3))
    with pytest.raises(OutOfOrderSequence):
        state.check(batch_of(base_offset=3, count=2))


def test_same_sequences_of_another_producer_are_no_duplicate() -> None:
    state = ProducerState()
    append(state, batch_of(base_offset=0))
    assert state.check(batch_of(base_offset=1, producer_id=8)) is None


def test_coordinator_appends_are_not_judged_by_sequence() -> None:
    state = ProducerState()
    append(state, batch_of(base_offset=0))
    assert state.check(batch_of(base_offset=1, base_sequence=9), from_client=False) is None


# --- epochs -------------------------------------------------------------------------------------


def test_older_epoch_is_fenced() -> None:
    state = ProducerState()
    append(state, batch_of(base_offset=0, producer_epoch=5))
    with pytest.raises(InvalidProducerEpoch, match="epoch 4, but epoch 5 has taken over"):
        state.check(batch_of(base_offset=1, base_sequence=1, producer_epoch=4))


def test_new_epoch_starts_at_sequence_zero() -> None:
    state = ProducerState()
    append(state, batch_of(base_offset=0, count=3))
    with pytest.raises(OutOfOrderSequence):
        state.check(batch_of(base_offset=3, base_sequence=3, producer_epoch=1))
    append(state, batch_of(base_offset=3, producer_epoch=1))


def test_new_epoch_forgets_duplicates_of_the_old_one() -> None:
    state = ProducerState()
    append(state, batch_of(base_offset=0, count=3))
    append(state, batch_of(base_offset=3, producer_epoch=1))
    entry = state.find(PID)
    assert entry is not None
    assert [cached.last_offset for cached in entry.batches] == [3]


def test_after_a_marker_bumped_the_epoch_data_starts_at_zero() -> None:
    state = ProducerState()
    append(state, batch_of(base_offset=0, is_transactional=True))
    end(state, 1, ABORT, epoch=1)
    with pytest.raises(OutOfOrderSequence):
        state.check(batch_of(base_offset=2, base_sequence=1, producer_epoch=1))
    append(state, batch_of(base_offset=2, producer_epoch=1))


def test_marker_of_an_older_epoch_is_fenced() -> None:
    state = ProducerState()
    append(state, batch_of(base_offset=0, producer_epoch=2))
    with pytest.raises(InvalidProducerEpoch):
        state.check_marker(PID, 1, COMMIT)


def test_marker_of_an_older_coordinator_is_fenced() -> None:
    state = ProducerState()
    append(state, batch_of(base_offset=0, is_transactional=True))
    end(state, 1, EndTxnMarker(is_commit=True, coordinator_epoch=3))
    state.check_marker(PID, 0, EndTxnMarker(is_commit=True, coordinator_epoch=3))
    with pytest.raises(TransactionCoordinatorFenced, match="epoch 2, but epoch 3"):
        state.check_marker(PID, 0, EndTxnMarker(is_commit=True, coordinator_epoch=2))


def test_marker_for_an_unknown_producer_is_allowed() -> None:
    state = ProducerState()
    state.check_marker(99, 0, COMMIT)
    assert end(state, 0, COMMIT, pid=99) is None
    entry = state.find(99)
    assert entry is not None
    assert (entry.producer_epoch, entry.coordinator_epoch) == (0, 0)


# --- transactions -------------------------------------------------------------------------------


def test_first_unstable_offset_is_where_the_oldest_open_transaction_began() -> None:
    state = ProducerState()
    assert state.first_unstable_offset() is None
    append(state, batch_of(base_offset=5, is_transactional=True))
    append(state, batch_of(base_offset=6, producer_id=8, is_transactional=True))
    append(state, batch_of(base_offset=7, base_sequence=1, is_transactional=True))
    assert state.first_unstable_offset() == 5


def test_plain_batch_inside_a_transaction_is_refused() -> None:
    state = ProducerState()
    append(state, batch_of(base_offset=0, is_transactional=True))
    with pytest.raises(InvalidTxnState, match="began at offset 0"):
        state.check(batch_of(base_offset=1, base_sequence=1))


def test_marker_completes_the_transaction_and_tells_the_next_stable_offset() -> None:
    state = ProducerState()
    append(state, batch_of(base_offset=0, is_transactional=True))
    completed = end(state, 1, ABORT)
    assert completed == CompletedTxn(PID, 0, 1, is_aborted=True)
    assert state.last_stable_offset_after(completed) == 2


def test_stable_offset_stops_at_the_next_open_transaction() -> None:
    state = ProducerState()
    append(state, batch_of(base_offset=0, is_transactional=True))
    append(state, batch_of(base_offset=1, producer_id=8, is_transactional=True))
    completed = end(state, 2, COMMIT)
    assert completed is not None
    assert not completed.is_aborted
    assert state.last_stable_offset_after(completed) == 1


def test_ended_transaction_stays_unstable_until_its_marker_is_below_the_high_watermark() -> None:
    state = ProducerState()
    append(state, batch_of(base_offset=3, is_transactional=True))
    completed = end(state, 4, COMMIT)
    assert completed is not None
    state.complete_txn(completed)
    assert state.first_undecided_offset() is None
    state.advance_high_watermark(4)
    assert state.first_unstable_offset() == 3
    state.advance_high_watermark(5)
    assert state.first_unstable_offset() is None


def test_ended_and_open_transactions_the_lower_one_counts() -> None:
    state = ProducerState()
    append(state, batch_of(base_offset=0, producer_id=8, is_transactional=True))
    append(state, batch_of(base_offset=1, is_transactional=True))
    completed = end(state, 2, COMMIT)
    assert completed is not None
    state.complete_txn(completed)
    assert state.first_unstable_offset() == 0


def test_empty_transaction_completes_nothing_but_moves_the_coordinator_epoch() -> None:
    state = ProducerState()
    append(state, batch_of(base_offset=0))
    assert end(state, 1, EndTxnMarker(is_commit=False, coordinator_epoch=4)) is None
    entry = state.find(PID)
    assert entry is not None
    assert entry.coordinator_epoch == 4
    assert entry.last_timestamp == 2000


def test_completing_twice_is_a_bug() -> None:
    state = ProducerState()
    append(state, batch_of(base_offset=0, is_transactional=True))
    completed = end(state, 1, ABORT)
    assert completed is not None
    state.complete_txn(completed)
    with pytest.raises(AssertionError):
        state.complete_txn(completed)


def test_control_batch_that_ends_no_transaction_changes_no_epoch() -> None:
    state = ProducerState()
    append(state, batch_of(base_offset=0, is_transactional=True))
    control = batch_of(base_offset=1, is_control=True, producer_epoch=9)
    assert state.update(control, marker=None) is None
    assert state.first_unstable_offset() == 0


@pytest.mark.parametrize(
    ("control_type", "expected"),
    [(0, EndTxnMarker(False, 12)), (1, EndTxnMarker(True, 12)), (2, None), (9, None)],
)
def test_marker_content_is_decoded(control_type: int, expected: EndTxnMarker | None) -> None:
    key, value = CONTROL_KEY.pack(0, control_type), END_TXN_VALUE.pack(0, 12)
    assert EndTxnMarker.decode(key, value) == expected
    assert EndTxnMarker.decode(key[:3], value) is None
    assert EndTxnMarker.decode(key, value[:5]) is None


# --- expiry and limits --------------------------------------------------------------------------


def test_case_83_id_with_old_create_time_expires_and_any_sequence_is_accepted() -> None:
    day = 86_400_000
    state = ProducerState(expiration_ms=day)
    append(state, batch_of(base_offset=0, max_timestamp=0))
    assert state.expire(now_ms=2 * day) == 1
    append(state, batch_of(base_offset=1, base_sequence=1234))


def test_expiry_is_inclusive() -> None:
    state = ProducerState(expiration_ms=100)
    append(state, batch_of(base_offset=0, max_timestamp=1000))
    assert state.expire(now_ms=1099) == 0
    assert state.expire(now_ms=1100) == 1
    assert len(state) == 0


def test_expiry_gives_the_memory_back() -> None:
    state = ProducerState(expiration_ms=100)
    for producer_id in range(5_000):
        append(
            state, batch_of(base_offset=producer_id, producer_id=producer_id, max_timestamp=1000)
        )
    full = sys.getsizeof(state.producers)
    append(state, batch_of(base_offset=5_000, producer_id=5_000, max_timestamp=2000))
    assert state.expire(now_ms=2000) == 5_000
    assert sys.getsizeof(state.producers) < full // 100
    assert [entry.producer_id for entry in state] == [5_000]


def test_open_transaction_never_expires() -> None:
    state = ProducerState(expiration_ms=100)
    append(state, batch_of(base_offset=0, is_transactional=True))
    assert state.expire(now_ms=10**12) == 0
    assert state.first_unstable_offset() == 0


def test_map_is_bounded_and_the_least_recently_used_goes_first() -> None:
    state = ProducerState(producers_max=2)
    append(state, batch_of(base_offset=0, producer_id=1, is_transactional=True))
    append(state, batch_of(base_offset=1, producer_id=2))
    append(state, batch_of(base_offset=2, producer_id=3))
    assert [entry.producer_id for entry in state] == [1, 3]


def test_update_counts_as_use() -> None:
    state = ProducerState(producers_max=2)
    append(state, batch_of(base_offset=0, producer_id=1))
    append(state, batch_of(base_offset=1, producer_id=2))
    append(state, batch_of(base_offset=2, producer_id=1, base_sequence=1))
    append(state, batch_of(base_offset=3, producer_id=3))
    assert [entry.producer_id for entry in state] == [1, 3]


# --- restore, clear, log start ------------------------------------------------------------------


def test_restore_leaves_out_the_expired_and_reopens_transactions_in_order() -> None:
    state = ProducerState(expiration_ms=100)
    state.restore(
        [
            ProducerEntry(producer_id=1, last_timestamp=0, txn_first_offset=9),
            ProducerEntry(producer_id=2, last_timestamp=0),
            ProducerEntry(producer_id=3, last_timestamp=950, txn_first_offset=4),
        ],
        map_end_offset=20,
        now_ms=1000,
    )
    assert sorted(entry.producer_id for entry in state) == [1, 3]
    assert state.first_unstable_offset() == 4
    assert state.map_end_offset == 20


def test_clear_forgets_everything() -> None:
    state = ProducerState()
    append(state, batch_of(base_offset=0, is_transactional=True))
    state.clear(3)
    assert (len(state), state.first_unstable_offset(), state.map_end_offset) == (0, None, 3)


def test_log_start_above_the_marker_makes_the_transaction_stable() -> None:
    state = ProducerState()
    append(state, batch_of(base_offset=0, is_transactional=True))
    completed = end(state, 1, COMMIT)
    assert completed is not None
    state.complete_txn(completed)
    state.advance_log_start(2)
    assert state.first_unstable_offset() is None
    assert state.map_end_offset == 2


# --- against a model ----------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.integers(0, 2), st.integers(0, 6), st.integers(1, 3)),
        max_size=40,
    )
)
def test_accepted_batches_of_an_epoch_always_form_one_unbroken_sequence(
    attempts: list[tuple[int, int, int, int]],
) -> None:
    state = ProducerState()
    offset = 0
    written: dict[tuple[int, int], list[int]] = {}
    for producer_id, epoch, sequence, count in attempts:
        batch = batch_of(
            base_offset=offset,
            count=count,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
        try:
            duplicate = state.check(batch)
        except (OutOfOrderSequence, InvalidProducerEpoch):
            continue
        if duplicate is None:
            state.update(batch)
            offset += count
            sequences = written.setdefault((producer_id, epoch), [])
            sequences.extend(range(sequence, sequence + count))
        else:
            assert duplicate.last_sequence - duplicate.first_sequence == count - 1
            assert duplicate.last_offset < offset
    for sequences in written.values():
        assert sequences == list(range(sequences[0], sequences[0] + len(sequences)))

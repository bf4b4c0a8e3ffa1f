from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.transactions import state
from broker.transactions.state import Plan, TxnSnapshot, TxnState
from protocol.error_codes import ErrorCode
from protocol.records.layout import NO_PRODUCER_ID

NEW = TxnSnapshot(transactional_id="x", producer_id=1, timeout_ms=60_000)
EMPTY = replace(NEW, producer_epoch=3, last_producer_epoch=2)
ONGOING = replace(
    EMPTY, state=TxnState.ONGOING, partitions=frozenset({("t", 0)}), started_ms=100, updated_ms=100
)


def _init(now: TxnSnapshot, expected: tuple[int, int] | None = None) -> Plan:
    return state.plan_init(
        now, timeout_ms=50_000, expected=expected, allocate=lambda: 99, now_ms=500
    )


def _fence(now: TxnSnapshot) -> TxnSnapshot:
    return state.plan_fence(now, 200, lambda: 99)


def _identity(plan: Plan) -> tuple[int, int]:
    assert plan.next is not None, plan.error
    return plan.next.producer_id, plan.next.producer_epoch


# -- init ------------------------------------------------------------------------------------------


def test_does_a_new_producer_begin_at_epoch_0() -> None:
    plan = _init(NEW)
    assert _identity(plan) == (1, 0)
    assert plan.next is not None
    assert (plan.next.timeout_ms, plan.next.updated_ms) == (50_000, 500)


def test_does_the_next_producer_fence_the_one_before() -> None:
    assert _identity(_init(EMPTY)) == (1, 4)


def test_may_a_producer_bump_its_own_epoch() -> None:
    plan = _init(EMPTY, (1, 3))
    assert _identity(plan) == (1, 4)
    assert plan.next is not None
    assert plan.next.last_producer_epoch == 3


def test_is_a_retried_bump_the_same_bump() -> None:
    bumped = _init(EMPTY, (1, 3)).next
    assert bumped is not None
    assert _identity(_init(bumped, (1, 3))) == (1, 4)


@pytest.mark.parametrize("expected", [(1, 1), (1, 4), (2, 3)])
def test_is_a_producer_of_another_epoch_or_id_fenced(expected: tuple[int, int]) -> None:
    assert _init(EMPTY, expected) == Plan(error=ErrorCode.PRODUCER_FENCED)


def test_does_a_producer_with_an_id_of_an_expired_entry_get_a_new_one() -> None:
    assert _identity(_init(NEW, (77, 5))) == (1, 0)


def test_is_an_open_transaction_aborted_under_the_next_epoch_first() -> None:
    plan = _init(ONGOING)
    assert plan.error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert plan.next is not None
    assert (plan.next.state, plan.next.producer_epoch) == (TxnState.PREPARE_ABORT, 4)
    assert plan.next.partitions == ONGOING.partitions


@pytest.mark.parametrize("ending", sorted(state.PREPARED))
def test_must_an_end_be_over_before_the_next_begins(ending: TxnState) -> None:
    for expected in (None, (1, 3), (1, 2), (2, 3)):
        plan = _init(replace(ONGOING, state=ending), expected)
        assert plan == Plan(error=ErrorCode.CONCURRENT_TRANSACTIONS)


def test_is_a_new_id_given_when_the_epochs_are_used_up() -> None:
    used_up = replace(EMPTY, producer_epoch=32766)
    plan = _init(used_up)
    assert _identity(plan) == (99, 0)
    assert plan.next is not None
    assert (plan.next.last_producer_id, plan.next.last_producer_epoch) == (1, -1)


def test_is_the_change_of_id_recognised_when_retried() -> None:
    changed = _init(replace(EMPTY, producer_epoch=32766), (1, 32766)).next
    assert changed is not None
    assert _identity(_init(changed, (1, 32766))) == (99, 0)


def test_can_the_last_epoch_still_be_fenced() -> None:
    fenced = _init(replace(ONGOING, producer_epoch=32766)).next
    assert fenced is not None
    assert fenced.producer_epoch == 32767
    settled = state.plan_complete(fenced, 600)
    assert (settled.producer_id, settled.producer_epoch) == (99, 0)
    assert _identity(_init(settled)) == (99, 1)


def test_is_the_id_before_taken_from_a_producer_that_knew_its_last_epoch_only() -> None:
    used_up = replace(ONGOING, producer_epoch=state.EPOCH_MAX - 1)
    settled = state.plan_complete(_fence(used_up), 300)
    assert _identity(_init(settled, (1, state.EPOCH_MAX - 1))) == (99, 0)
    assert _init(settled, (1, 3)) == Plan(error=ErrorCode.PRODUCER_FENCED)
    assert _init(settled, (2, state.EPOCH_MAX - 1)) == Plan(error=ErrorCode.PRODUCER_FENCED)


# -- adding ----------------------------------------------------------------------------------------


def test_does_the_first_partition_open_the_transaction() -> None:
    plan = state.plan_add_partitions(EMPTY, (1, 3), frozenset({("t", 0)}), 100)
    assert plan == Plan(next=ONGOING)


def test_does_another_partition_keep_the_start() -> None:
    plan = state.plan_add_partitions(ONGOING, (1, 3), frozenset({("t", 1)}), 200)
    assert plan.next is not None
    assert plan.next.partitions == {("t", 0), ("t", 1)}
    assert (plan.next.started_ms, plan.next.updated_ms) == (100, 200)


def test_is_nothing_stored_for_a_partition_that_is_in_already() -> None:
    assert state.plan_add_partitions(ONGOING, (1, 3), frozenset({("t", 0)}), 200) == Plan()


@pytest.mark.parametrize(
    ("producer", "error"),
    [
        ((2, 3), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ((1, 2), ErrorCode.PRODUCER_FENCED),
        ((1, 4), ErrorCode.PRODUCER_FENCED),
    ],
)
def test_may_another_producer_add_or_end(producer: tuple[int, int], error: ErrorCode) -> None:
    assert state.plan_add_partitions(ONGOING, producer, frozenset(), 0) == Plan(error=error)
    assert state.plan_end(ONGOING, producer, is_commit=True, now_ms=0) == Plan(error=error)


def test_does_the_next_transaction_wait_for_the_end_of_the_last() -> None:
    ending = replace(ONGOING, state=TxnState.PREPARE_COMMIT)
    for producer in ((1, 3), (99, 0)):
        plan = state.plan_add_partitions(ending, producer, frozenset({("t", 0)}), 200)
        assert plan == Plan(error=ErrorCode.CONCURRENT_TRANSACTIONS), "the next id may be known"


# -- ending ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "commit", "abort"),
    [
        ("EMPTY", "INVALID_TXN_STATE", "INVALID_TXN_STATE"),
        ("ONGOING", "-> PREPARE_COMMIT", "-> PREPARE_ABORT"),
        ("PREPARE_COMMIT", "CONCURRENT_TRANSACTIONS", "CONCURRENT_TRANSACTIONS"),
        ("PREPARE_ABORT", "CONCURRENT_TRANSACTIONS", "CONCURRENT_TRANSACTIONS"),
        ("COMPLETE_COMMIT", "NONE", "INVALID_TXN_STATE"),
        ("COMPLETE_ABORT", "INVALID_TXN_STATE", "NONE"),
    ],
)
def test_what_becomes_of_an_end(now: str, commit: str, abort: str) -> None:
    snapshot = replace(ONGOING, state=TxnState[now])
    outcomes = []
    for is_commit in (True, False):
        plan = state.plan_end(snapshot, (1, 3), is_commit=is_commit, now_ms=300)
        outcomes.append(plan.error.name if plan.next is None else f"-> {plan.next.state.name}")
    assert outcomes == [commit, abort]


@pytest.mark.parametrize(
    ("prepared", "complete"),
    [
        (TxnState.PREPARE_COMMIT, TxnState.COMPLETE_COMMIT),
        (TxnState.PREPARE_ABORT, TxnState.COMPLETE_ABORT),
    ],
)
def test_is_nothing_open_after_completion(prepared: TxnState, complete: TxnState) -> None:
    done = state.plan_complete(replace(ONGOING, state=prepared), 400)
    assert (done.state, done.partitions, done.updated_ms) == (complete, frozenset(), 400)


def test_may_an_open_transaction_be_completed() -> None:
    with pytest.raises(AssertionError):
        state.plan_complete(ONGOING, 0)


def test_may_a_settled_transaction_be_fenced() -> None:
    with pytest.raises(AssertionError):
        _fence(EMPTY)


def test_when_is_a_transaction_timed_out() -> None:
    assert not state.is_timed_out(ONGOING, 60_100)
    assert state.is_timed_out(ONGOING, 60_101)
    assert not state.is_timed_out(replace(ONGOING, state=TxnState.PREPARE_COMMIT), 10**12)


def test_when_is_an_id_forgotten() -> None:
    assert state.is_expired(replace(EMPTY, updated_ms=0), 1000, 1000)
    assert not state.is_expired(replace(EMPTY, updated_ms=1), 1000, 1000)
    assert not state.is_expired(replace(ONGOING, updated_ms=0), 10**12, 1000)


def test_what_are_states_called() -> None:
    assert [each.title for each in TxnState][:3] == ["Empty", "Ongoing", "PrepareCommit"]


@given(st.lists(st.sampled_from(["init", "bump", "add", "commit", "abort", "fence", "done"])))
def test_do_id_and_epoch_only_grow(steps: list[str]) -> None:
    now, ids = NEW, iter(range(2, 10_000))
    for step in steps:
        me = (now.producer_id, now.producer_epoch)
        if step in ("init", "bump"):
            expected = me if step == "bump" and me[1] >= 0 else None
            plan = state.plan_init(
                now, timeout_ms=1, expected=expected, allocate=lambda: next(ids), now_ms=0
            )
        elif step == "add":
            plan = state.plan_add_partitions(now, me, frozenset({("t", 0)}), 0)
        elif step in ("commit", "abort"):
            plan = state.plan_end(now, me, is_commit=step == "commit", now_ms=0)
        elif step == "fence" and now.state is TxnState.ONGOING:
            plan = Plan(next=state.plan_fence(now, 0, lambda: next(ids)))
        elif step == "done" and now.state in state.PREPARED:
            plan = Plan(next=state.plan_complete(now, 0))
        else:
            continue
        if plan.next is not None:
            assert (plan.next.producer_id, plan.next.producer_epoch) >= me
            now = plan.next


# -- transaction version 2 (KIP-890) ---------------------------------------------------------------


def _end2(now: TxnSnapshot, producer: tuple[int, int], *, is_commit: bool = True) -> Plan:
    return state.plan_end(now, producer, is_commit=is_commit, now_ms=300, allocate=lambda: 99)


def test_is_an_end_marked_with_the_next_epoch() -> None:
    prepared = _end2(ONGOING, (1, 3)).next
    assert prepared is not None
    assert (prepared.state, prepared.producer_epoch) == (TxnState.PREPARE_COMMIT, 4)
    assert prepared.next_producer == (1, 4)
    complete = state.plan_complete(prepared, 400)
    assert (complete.producer_id, complete.producer_epoch) == (1, 4)
    assert _end2(complete, (1, 3)) == Plan()
    assert _end2(complete, (1, 3), is_commit=False).error is ErrorCode.INVALID_TXN_STATE
    assert _end2(prepared, (1, 3)).error is ErrorCode.CONCURRENT_TRANSACTIONS


def test_is_a_producer_id_with_no_epoch_left_followed_by_a_new_one() -> None:
    last = replace(ONGOING, producer_epoch=state.EPOCH_MAX - 1)
    prepared = _end2(last, (1, state.EPOCH_MAX - 1)).next
    assert prepared is not None
    assert (prepared.producer_id, prepared.producer_epoch) == (1, state.EPOCH_MAX)
    assert prepared.next_producer == (99, 0)
    complete = state.plan_complete(prepared, 400)
    assert (complete.producer_id, complete.producer_epoch) == (99, 0)
    assert complete.next_producer_id == NO_PRODUCER_ID
    assert _end2(complete, (1, state.EPOCH_MAX - 1)) == Plan(), "its retry is recognised"
    assert _end2(complete, (1, state.EPOCH_MAX)).error is not ErrorCode.NONE


def test_is_an_end_of_the_epoch_before_fenced_once_the_next_has_begun() -> None:
    prepared = _end2(ONGOING, (1, 3)).next
    assert prepared is not None
    complete = state.plan_complete(prepared, 400)
    begun = state.plan_add_partitions(complete, (1, 4), frozenset({("t", 0)}), 500).next
    assert begun is not None
    assert _end2(begun, (1, 3)).error is ErrorCode.PRODUCER_FENCED
    empty = _init(complete).next
    assert empty is not None
    assert _end2(empty, (1, 3)).error is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("now", [EMPTY, replace(EMPTY, state=TxnState.COMPLETE_COMMIT)])
def test_may_what_never_began_be_aborted_but_not_committed(now: TxnSnapshot) -> None:
    aborted = _end2(now, (1, 3), is_commit=False).next
    assert aborted is not None
    assert (aborted.state, aborted.producer_epoch) == (TxnState.COMPLETE_ABORT, 4)
    assert _end2(now, (1, 3)).error is ErrorCode.INVALID_TXN_STATE


def test_may_a_producer_abort_what_the_coordinator_has_aborted() -> None:
    prepared = _fence(ONGOING)
    for is_commit in (True, False):
        early = _end2(prepared, (1, 3), is_commit=is_commit)
        assert early.error is ErrorCode.CONCURRENT_TRANSACTIONS
    fenced = state.plan_complete(prepared, 300)
    assert (fenced.state, fenced.producer_epoch) == (TxnState.COMPLETE_ABORT, 4)
    assert _end2(fenced, (1, 3), is_commit=False) == Plan(), "it goes on in the next epoch"
    assert _end2(fenced, (1, 3)).error is ErrorCode.INVALID_TXN_STATE
    assert _end2(fenced, (1, 2), is_commit=False).error is ErrorCode.PRODUCER_FENCED
    old_client = state.plan_end(fenced, (1, 3), is_commit=False, now_ms=400)
    assert old_client.error is ErrorCode.PRODUCER_FENCED


def test_may_a_producer_ask_for_the_epoch_that_the_coordinator_made() -> None:
    fenced = state.plan_complete(_fence(ONGOING), 300)
    for _ in range(2):
        plan = _init(fenced, (1, 3))
        assert _identity(plan) == (1, 4), "the same one again: its answer may have been lost"
        assert plan.next is not None
        fenced = plan.next
    assert _init(fenced, (1, 2)) == Plan(error=ErrorCode.PRODUCER_FENCED)


def test_is_the_producer_before_fenced_once_another_one_has_taken_over() -> None:
    aborted = state.plan_complete(_fence(ONGOING), 300)
    taken = _init(aborted).next
    assert taken is not None
    assert (taken.producer_id, taken.producer_epoch) == (1, 5)
    assert _init(taken, (1, 3)) == Plan(error=ErrorCode.PRODUCER_FENCED)
    assert _end2(taken, (1, 3), is_commit=False).error is ErrorCode.PRODUCER_FENCED
    done = state.plan_complete(
        replace(taken, state=TxnState.PREPARE_COMMIT, partitions=ONGOING.partitions), 400
    )
    for is_commit in (True, False):
        assert _end2(done, (1, 4), is_commit=is_commit).error is ErrorCode.PRODUCER_FENCED
        assert _end2(done, (1, 3), is_commit=is_commit).error is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize(
    ("error", "old", "new"),
    [
        ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_EPOCH"),
        ("CONCURRENT_TRANSACTIONS", "NOT_ENOUGH_REPLICAS", "CONCURRENT_TRANSACTIONS"),
        ("TRANSACTION_ABORTABLE", "INVALID_TXN_STATE", "TRANSACTION_ABORTABLE"),
        (
            "INVALID_PRODUCER_ID_MAPPING",
            "INVALID_PRODUCER_ID_MAPPING",
            "INVALID_PRODUCER_ID_MAPPING",
        ),
    ],
)
def test_what_is_a_refused_write_called(error: str, old: str, new: str) -> None:
    codes = [
        state.refusal_of_a_write(ErrorCode[error], knows_abortable=knows, knows_concurrent=knows)
        for knows in (False, True)
    ]
    assert codes == [ErrorCode[old], ErrorCode[new]]


@pytest.mark.parametrize("before", [each for each in TxnState if each < TxnState.DEAD])
@pytest.mark.parametrize("after", [each for each in TxnState if each < TxnState.DEAD])
def test_no_end_is_reversed(before: TxnState, after: TxnState) -> None:
    now = replace(EMPTY, state=before)
    may_follow = {
        TxnState.EMPTY: "EMPTY ONGOING COMPLETE_ABORT",
        TxnState.ONGOING: "ONGOING PREPARE_COMMIT PREPARE_ABORT",
        TxnState.PREPARE_COMMIT: "COMPLETE_COMMIT",
        TxnState.PREPARE_ABORT: "COMPLETE_ABORT",
        TxnState.COMPLETE_COMMIT: "EMPTY ONGOING COMPLETE_ABORT",
        TxnState.COMPLETE_ABORT: "EMPTY ONGOING COMPLETE_ABORT",
    }
    if after.name in may_follow[before].split():
        state.check_successor(now, replace(now, state=after))
    else:
        with pytest.raises(AssertionError):
            state.check_successor(now, replace(now, state=after))


def test_no_epoch_falls_under_one_producer_id() -> None:
    now = replace(EMPTY, producer_epoch=5)
    state.check_successor(now, replace(now, producer_epoch=5))
    state.check_successor(now, replace(now, producer_id=99, producer_epoch=0))
    with pytest.raises(AssertionError):
        state.check_successor(now, replace(now, producer_epoch=4))

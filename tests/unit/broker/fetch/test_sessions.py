"""Fetch sessions: KIP-227's table of ids and epochs, order of service, eviction."""

import random

import pytest

from broker.fetch.sessions import EVICTABLE_AFTER_MS, FetchPlan, FetchSessions
from broker.principal import ANONYMOUS, Principal, user
from protocol.api.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from protocol.error_codes import ErrorCode
from storage.disk.steps import run_steps
from tests.support.clock import FrozenClock

NAMES = 12
IDS = 13


def sessions(slots: int = 10, clock: FrozenClock | None = None) -> FetchSessions:
    return FetchSessions(slots, clock=clock or FrozenClock(), source=random.Random(1))


def plan_of(
    cache: FetchSessions, message: FetchRequest, version: int, owner: Principal = ANONYMOUS
) -> FetchPlan:
    return run_steps(cache.plan(message, version, owner))


def request(
    session_id: int = 0,
    epoch: int = -1,
    partitions: tuple[int, ...] = (),
    forget: tuple[int, ...] = (),
    offset: int = 0,
) -> FetchRequest:
    asked = [FetchPartition(partition=index, fetch_offset=offset) for index in partitions]
    return FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic(topic="t", partitions=asked)] if asked else [],
        forgotten_topics_data=[ForgottenTopic(topic="t", partitions=list(forget))],
    )


def test_no_session_wanted_gives_none() -> None:
    plan = plan_of(sessions(), request(0, -1, (0, 1)), NAMES)
    assert plan.session_id == 0
    assert not plan.is_incremental
    assert [target.partition for target in plan.targets] == [0, 1]


def test_first_fetch_opens_a_session_and_is_full() -> None:
    plan = plan_of(sessions(), request(0, 0, (0, 1)), NAMES)
    assert plan.session_id > 0
    assert not plan.is_incremental
    assert len(plan.targets) == 2


def test_next_epoch_is_incremental_and_remembers_partitions() -> None:
    cache = sessions()
    session_id = plan_of(cache, request(0, 0, (0, 1)), NAMES).session_id
    plan = plan_of(cache, request(session_id, 1), NAMES)
    assert plan.is_incremental
    assert [target.partition for target in plan.targets] == [0, 1]


def test_incremental_request_adds_changes_and_forgets() -> None:
    cache = sessions()
    session_id = plan_of(cache, request(0, 0, (0, 1)), NAMES).session_id
    plan = plan_of(cache, request(session_id, 1, (1, 2), (0,), offset=7), NAMES)
    assert [(t.partition, t.asked.fetch_offset) for t in plan.targets] == [(1, 7), (2, 7)]


@pytest.mark.parametrize("epoch", [2, 3, 2**31 - 1])
def test_wrong_epoch_is_refused(epoch: int) -> None:
    cache = sessions()
    session_id = plan_of(cache, request(0, 0, (0,)), NAMES).session_id
    plan = plan_of(cache, request(session_id, epoch), NAMES)
    assert plan.error is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_repeated_epoch_is_refused() -> None:
    cache = sessions()
    session_id = plan_of(cache, request(0, 0, (0,)), NAMES).session_id
    plan_of(cache, request(session_id, 1), NAMES)
    plan = plan_of(cache, request(session_id, 1), NAMES)
    assert plan.error is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_unknown_session_is_refused() -> None:
    plan = plan_of(sessions(), request(99, 1), NAMES)
    assert plan.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_does_not_exist_for_another_principal() -> None:
    cache = sessions()
    session_id = plan_of(cache, request(0, 0, (0, 1)), NAMES, user("alice")).session_id
    for epoch in (1, -1, 0):
        plan = plan_of(cache, request(session_id, epoch), NAMES, user("bob"))
        wanted = ErrorCode.FETCH_SESSION_ID_NOT_FOUND if epoch == 1 else ErrorCode.NONE
        assert plan.error is wanted
    assert plan_of(cache, request(session_id, 1), NAMES, user("alice")).is_incremental


def test_final_epoch_ends_the_session() -> None:
    cache = sessions()
    session_id = plan_of(cache, request(0, 0, (0,)), NAMES).session_id
    plan_of(cache, request(session_id, -1, (0,)), NAMES)
    assert len(cache) == 0


def test_initial_epoch_with_an_old_id_replaces_the_session() -> None:
    cache = sessions()
    old_id = plan_of(cache, request(0, 0, (0,)), NAMES).session_id
    new_id = plan_of(cache, request(old_id, 0, (0,)), NAMES).session_id
    assert new_id not in (0, old_id)
    assert len(cache) == 1


def test_changing_from_names_to_ids_is_refused() -> None:
    cache = sessions()
    session_id = plan_of(cache, request(0, 0, (0,)), NAMES).session_id
    assert (
        plan_of(cache, request(session_id, 1), IDS).error is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    )


def test_session_that_forgot_everything_ends() -> None:
    cache = sessions()
    session_id = plan_of(cache, request(0, 0, (0,)), NAMES).session_id
    plan = plan_of(cache, request(session_id, 1, (), (0,)), NAMES)
    assert (plan.session_id, plan.targets) == (0, ())
    assert len(cache) == 0


def test_epoch_wraps_to_one() -> None:
    cache = sessions()
    session = plan_of(cache, request(0, 0, (0,)), NAMES).session
    assert session is not None
    session.next_epoch = 2**31 - 1
    assert plan_of(cache, request(session.id, 2**31 - 1), NAMES).error is ErrorCode.NONE
    assert session.next_epoch == 1


def test_partition_that_had_data_goes_to_the_end() -> None:
    cache = sessions()
    plan = plan_of(cache, request(0, 0, (0, 1, 2)), NAMES)
    assert plan.session is not None
    plan.session.move_to_end(plan.targets[0])
    assert [target.partition for target in plan.session] == [1, 2, 0]


def test_no_slots_means_no_sessions() -> None:
    assert plan_of(sessions(slots=0), request(0, 0, (0,)), NAMES).session_id == 0


def test_full_cache_keeps_young_sessions_of_the_same_size() -> None:
    cache = sessions(slots=1)
    first_id = plan_of(cache, request(0, 0, (0,)), NAMES).session_id
    assert plan_of(cache, request(0, 0, (0,)), NAMES).session_id == 0
    assert plan_of(cache, request(first_id, 1), NAMES).error is ErrorCode.NONE


def test_full_cache_evicts_the_smallest_for_a_larger_one() -> None:
    cache = sessions(slots=1)
    first_id = plan_of(cache, request(0, 0, (0,)), NAMES).session_id
    assert plan_of(cache, request(0, 0, (0, 1)), NAMES).session_id > 0
    assert plan_of(cache, request(first_id, 1), NAMES).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.evictions == 1


def test_full_cache_evicts_an_idle_session_for_any_other() -> None:
    clock = FrozenClock()
    cache = sessions(slots=1, clock=clock)
    plan_of(cache, request(0, 0, (0, 1, 2)), NAMES)
    clock.advance(EVICTABLE_AFTER_MS + 1)
    assert plan_of(cache, request(0, 0, (0,)), NAMES).session_id > 0

"""The stored states of share groups over a link: what is read, written, kept and forgotten."""

import json
from collections.abc import Callable
from typing import Any, cast

import pytest

from broker.groups.internal_topic import WhenDone
from broker.groups.share.persister import StateChange, StateNeeded
from broker.groups.share.stored_state import ShareKey, StoredState
from broker.groups.share.values import Delivery, StateBatch
from broker.groups.share_states import ShareStates
from broker.workers.link import Message
from broker.workers.share_states import LinkedShareStates, answer_call
from protocol.error_codes import ErrorCode

KEY = ShareKey("g", b"t" * 16, 3)
BATCHES = [StateBatch(5, 6, Delivery.ACKNOWLEDGED, 1), StateBatch(8, 9, Delivery.AVAILABLE, 2)]


class FakeStates:
    """The states at worker 1."""

    def __init__(self) -> None:
        self.known: dict[ShareKey, StoredState] = {}
        self.written: list[StateChange] = []
        self.error = ErrorCode.NONE

    def find(self, key: ShareKey) -> StoredState | None:
        return self.known.get(key)

    def write(self, change: StateChange, when_done: WhenDone) -> None:
        self.written.append(change)
        when_done(self.error)


class FirstEnd:
    """Calls as they pass a link: JSON. `is_there` False loses them, `held` keeps the answers."""

    def __init__(self) -> None:
        self.states: FakeStates | None = FakeStates()
        self.is_there = True
        self.calls = 0
        self.held: list[Callable[[], object]] | None = None

    def __call__(self, message: Message, answer: Callable[[Any], object]) -> None:
        self.calls += 1
        if not self.is_there:
            answer(None)
            return

        def reply(value: Any) -> None:
            read = json.loads(json.dumps(value))
            if self.held is None:
                answer(read)
            else:
                self.held.append(lambda: answer(read))

        states = cast("ShareStates | None", self.states)
        answer_call(states, json.loads(json.dumps(message)), reply)


@pytest.fixture
def first() -> FirstEnd:
    end = FirstEnd()
    assert end.states is not None
    end.states.known[KEY] = StoredState(state_epoch=4, start_offset=5, batches=list(BATCHES))
    return end


def change() -> StateChange:
    return StateChange(key=KEY, state_epoch=4, start_offset=7, batches=BATCHES, done_count=1)


def test_a_state_is_read_before_it_is_found_and_found_once(first: FirstEnd) -> None:
    linked = LinkedShareStates(first)
    read: list[int] = []
    with pytest.raises(StateNeeded) as needed:
        linked.find(KEY)
    linked.read(needed.value.key, lambda: read.append(1))
    assert read == [1]
    found = linked.find(KEY)
    assert found is not None
    assert (found.state_epoch, found.start_offset, found.batches) == (4, 5, BATCHES)
    assert [each.state for each in found.batches] == [Delivery.ACKNOWLEDGED, Delivery.AVAILABLE]
    assert all(isinstance(each.state, Delivery) for each in found.batches)
    with pytest.raises(StateNeeded):
        linked.find(KEY)


def test_a_state_that_is_not_initialized_is_none(first: FirstEnd) -> None:
    linked = LinkedShareStates(first)
    other = KEY._replace(partition=4)
    linked.read(other, lambda: None)
    assert linked.find(other) is None


def test_several_that_wait_for_a_state_ask_once(first: FirstEnd) -> None:
    linked = LinkedShareStates(first)
    read: list[str] = []
    first.held = []
    linked.read(KEY, lambda: read.append("a"))
    linked.read(KEY, lambda: read.append("b"))
    assert first.calls == 1
    first.held[0]()
    assert read == ["a", "b"]


def test_without_worker_1_a_read_finds_nothing_and_a_write_is_refused(first: FirstEnd) -> None:
    linked = LinkedShareStates(first)
    errors: list[ErrorCode] = []
    first.is_there = False
    linked.read(KEY, lambda: pytest.fail("nothing was read"))
    linked.write(change(), errors.append)
    assert errors == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    first.is_there = True
    linked.read(KEY, lambda: None)
    assert linked.find(KEY) is not None


def test_worker_1_that_has_no_states_yet_answers_so(first: FirstEnd) -> None:
    linked = LinkedShareStates(first)
    errors: list[ErrorCode] = []
    first.states = None
    linked.read(KEY, lambda: pytest.fail("nothing was read"))
    linked.write(change(), errors.append)
    assert errors == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


def test_a_change_arrives_as_it_was_made(first: FirstEnd) -> None:
    linked = LinkedShareStates(first)
    errors: list[ErrorCode] = []
    linked.write(change(), errors.append)
    assert errors == [ErrorCode.NONE]
    assert first.states is not None
    (written,) = first.states.written
    for name in ("key", "state_epoch", "start_offset", "batches", "done_count", "leader_epoch"):
        assert getattr(written, name) == getattr(change(), name), name
    assert all(isinstance(each.state, Delivery) for each in written.batches)
    first.states.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    linked.write(change(), errors.append)
    assert errors[-1] is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_what_was_read_with_a_refused_change_is_read_again(first: FirstEnd) -> None:
    linked = LinkedShareStates(first)
    linked.read(KEY, lambda: None)
    assert first.states is not None
    first.states.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    linked.write(change(), lambda _: None)
    with pytest.raises(StateNeeded):
        linked.find(KEY)


def test_what_was_read_of_a_deleted_group_is_forgotten(first: FirstEnd) -> None:
    linked = LinkedShareStates(first)
    linked.read(KEY, lambda: None)
    linked.drop_group("another")
    linked.drop_group("g")
    with pytest.raises(StateNeeded):
        linked.find(KEY)

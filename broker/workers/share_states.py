"""The stored states of share groups, over the link between a worker and worker 1, both ends.

Worker 1 keeps all states (`broker.groups.share_states`). The worker that leads a partition has the
share partition: it reads the state before the first fetch, and writes each change.

    {"call": 7, "share_read": [group, topic id, partition]}
    {"reply": 7, "value": {"state_epoch": 0, "start_offset": 12, "batches": [[12, 14, 2, 1]]}}
    {"call": 8, "share_write": {"key": [...], "state_epoch": 0, "start_offset": 15, ...}}
    {"reply": 8, "value": 0}        the error code
    {"share_drop": group}           from worker 1: its states begin again, or are deleted

Messages arrive in order, so that a read finds every write before it. A write whose reply is lost
may have been stored: its acknowledgement is refused and the records are delivered again.

As in Kafka, where ReadShareGroupState and WriteShareGroupState do this between brokers.
"""

from collections.abc import Callable
from typing import Any, Final

from broker.groups.internal_topic import WhenDone
from broker.groups.share.persister import StateChange, StateNeeded
from broker.groups.share.stored_state import ShareKey, StoredState
from broker.groups.share.values import Delivery, StateBatch
from broker.groups.share_states import ShareStates
from broker.workers.link import Message
from protocol.error_codes import ErrorCode

READ: Final = "share_read"
WRITE: Final = "share_write"
DROP: Final = "share_drop"

CallFirst = Callable[[Message, Callable[[Any], object]], object]
"""Calls worker 1; the answer is None when it is not there."""


class LinkedShareStates:
    """The states as a worker above 1 sees them. Loop thread only.

    A state that was read is kept until it is found once: from then on the share partition that was
    loaded from it is the newest there is.
    """

    def __init__(self, call_first: CallFirst) -> None:
        self._call_first = call_first
        self._read: dict[ShareKey, StoredState | None] = {}
        self._waiting: dict[ShareKey, dict[Callable[[], object], None]] = {}

    def find(self, key: ShareKey) -> StoredState | None:
        """The state as just read, None if it is not initialized. Raises: StateNeeded."""
        if key not in self._read:
            raise StateNeeded(key)
        return self._read.pop(key)

    def read(self, key: ShareKey, when_read: Callable[[], object]) -> None:
        """As in `Persister`."""
        if key in self._waiting:
            self._waiting[key][when_read] = None
            return
        self._waiting[key] = {when_read: None}

        def answered(value: Message | None) -> None:
            waiting = self._waiting.pop(key)
            if value is not None:
                self._read[key] = _state_of(value)
                for each in waiting:
                    each()

        self._call_first({READ: _plain_key(key)}, answered)

    def write(self, change: StateChange, when_done: WhenDone) -> None:
        """Store a change at worker 1."""

        def answered(code: int | None) -> None:
            if code != ErrorCode.NONE:
                self._read.pop(change.key, None)  # it may have been read with this change
            when_done(ErrorCode.COORDINATOR_NOT_AVAILABLE if code is None else ErrorCode(code))

        message = {
            "key": _plain_key(change.key),
            "state_epoch": change.state_epoch,
            "start_offset": change.start_offset,
            "batches": change.batches,
            "done_count": change.done_count,
            "leader_epoch": change.leader_epoch,
        }
        self._call_first({WRITE: message}, answered)

    def drop_group(self, group_id: str) -> None:
        """Forget what was read of a group."""
        for key in [key for key in self._read if key.group_id == group_id]:
            del self._read[key]


def answer_call(
    states: ShareStates | None, message: Message, reply: Callable[[Any], object]
) -> None:
    """Serve a worker at worker 1; without states nothing is available yet."""
    if READ in message:
        reply(None if states is None else _plain_state(states.find(_key_of(message[READ]))))
        return
    if states is None:
        reply(int(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return
    asked = message[WRITE]
    change = StateChange(
        key=_key_of(asked["key"]),
        state_epoch=asked["state_epoch"],
        start_offset=asked["start_offset"],
        batches=_batches_of(asked["batches"]),
        done_count=asked["done_count"],
        leader_epoch=asked["leader_epoch"],
    )
    states.write(change, lambda error: reply(int(error)))


def _plain_key(key: ShareKey) -> list[str | int]:
    return [key.group_id, key.topic_id.hex(), key.partition]


def _key_of(plain: list[Any]) -> ShareKey:
    group_id, topic_id, partition = plain
    return ShareKey(group_id, bytes.fromhex(topic_id), partition)


def _plain_state(state: StoredState | None) -> Message:
    """What a share partition is loaded from; nothing of a state that is not initialized."""
    if state is None:
        return {}
    return {
        "state_epoch": state.state_epoch,
        "leader_epoch": state.leader_epoch,
        "start_offset": state.start_offset,
        "batches": state.batches,
    }


def _state_of(plain: Message) -> StoredState | None:
    if not plain:
        return None
    return StoredState(
        state_epoch=plain["state_epoch"],
        leader_epoch=plain["leader_epoch"],
        start_offset=plain["start_offset"],
        batches=_batches_of(plain["batches"]),
    )


def _batches_of(plain: list[list[int]]) -> list[StateBatch]:
    return [
        StateBatch(first, last, Delivery(state), deliveries)
        for first, last, state, deliveries in plain
    ]

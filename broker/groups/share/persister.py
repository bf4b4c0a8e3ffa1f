"""What share partitions need of the stored states, wherever these are kept.

Kept here: `broker.groups.share_states`; by worker 1: `broker.workers.share_states`.

Source: Kafka's `Persister`.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from broker.groups.share.stored_state import UNKNOWN_EPOCH, ShareKey, StoredState
from broker.groups.share.values import StateBatch
from protocol.error_codes import ErrorCode
from values.dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StateChange:
    """What to store of a share partition that was loaded in `state_epoch`.

    A `start_offset` or a `leader_epoch` of -1 is unchanged.
    """

    key: ShareKey
    state_epoch: int
    start_offset: int
    batches: Sequence[StateBatch]
    done_count: int
    leader_epoch: int = UNKNOWN_EPOCH


class StateNeeded(Exception):
    """A state has to be read from worker 1 first."""

    def __init__(self, key: ShareKey) -> None:
        super().__init__(key)
        self.key = key


class Persister(Protocol):
    """What share partitions need of the stored states: kept here, or by worker 1."""

    def find(self, key: ShareKey) -> StoredState | None:
        """The state of a share partition; None before it is initialized. Not to be changed.

        Raises:
            StateNeeded: `read` it first.
        """

    def read(self, key: ShareKey, when_read: Callable[[], object]) -> None:
        """Read a state for `find`; `when_read` is not called if worker 1 is not there."""

    def write(self, change: StateChange, when_done: Callable[[ErrorCode], object]) -> None:
        """Store a change. `when_done` gets NOT_LEADER_OR_FOLLOWER when it is fenced."""

"""Share sessions: the partitions that a member of a share group fetches, and its request epoch.

A session belongs to a member of a group, and ends with the connection that opened it. Each
ShareFetch and ShareAcknowledge has the next epoch, so that a request that is sent twice is noticed.

| epoch | session | meaning                                                                  |
|-------|---------|--------------------------------------------------------------------------|
| 0     | any     | a new session; one of the member is replaced, and keeps its records      |
| next  | open    | add the partitions of the request, drop the forgotten ones               |
| other | open    | INVALID_SHARE_SESSION_EPOCH                                              |
| > 0   | none    | SHARE_SESSION_NOT_FOUND                                                  |
| -1    | open    | the last acknowledgements; then the session ends, its records come back  |

Epochs run 1, 2, ... 2^31-1, 1. A member needs no membership: the coordinator of the group and the
sessions know nothing of each other.

Source: KIP-932; Kafka's `ShareSessionCache`, `SharePartitionManager.newContext`.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from typing import Final

from broker.groups.consumer.values import Partition
from protocol.error_codes import ErrorCode
from values.dataclasses import dataclass

FINAL_EPOCH: Final = -1
INITIAL_EPOCH: Final = 0
_EPOCH_MAX: Final = 2**31 - 1

SessionKey = tuple[str, str]
"""Group and member."""


@dataclass(slots=True, eq=False)
class ShareSession:
    """The partitions of one member, in the order in which they get records."""

    group_id: str
    member_id: str
    connection_id: int
    next_epoch: int = 1
    partitions: dict[Partition, None] = field(default_factory=dict)

    def advance(self) -> None:
        """Expect the epoch after this one."""
        self.next_epoch = 1 if self.next_epoch == _EPOCH_MAX else self.next_epoch + 1

    def update(self, added: Iterable[Partition], forgotten: Iterable[Partition]) -> None:
        """Add and drop partitions."""
        for partition in added:
            self.partitions.setdefault(partition, None)
        for partition in forgotten:
            self.partitions.pop(partition, None)

    def rotate(self, partition: Partition) -> None:
        """`partition` has had its share: the others go first next time."""
        if partition in self.partitions:
            del self.partitions[partition]
            self.partitions[partition] = None


class ShareSessions:
    """All share sessions. Loop thread only.

    `ended` is called with each session that ends, and whether it was the last one of its group.
    """

    def __init__(self, limit: int, ended: Callable[[ShareSession, bool], object]) -> None:
        self._limit = limit
        self._ended = ended
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._of_group: dict[str, int] = {}

    def __len__(self) -> int:
        """How many sessions are open."""
        return len(self._sessions)

    def __iter__(self) -> Iterator[ShareSession]:
        """The open sessions."""
        return iter(list(self._sessions.values()))

    @property
    def is_full(self) -> bool:
        """Whether no further member gets a session."""
        return len(self._sessions) >= self._limit

    def open(self, group_id: str, member_id: str, connection_id: int) -> ShareSession | None:
        """A new session in place of the member's old one; None when there are too many."""
        key = (group_id, member_id)
        if key not in self._sessions:
            if self.is_full:
                return None
            self._of_group[group_id] = self._of_group.get(group_id, 0) + 1
        session = self._sessions[key] = ShareSession(group_id, member_id, connection_id)
        assert len(self._sessions) <= self._limit, "more sessions than allowed"
        return session

    def advance(
        self, group_id: str, member_id: str, epoch: int
    ) -> tuple[ShareSession | None, ErrorCode]:
        """The member's session, which expects the epoch after `epoch` from now on; or the error.

        The final epoch does not advance it.
        """
        session = self._sessions.get((group_id, member_id))
        if session is None:
            return None, ErrorCode.SHARE_SESSION_NOT_FOUND
        if epoch == FINAL_EPOCH:
            return session, ErrorCode.NONE
        if epoch != session.next_epoch:
            return None, ErrorCode.INVALID_SHARE_SESSION_EPOCH
        session.advance()
        return session, ErrorCode.NONE

    def end(self, session: ShareSession) -> None:
        """End a session, unless another one has taken its place."""
        key = (session.group_id, session.member_id)
        if self._sessions.get(key) is not session:
            return
        del self._sessions[key]
        left = self._of_group[session.group_id] - 1
        assert left >= 0, f"{session.group_id} has no session"
        if left:
            self._of_group[session.group_id] = left
        else:
            del self._of_group[session.group_id]
        self._ended(session, left == 0)

    def connection_closed(self, connection_id: int) -> None:
        """End the sessions of a connection."""
        for session in self:
            if session.connection_id == connection_id:
                self.end(session)

"""Incremental fetch sessions: the partitions of a consumer, kept between its fetches.

With a session a client names its partitions once, and after that only the changes; the broker
answers with the partitions that have news. A session is a cache entry, not a promise: the broker
may evict it at any time, and the client then starts over with a full fetch.

| session id | epoch | meaning                                                          |
|------------|-------|------------------------------------------------------------------|
| any        | -1    | no session wanted; one with this id ends                         |
| any        | 0     | full fetch; please open a session (one with this id ends)        |
| known      | next  | incremental fetch                                                |
| known      | other | INVALID_FETCH_SESSION_EPOCH                                      |
| unknown    | > 0   | FETCH_SESSION_ID_NOT_FOUND                                       |

Epochs run 1, 2, ... 2^31-1, 1: zero and minus one keep their meaning. A session is about names
(before v13) or ids (since); changing sides is FETCH_SESSION_TOPIC_ID_ERROR.

Differs from Kafka: a session belongs to the principal that opened it. For another principal it does
not exist, so that no client can advance or end the session of another user by its number.

This module knows nothing of logs: it keeps the requested partitions and the values last reported.

Source: KIP-227, KIP-516; Kafka's `FetchManager`, `FetchSession`.
"""

import random
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from broker.clocks.clock import Clock
from broker.principal import ANONYMOUS, Principal
from protocol.error_codes import ErrorCode
from storage.disk.steps import SLICE_RECORDS, Slice, Steps
from values.dataclasses import dataclass

if TYPE_CHECKING:  # loaded with the handler
    from protocol.api.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic

NO_SESSION_ID = 0
FINAL_EPOCH = -1
INITIAL_EPOCH = 0

EVICTABLE_AFTER_MS = 120_000
"""A session unused for this long may be evicted for a new one, whatever its size."""

TOPIC_IDS_SINCE = 13

_EPOCH_MAX = 2**31 - 1
_SESSION_ID_MAX = 2**31 - 1


@dataclass(slots=True)
class FetchTarget:
    """One partition of a fetch: its request, and what the session last reported."""

    topic: str
    topic_id: bytes
    partition: int
    asked: "FetchPartition"
    reported_high_watermark: int = -1
    reported_log_start_offset: int = -1


@dataclass(slots=True, kw_only=True)
class FetchPlan:
    """The partitions of one fetch request, sessions resolved.

    Attributes:
        targets: the partitions to read, in the order they should share the bytes.
        session: the session it belongs to, or None.
        is_incremental: whether partitions without news are left out of the answer.
        error: why the broker refuses the request as a whole.
    """

    targets: tuple[FetchTarget, ...] = ()
    session: "FetchSession | None" = None
    is_incremental: bool = False
    error: ErrorCode = ErrorCode.NONE

    @property
    def session_id(self) -> int:
        """The session id to answer with."""
        return NO_SESSION_ID if self.session is None else self.session.id


class FetchSession:
    """The partitions of one consumer, in the order in which they get bytes."""

    __slots__ = ("_targets", "id", "next_epoch", "owner", "used_ms", "uses_topic_ids")

    def __init__(
        self, session_id: int, *, owner: Principal, uses_topic_ids: bool, now_ms: int
    ) -> None:
        """Start empty, expecting epoch 1 of a fetch by `owner`."""
        self.id = session_id
        self.owner = owner
        self.uses_topic_ids = uses_topic_ids
        self.next_epoch = 1
        self.used_ms = now_ms
        self._targets: dict[tuple[str | bytes, int], FetchTarget] = {}

    def __len__(self) -> int:
        """How many partitions it holds."""
        return len(self._targets)

    def __iter__(self) -> Iterator[FetchTarget]:
        """Its partitions, in the order in which they are served."""
        return iter(self._targets.values())

    def update(
        self, targets: Iterable[FetchTarget], forgotten: "Iterable[ForgottenTopic]"
    ) -> Steps[None]:
        """Add or change the partitions of the request, drop its forgotten ones."""
        spent = Slice()
        for target in targets:
            key = self._key(target)
            known = self._targets.get(key)
            if known is None:
                self._targets[key] = target
            else:
                known.asked = target.asked
            if spent.add(1):
                yield None
        for topic in forgotten:
            name: str | bytes = topic.topic_id if self.uses_topic_ids else topic.topic
            for partition in topic.partitions:
                self._targets.pop((name, partition), None)
                if spent.add(1):
                    yield None

    def move_to_end(self, target: FetchTarget) -> None:
        """`target` has had its share: the others go first next time."""
        key = self._key(target)
        if self._targets.pop(key, None) is not None:
            self._targets[key] = target

    def advance(self) -> None:
        """Expect the epoch after this one."""
        self.next_epoch = 1 if self.next_epoch == _EPOCH_MAX else self.next_epoch + 1

    def _key(self, target: FetchTarget) -> tuple[str | bytes, int]:
        return (target.topic_id if self.uses_topic_ids else target.topic, target.partition)


class FetchSessions:
    """The cache of sessions, with a fixed number of slots. Loop thread only."""

    def __init__(self, slots: int, *, clock: Clock, source: random.Random) -> None:
        """Keep at most `slots` sessions; 0 switches sessions off."""
        self._slots = slots
        self._clock = clock
        self._random = source
        # In order of last use, the longest unused first.
        self._sessions: dict[int, FetchSession] = {}
        self.evictions = 0

    def __len__(self) -> int:
        """How many sessions are open."""
        return len(self._sessions)

    def plan(
        self, request: "FetchRequest", api_version: int, owner: Principal = ANONYMOUS
    ) -> Steps[FetchPlan]:
        """The plan of `request` by `owner`; opens, updates or ends a session as it says.

        The session has its next epoch, or is in the cache, before the first step ends.
        """
        session = self._find(request.session_id, owner)
        if request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            if session is not None:
                del self._sessions[session.id]
            targets = _only_target(request.topics) or (yield from _targets(request.topics))
            if request.session_epoch == FINAL_EPOCH or not targets:
                return FetchPlan(targets=tuple(targets))
            session = self._open(len(targets), api_version, owner)
            if session is None:
                return FetchPlan(targets=tuple(targets))
            yield from session.update(targets, ())
            return FetchPlan(targets=tuple(session), session=session)
        if session is None:
            return FetchPlan(error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.uses_topic_ids != (api_version >= TOPIC_IDS_SINCE):
            return FetchPlan(error=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if session.next_epoch != request.session_epoch:
            return FetchPlan(error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        self.advance(session)
        if request.topics or request.forgotten_topics_data:
            targets = yield from _targets(request.topics)
            yield from session.update(targets, request.forgotten_topics_data)
            if not len(session):
                self._sessions.pop(session.id, None)
                return FetchPlan()
        return FetchPlan(targets=tuple(session), session=session, is_incremental=True)

    def expecting(
        self, session_id: int, epoch: int, *, uses_topic_ids: bool, owner: Principal
    ) -> FetchSession | None:
        """The session of `owner` whose next fetch has `epoch`, if there is one."""
        session = self._find(session_id, owner)
        if (
            session is None
            or session.next_epoch != epoch
            or session.uses_topic_ids != uses_topic_ids
        ):
            return None
        return session

    def advance(self, session: FetchSession) -> None:
        """A fetch of `session` is being served."""
        assert self._sessions[session.id] is session, f"session {session.id} is another one's"
        session.advance()
        session.used_ms = self._clock.monotonic_ms()
        del self._sessions[session.id]
        self._sessions[session.id] = session

    def close(self, session: FetchSession) -> None:
        """End a session whose first answer is not sent."""
        self._sessions.pop(session.id, None)

    def _find(self, session_id: int, owner: Principal) -> FetchSession | None:
        session = self._sessions.get(session_id)
        return None if session is None or session.owner != owner else session

    def _open(self, size: int, api_version: int, owner: Principal) -> FetchSession | None:
        """A new session of `owner` for `size` partitions, or None when no slot is available."""
        now_ms = self._clock.monotonic_ms()
        if not self._make_room(size, now_ms):
            return None
        session_id = NO_SESSION_ID
        while session_id == NO_SESSION_ID or session_id in self._sessions:
            session_id = self._random.randint(1, _SESSION_ID_MAX)
        session = self._sessions[session_id] = FetchSession(
            session_id,
            owner=owner,
            uses_topic_ids=api_version >= TOPIC_IDS_SINCE,
            now_ms=now_ms,
        )
        assert len(self._sessions) <= self._slots, "more sessions than slots"
        return session

    def _make_room(self, size: int, now_ms: int) -> bool:
        """Whether there is a free slot, after evicting at most one session.

        The longest unused one goes if it has been idle long enough, else the smallest one if the
        newcomer is larger: big sessions save the most.
        """
        if len(self._sessions) < self._slots:
            return True
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        victim = oldest
        if now_ms - oldest.used_ms <= EVICTABLE_AFTER_MS:
            victim = min(self._sessions.values(), key=len)
            if len(victim) >= size:
                return False
        del self._sessions[victim.id]
        self.evictions += 1
        return True


def _only_target(topics: "Sequence[FetchTopic]") -> tuple[FetchTarget, ...]:
    """The one partition of a request that names one; () if it names none or several."""
    if len(topics) != 1:
        return ()
    (topic,) = topics
    if len(topic.partitions) != 1:
        return ()
    (asked,) = topic.partitions
    return (FetchTarget(topic.topic, topic.topic_id, asked.partition, asked),)


def _targets(topics: "Iterable[FetchTopic]") -> Steps[Collection[FetchTarget]]:
    """Every partition once; if the request names one twice, the last entry counts."""
    targets: dict[tuple[str, bytes, int], FetchTarget] = {}
    for topic in topics:
        name, topic_id = topic.topic, topic.topic_id
        for number, asked in enumerate(topic.partitions):
            if number % SLICE_RECORDS == SLICE_RECORDS - 1:
                yield None
            partition = asked.partition
            targets[name, topic_id, partition] = FetchTarget(name, topic_id, partition, asked)
        if len(targets) >= SLICE_RECORDS:
            yield None
    return targets.values()

"""A member of a group of the consumer protocol (KIP-848), as a pure state machine.

Owns the member's id and epoch, what it has stated, the target that the coordinator has set, and
the partitions that it owns. Its caller sends `heartbeat` requests one at a time, reports their
outcome by `answered`, `refused` or `unheard`, and carries out the steps of `next_step`,
which it may do while heartbeats go on.

```
            answered: an epoch           target without something that it owns
  JOINING ──────────────────▶ MEMBER ─────────────────────────────▶ step REVOKE
  epoch 0                     epoch > 0 ◀── done ── step ASSIGN ◀── done, then a heartbeat that
     ▲                          │           the whole share         names what it still owns
     └── step LOST ◀── refused ─┘
```

Invariants: a partition is owned until its revocation is done, so no heartbeat gives back what is
still read; of a target whose topics have no known names, the known part is taken. Fields are sent
when they have changed, and all of them when an answer was lost: the coordinator then repeats the
target, which may have been in that answer.

A refusal that says that the group went on without this member, and each other one that no repeat
cures, takes its partitions away (LOST): others may own them already, so nothing is committed.

Source: KIP-848, KIP-1082 (the member chooses its id); Kafka ``ConsumerMembershipManager``,
``ConsumerHeartbeatRequestManager``.
"""

import uuid
from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import Final, NamedTuple

from client.core.membership.options import ConsumerGroupOptions
from client.types import TopicPartition
from protocol.api.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from protocol.error_codes import ErrorCode
from protocol.structs import TopicPartitions

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2

_REJOIN: Final = frozenset(
    {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND}
)
_KEEPS_ITS_SHARE: Final = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED})
"""Not retriable, but not about this member: a topic of the subscription is denied."""

_Part = tuple[bytes, int]
"""Topic id and number: a topic that was deleted and made again is another one."""


class StepKind(Enum):
    """What happens to partitions."""

    LOST = auto()
    REVOKE = auto()
    ASSIGN = auto()


class Step(NamedTuple):
    """One step towards the target: the partitions taken away, or the whole share."""

    kind: StepKind
    partitions: frozenset[TopicPartition]
    parts: frozenset[_Part]


class _Stated(NamedTuple):
    """The fields of a heartbeat that are sent when they have changed."""

    names: tuple[str, ...]
    regex: str | None
    owned: frozenset[_Part]


class ConsumerMember:
    """One member. `interval_ms` is the time between its heartbeats, as the coordinator says.

    `joins_count` is how often it has become a member: what it owned before the last time is lost.
    """

    def __init__(self, options: ConsumerGroupOptions) -> None:
        """No member yet, and nothing subscribed."""
        self.member_id = str(uuid.uuid4())
        self.epoch = JOIN_EPOCH
        self.interval_ms = 0
        self.joins_count = 0
        self._options = options
        self._topics: tuple[str, ...] = ()
        self._regex: str | None = None
        self._had_regex = False
        self._stated: _Stated | None = None
        self._was_sent = False
        self._names: dict[bytes, str] = {}
        self._target: frozenset[_Part] | None = None
        self._owned: frozenset[_Part] = frozenset()
        self._lost: frozenset[_Part] = frozenset()
        self._has_share = False
        self._is_leaving = False

    @property
    def is_member(self) -> bool:
        """Whether the coordinator has accepted this member."""
        return self.epoch > JOIN_EPOCH

    @property
    def is_due(self) -> bool:
        """Whether a heartbeat has something new to say, and should not wait for its time."""
        return not self.is_member or self._stated != self._now()

    def subscribe(self, topics: Iterable[str], regex: str | None) -> None:
        """Share these topics, or those that match, from the next heartbeat on."""
        self._topics = tuple(sorted(set(topics)))
        self._regex = regex
        self._had_regex |= regex is not None

    # Heartbeats.

    def heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        """The next request: all fields while joining or after a lost answer, else the new ones."""
        now = self._now()
        stated = self._stated if self.is_member else None
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._options.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self._options.instance_id,
        )
        if stated is None:
            request.rebalance_timeout_ms = self._options.max_poll_interval_ms
            request.server_assignor = self._options.remote_assignor
        if stated is None or stated.names != now.names:
            request.subscribed_topic_names = list(now.names)
        if stated is None or stated.regex != now.regex:
            # An empty expression takes back an earlier one; null would keep it.
            request.subscribed_topic_regex = now.regex or ("" if self._had_regex else None)
        if stated is None or stated.owned != now.owned:
            request.topic_partitions = _by_topic(now.owned)
        self._stated = now
        self._was_sent = True
        return request

    def leaving(self) -> ConsumerGroupHeartbeatRequest | None:
        """The request that ends the membership, for a static member for a while; None without one.

        The coordinator may know this member though no answer has come.
        """
        if not self._was_sent:
            return None
        is_static = self._options.instance_id is not None
        return ConsumerGroupHeartbeatRequest(
            group_id=self._options.group_id,
            member_id=self.member_id,
            member_epoch=LEAVE_STATIC_EPOCH if is_static else LEAVE_EPOCH,
            instance_id=self._options.instance_id,
        )

    def answered(self, response: ConsumerGroupHeartbeatResponse) -> None:
        """Take an answer without an error."""
        if not self.is_member:
            self.joins_count += 1
        self.epoch = response.member_epoch
        self.interval_ms = response.heartbeat_interval_ms
        if response.assignment is not None:
            self._target = frozenset(
                (bytes(topic.topic_id), number)
                for topic in response.assignment.topic_partitions
                for number in topic.partitions
            )

    def refused(self, code: ErrorCode) -> bool:
        """Take a refusal; whether the next heartbeat cures it without a word to the user."""
        self._stated = None
        was_member = self.is_member
        if code.retriable or code in _KEEPS_ITS_SHARE:
            return code.retriable
        self._fence()
        return was_member and code in _REJOIN

    def unheard(self) -> None:
        """No answer has come: the coordinator may have taken the request or not."""
        self._stated = None

    def release(self) -> None:
        """Give everything back, before `left`."""
        self._is_leaving = True
        self._target = None if self._target is None else frozenset()

    def left(self) -> None:
        """No member any more; the next heartbeat joins again."""
        self._fence()
        self._lost = frozenset()
        self._was_sent = self._is_leaving = False

    def _fence(self) -> None:
        self.epoch = JOIN_EPOCH
        self._stated = self._target = None
        self._lost |= self._owned
        self._owned = frozenset()
        self._has_share = False

    def _now(self) -> _Stated:
        return _Stated(self._topics, self._regex, self._owned)

    # Topics by id.

    def unknown_ids(self) -> set[bytes]:
        """The topics of the target that have no known name."""
        return {topic_id for topic_id, _ in self._target or ()} - self._names.keys()

    def learn(self, names: Mapping[bytes, str]) -> None:
        """The names of topics, by id."""
        self._names.update(names)

    # Steps.

    def next_step(self) -> Step | None:
        """What has to be done now; None if nothing. Call `done` when it is, then this again."""
        if self._lost:
            return self._step(StepKind.LOST, self._lost)
        if self._target is None:
            return None
        if made_again := self._of_topics_made_again(self._owned - self._target):
            return self._step(StepKind.LOST, made_again)
        if revoked := self._owned - self._target:
            return self._step(StepKind.REVOKE, revoked)
        share = frozenset(part for part in self._target if part[0] in self._names)
        if self._is_leaving or (self._has_share and share == self._owned):
            return None
        self._owned = share
        self._has_share = True
        return self._step(StepKind.ASSIGN, share)

    def done(self, step: Step) -> None:
        """The step was carried out. What is left of the share is assigned next."""
        if step.kind is not StepKind.ASSIGN:
            self._owned -= step.parts
            self._lost -= step.parts
            self._has_share = False

    def _of_topics_made_again(self, parts: frozenset[_Part]) -> frozenset[_Part]:
        """Those whose topic is in the target under another id: their positions are worthless."""
        ids = {self._names[i]: i for i, _ in self._target or () if i in self._names}
        return frozenset(
            part for part in parts if ids.get(self._names[part[0]], part[0]) != part[0]
        )

    def _step(self, kind: StepKind, parts: frozenset[_Part]) -> Step:
        return Step(kind, frozenset(TopicPartition(self._names[i], n) for i, n in parts), parts)


def _by_topic(parts: Iterable[_Part]) -> list[TopicPartitions]:
    topics: dict[bytes, TopicPartitions] = {}
    for topic_id, number in sorted(parts):
        topics.setdefault(topic_id, TopicPartitions(topic_id=topic_id)).partitions.append(number)
    return list(topics.values())

"""What ShareFetch and ShareAcknowledge have in common: checks, sessions, acknowledgements.

Owns the translation of acknowledgements into `broker.groups.share.values`, and the wait until all
of a request are durable. Each partition has its own outcome.

Source: Kafka `KafkaApis.handleShareFetchRequest`, `validateAcknowledgementBatches`,
`SharePartitionManager.acknowledge`.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

from broker.groups.consumer.values import Partition
from broker.groups.share.sessions import INITIAL_EPOCH, ShareSession
from broker.groups.share.stored_state import ShareKey
from broker.groups.share.values import Ack, AckBatch
from broker.requests.access import Check
from broker.requests.context import Context, RequestContext
from protocol.acl import Operation
from protocol.error_codes import ErrorCode

_MEMBER_ID_MAX: Final = 36
RENEWAL_SINCE: Final = 2


class WireAckBatch(Protocol):
    """An acknowledgement as both requests have it."""

    first_offset: int
    last_offset: int
    acknowledge_types: list[int]


class Outcome(NamedTuple):
    """What became of the acknowledgements of a partition."""

    error: ErrorCode
    message: str | None = None


WhenAcknowledged = Callable[[Mapping[Partition, Outcome]], object]

_STORE_ERRORS: Final = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_RECORD_STATE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)


def member_problem(group_id: str | None, member_id: str | None) -> str | None:
    """Why a request names no group and member; None when it does."""
    if group_id is None:
        return "group_id is missing."
    if not member_id:
        return "member_id is empty."
    if len(member_id) > _MEMBER_ID_MAX:
        return f"member_id has {len(member_id)} characters; at most {_MEMBER_ID_MAX} are allowed."
    return None


def find_session(
    context: Context, request: RequestContext, group_id: str, member_id: str, epoch: int
) -> tuple[ShareSession | None, ErrorCode]:
    """The session of a request that continues one, begins one, or ends it; or the error."""
    sessions = context.groups.shares.sessions
    if epoch != INITIAL_EPOCH:
        return sessions.advance(group_id, member_id, epoch)
    session = sessions.open(group_id, member_id, request.connection_id)
    if session is None:
        return None, ErrorCode.SHARE_SESSION_LIMIT_REACHED
    request.session.on_closed = partial(sessions.connection_closed, request.connection_id)
    return session, ErrorCode.NONE


class Acknowledgements:
    """The acknowledgements of one request, by partition.

    `begin` applies them; `when_done` is called once, when all are durable or refused.
    """

    def __init__(
        self,
        context: Context,
        request: RequestContext,
        group_id: str,
        member_id: str,
        *,
        may_renew: bool,
    ) -> None:
        """Prepare; `may_renew` says whether the request is marked as one with renewals."""
        self._context = context
        self._check = Check(context, request)
        self._group_id = group_id
        self._member_id = member_id
        version = request.api_version
        self._type_max = Ack.RENEW if version >= RENEWAL_SINCE else Ack.REJECT
        self._may_renew = may_renew
        self._asked: dict[Partition, list[AckBatch]] = {}
        self._outcomes: dict[Partition, Outcome] = {}
        self._missing = 1
        self._when_done: WhenAcknowledged | None = None

    def add(self, partition: Partition, batches: Sequence[WireAckBatch]) -> None:
        """Add the acknowledgements of a partition, checked for form."""
        if not batches:
            return
        problem = self._problem(batches)
        if problem is not None:
            self._outcomes[partition] = Outcome(ErrorCode.INVALID_REQUEST, problem)
            return
        known = self._asked.setdefault(partition, [])
        known += [
            AckBatch(batch.first_offset, batch.last_offset, batch.acknowledge_types)
            for batch in batches
        ]

    def __bool__(self) -> bool:
        """Whether there is any, right or wrong."""
        return bool(self._asked or self._outcomes)

    def _problem(self, batches: Sequence[WireAckBatch]) -> str | None:
        before = -1
        for batch in batches:
            first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
            if first > last or first <= before:
                return f"Offsets {first} to {last} after {before} are not in order."
            if not types or len(types) not in (1, last - first + 1):
                return f"{len(types)} types for offsets {first} to {last}; give one, or one each."
            for number in (min(types), max(types)):
                if not Ack.GAP <= number <= self._type_max:
                    return f"Acknowledge type {number} means nothing in this version."
            if Ack.RENEW in types and not self._may_renew:
                return "A renewal needs is_renew_ack."
            before = last
        return None

    def begin(self, when_done: WhenAcknowledged) -> None:
        """Apply all, each partition on its own."""
        self._when_done = when_done
        for partition, batches in self._asked.items():
            refusal = self._refusal(partition)
            if refusal is not None:
                self._outcomes[partition] = refusal
                continue
            topic_id, index = partition
            key = ShareKey(self._group_id, topic_id, index)
            loaded = self._context.groups.shares.partitions.find(key)
            if loaded is None:
                self._outcomes[partition] = Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                continue
            self._missing += 1
            self._context.groups.shares.partitions.acknowledge(
                loaded, self._member_id, batches, partial(self._settle, partition)
            )
        self._end()

    def _refusal(self, partition: Partition) -> Outcome | None:
        topic_id, index = partition
        topic = self._context.topics.find_by_id(topic_id)
        if topic is None:
            return Outcome(ErrorCode.UNKNOWN_TOPIC_ID)
        if not self._check.topic(Operation.READ, topic.name):
            return Outcome(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if index >= len(topic.partitions) or index < 0:
            return Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return None

    def _settle(self, partition: Partition, error: ErrorCode, message: str | None) -> None:
        if error not in _STORE_ERRORS:
            error = ErrorCode.UNKNOWN_SERVER_ERROR
        self._outcomes[partition] = Outcome(error, message)
        self._end()

    def _end(self) -> None:
        self._missing -= 1
        if self._missing == 0 and self._when_done is not None:
            self._when_done(self._outcomes)

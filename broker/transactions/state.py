"""A transactional id's life as pure decisions: from state and request to the next state.

Owns every rule of the transaction protocol that needs no log and no clock: which state may follow
which, how epochs grow, who is fenced. A decision is a `Plan`: the next snapshot to make durable (or
none) and the error to answer. These functions change no state; the coordinator stores the snapshot
and only then applies it.

```
                 add partition                     end                    markers written
  EMPTY ─────────────────────▶ ONGOING ──▶ PREPARE_COMMIT / PREPARE_ABORT ──▶ COMPLETE_*
    ▲                            ▲  │ timeout, or a new producer:                 │
    └── init producer ───────────┼──┘ PREPARE_ABORT under the next epoch          │
                                 └──────────── add partition ─────────────────────┘
```

Invariants: (producer id, epoch) only grows, so an older producer can always be recognised; a
prepared end is never reversed.

Times are wall-clock ms, as stored. Source: KIP-98, KIP-360, KIP-588, KIP-890; Kafka's
`TransactionMetadata` and `TransactionCoordinator`.
"""

import enum
from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeAlias

from protocol.error_codes import ErrorCode
from protocol.records.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP
from values.dataclasses import dataclass

EPOCH_MAX: Final = 2**15 - 1
_EPOCH_EXHAUSTED: Final = EPOCH_MAX - 1
"""From this epoch on the producer gets a new id; the last epoch is kept for fencing."""

BUMPING_VERSION: Final = 2
"""The transaction version of clients that expect a new epoch for each transaction."""

TopicPartition: TypeAlias = tuple[str, int]
ProducerIdAndEpoch: TypeAlias = tuple[int, int]


class TxnState(enum.IntEnum):
    """The state of a transactional id, with its stored number."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """The name that clients see."""
        return "".join(word.capitalize() for word in self.name.split("_"))


PREPARED: Final = frozenset({TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT})
SETTLED: Final = frozenset({TxnState.EMPTY, TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT})


_SUCCESSORS: Final = {
    TxnState.EMPTY: {TxnState.EMPTY, TxnState.ONGOING, TxnState.COMPLETE_ABORT},
    TxnState.ONGOING: {TxnState.ONGOING, *PREPARED},
    TxnState.PREPARE_COMMIT: {TxnState.COMPLETE_COMMIT},
    TxnState.PREPARE_ABORT: {TxnState.COMPLETE_ABORT},
    TxnState.COMPLETE_COMMIT: {TxnState.EMPTY, TxnState.ONGOING, TxnState.COMPLETE_ABORT},
    TxnState.COMPLETE_ABORT: {TxnState.EMPTY, TxnState.ONGOING, TxnState.COMPLETE_ABORT},
}
"""The states after each state that this broker stores; SETTLED ones are aborted in one step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnSnapshot:
    """All facts about a transactional id.

    `last_producer_id` and `last_producer_epoch` are those before the latest bump that the producer
    may not have seen: an `InitProducerId` that named them, an end of transaction version 2, or an
    abort by the coordinator. They identify its retry. `started_ms` is NO_TIMESTAMP while no
    transaction is open or ending. `next_producer_id` is set while a transaction ends that has
    exhausted the epochs of its producer id. `client_version` is the transaction version of the
    client that ended the last one.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    last_producer_id: int = NO_PRODUCER_ID
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    timeout_ms: int
    state: TxnState = TxnState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = NO_TIMESTAMP
    updated_ms: int = NO_TIMESTAMP
    next_producer_id: int = NO_PRODUCER_ID
    client_version: int = 0

    @property
    def next_producer(self) -> ProducerIdAndEpoch:
        """The identity of the producer after the end of this transaction."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, 0
        return self.producer_id, self.producer_epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A decision: store `next` (if any), then answer `error`."""

    error: ErrorCode = ErrorCode.NONE
    next: TxnSnapshot | None = None


def check_successor(now: TxnSnapshot, after: TxnSnapshot) -> None:
    """Assert that `after` may follow `now`: no end is reversed, and no epoch falls."""
    name = now.transactional_id
    assert after.transactional_id == name, f"{name}: replaced by {after.transactional_id}"
    if now.state in _SUCCESSORS:
        assert after.state in _SUCCESSORS[now.state], f"{name}: {now.state} to {after.state}"
    if after.producer_id == now.producer_id:
        assert after.producer_epoch >= now.producer_epoch, f"{name}: the epoch falls"
    else:
        assert after.producer_epoch == 0, f"{name}: a new id begins at {after.producer_epoch}"
    assert after.producer_epoch <= EPOCH_MAX, f"{name}: epoch {after.producer_epoch}"
    if after.state in SETTLED:
        assert not after.partitions, f"{name}: {after.state} with partitions"
        is_taken = now.state not in PREPARED or after.next_producer_id == NO_PRODUCER_ID
        assert is_taken, f"{name}: the next id was not taken"
    elif now.state is TxnState.ONGOING:
        assert now.partitions <= after.partitions, f"{name}: partitions leave the transaction"


def plan_init(
    now: TxnSnapshot,
    *,
    timeout_ms: int,
    expected: ProducerIdAndEpoch | None,
    allocate: Callable[[], int],
    now_ms: int,
) -> Plan:
    """A producer starts, or starts again with the id and epoch that it `expected` to have.

    An open transaction is first aborted under the next epoch, and the producer has to retry. The
    retry gives it one more epoch, which fences the producer before it. `allocate` returns a new
    producer id and is called only if the epochs of this one are exhausted.
    """
    if now.state in PREPARED:
        return Plan(error=ErrorCode.CONCURRENT_TRANSACTIONS)
    if expected is not None and not _may_be(now, expected):
        return Plan(error=ErrorCode.PRODUCER_FENCED)
    if now.state is TxnState.ONGOING:
        aborted = plan_fence(now, now_ms, allocate)
        return Plan(error=ErrorCode.CONCURRENT_TRANSACTIONS, next=aborted)
    fresh = replace(
        now,
        state=TxnState.EMPTY,
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        started_ms=NO_TIMESTAMP,
        updated_ms=now_ms,
        client_version=0,
    )
    is_expected = expected is None or expected[1] == now.producer_epoch
    if now.producer_epoch >= _EPOCH_EXHAUSTED and is_expected:
        return Plan(
            next=replace(
                fresh,
                producer_id=allocate(),
                producer_epoch=0,
                last_producer_id=now.producer_id,
                last_producer_epoch=NO_PRODUCER_EPOCH if expected is None else now.producer_epoch,
            )
        )
    return _plan_next_epoch(now, fresh, expected)


def _plan_next_epoch(
    now: TxnSnapshot, fresh: TxnSnapshot, expected: ProducerIdAndEpoch | None
) -> Plan:
    """The next epoch, or for a retry of the last bump, the same one again."""
    if expected is None:
        last_epoch = NO_PRODUCER_EPOCH
    elif now.producer_epoch in (NO_PRODUCER_EPOCH, expected[1]):
        last_epoch = now.producer_epoch
    elif expected[1] == now.last_producer_epoch:
        return Plan(next=fresh)
    else:
        return Plan(error=ErrorCode.PRODUCER_FENCED)
    bumped = replace(fresh, producer_epoch=now.producer_epoch + 1, last_producer_epoch=last_epoch)
    return Plan(next=bumped)


def _may_be(now: TxnSnapshot, expected: ProducerIdAndEpoch) -> bool:
    """Whether this identity may be the current producer, or was it under the previous id."""
    producer_id, epoch = expected
    if now.producer_epoch == NO_PRODUCER_EPOCH or producer_id == now.producer_id:
        return True
    return producer_id == now.last_producer_id and epoch >= _EPOCH_EXHAUSTED


def producer_error(now: TxnSnapshot, producer: ProducerIdAndEpoch) -> ErrorCode:
    """The error if this is not the current producer of the transactional id, else NONE."""
    producer_id, epoch = producer
    if producer_id != now.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if epoch != now.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE


def plan_add_partitions(
    now: TxnSnapshot,
    producer: ProducerIdAndEpoch,
    partitions: frozenset[TopicPartition],
    now_ms: int,
) -> Plan:
    """Partitions join the transaction, which begins if none is open.

    While a transaction ends, the producer may already use its next identity.
    """
    if now.state in PREPARED:
        return Plan(error=ErrorCode.CONCURRENT_TRANSACTIONS)
    error = producer_error(now, producer)
    if error is not ErrorCode.NONE:
        return Plan(error=error)
    if now.state is TxnState.ONGOING:
        if partitions <= now.partitions:
            return Plan()
        joined = now.partitions | partitions
        return Plan(next=replace(now, partitions=joined, updated_ms=now_ms))
    return Plan(
        next=replace(
            now,
            state=TxnState.ONGOING,
            partitions=partitions,
            started_ms=now_ms,
            updated_ms=now_ms,
        )
    )


def refusal_of_a_write(
    error: ErrorCode, *, knows_abortable: bool, knows_concurrent: bool
) -> ErrorCode:
    """The error code for a client whose records or offsets are refused with `error`.

    A fenced producer gets INVALID_PRODUCER_EPOCH. A client that does not expect
    CONCURRENT_TRANSACTIONS here gets a code that it retries without a metadata request.
    """
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.CONCURRENT_TRANSACTIONS and not knows_concurrent:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if error is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return error


def plan_end(
    now: TxnSnapshot,
    producer: ProducerIdAndEpoch,
    *,
    is_commit: bool,
    now_ms: int,
    allocate: Callable[[], int] | None = None,
) -> Plan:
    """The producer commits or aborts; with `allocate` one of transaction version 2 (KIP-890).

    Such a producer has a new epoch for each transaction, so the end marker has the next epoch. No
    late batch of the old epoch can get into the next transaction. It may abort a transaction that
    never began, as it cannot know that. Its retry has the previous epoch, and so has its abort of a
    transaction that the coordinator has aborted; both get the next identity as the answer.

    | state           | commit                  | abort                   |
    |-----------------|-------------------------|-------------------------|
    | EMPTY           | INVALID_TXN_STATE       | INVALID_TXN_STATE       |
    | ONGOING         | PREPARE_COMMIT          | PREPARE_ABORT           |
    | PREPARE_*       | CONCURRENT_TRANSACTIONS | CONCURRENT_TRANSACTIONS |
    | COMPLETE_COMMIT | done already            | INVALID_TXN_STATE       |
    | COMPLETE_ABORT  | INVALID_TXN_STATE       | done already            |
    """
    if allocate is not None and now.state in PREPARED:
        return Plan(error=ErrorCode.CONCURRENT_TRANSACTIONS)
    prepared = TxnState.PREPARE_COMMIT if is_commit else TxnState.PREPARE_ABORT
    complete = TxnState.COMPLETE_COMMIT if is_commit else TxnState.COMPLETE_ABORT
    is_retry = allocate is not None and _has_just_ended(now, producer)
    error = producer_error(now, producer)
    if error is not ErrorCode.NONE and not is_retry:
        return Plan(error=error)
    if now.state is TxnState.ONGOING:
        ended = replace(now, state=prepared, updated_ms=now_ms, client_version=0)
        return Plan(next=ended if allocate is None else _bumped(ended, allocate))
    if allocate is not None and not is_retry and now.state in SETTLED and not is_commit:
        aborted = _bumped(replace(now, state=TxnState.PREPARE_ABORT), allocate)
        return Plan(next=plan_complete(aborted, now_ms))
    if now.state is complete and (allocate is None or is_retry):
        return Plan()
    if now.state in PREPARED:
        return Plan(error=ErrorCode.CONCURRENT_TRANSACTIONS)
    return Plan(error=ErrorCode.INVALID_TXN_STATE)


def _has_just_ended(now: TxnSnapshot, producer: ProducerIdAndEpoch) -> bool:
    """Whether this producer's transaction is the one that is ending or ended last."""
    if now.state in (TxnState.EMPTY, TxnState.ONGOING):
        return False
    return producer == (now.last_producer_id, now.last_producer_epoch)


def _bumped(ended: TxnSnapshot, allocate: Callable[[], int]) -> TxnSnapshot:
    """The end of a transaction under the next epoch, or under a new producer id if none is left."""
    is_exhausted = ended.producer_epoch >= _EPOCH_EXHAUSTED
    return replace(
        ended,
        producer_epoch=ended.producer_epoch + 1,
        last_producer_id=ended.producer_id,
        last_producer_epoch=ended.producer_epoch,
        next_producer_id=allocate() if is_exhausted else NO_PRODUCER_ID,
        client_version=BUMPING_VERSION,
    )


def plan_fence(now: TxnSnapshot, now_ms: int, allocate: Callable[[], int]) -> TxnSnapshot:
    """An open transaction aborted by the coordinator, under the next epoch.

    Its producer may continue: EndTxn of transaction version 2 and `plan_init` recognise the
    previous epoch, and answer with this one. If the abort makes room for a new producer, that one
    gets one more epoch, which fences the old producer.
    """
    assert now.state is TxnState.ONGOING, now.state
    return _bumped(replace(now, state=TxnState.PREPARE_ABORT, updated_ms=now_ms), allocate)


def plan_complete(now: TxnSnapshot, now_ms: int) -> TxnSnapshot:
    """All markers are written: the transaction is complete."""
    assert now.state in PREPARED, now.state
    is_commit = now.state is TxnState.PREPARE_COMMIT
    producer_id, epoch = now.next_producer
    return replace(
        now,
        producer_id=producer_id,
        producer_epoch=epoch,
        next_producer_id=NO_PRODUCER_ID,
        state=TxnState.COMPLETE_COMMIT if is_commit else TxnState.COMPLETE_ABORT,
        partitions=frozenset(),
        updated_ms=now_ms,
    )


def is_timed_out(now: TxnSnapshot, now_ms: int) -> bool:
    """Whether an open transaction has lasted longer than its producer allowed."""
    return now.state is TxnState.ONGOING and now_ms - now.started_ms > now.timeout_ms


def is_expired(now: TxnSnapshot, now_ms: int, expiration_ms: int) -> bool:
    """Whether an unused transactional id can expire."""
    return now.state in SETTLED and now_ms - now.updated_ms >= expiration_ms

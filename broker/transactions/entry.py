"""One transactional id at work: its durable state, and the requests that wait for it.

Owns the mutable state next to the frozen snapshot, and finds the producer of a transactional batch.
Read next: `broker.transactions.coordinator`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from broker.transactions.state import ProducerIdAndEpoch, TopicPartition, TxnSnapshot
from protocol.error_codes import ErrorCode
from protocol.errors import CorruptRecords
from protocol.records.batch import RecordBatch
from protocol.records.layout import (
    ATTRIBUTES_AT,
    BATCH_OVERHEAD,
    MAGIC_AT,
    MAGIC_V2,
    TRANSACTIONAL_BIT,
)

if TYPE_CHECKING:
    from protocol.records.checksums import Buffer

Answer: TypeAlias = Callable[[ErrorCode], object]


class Admission(NamedTuple):
    """A producer's request that names its partitions only by writing to them."""

    producer: ProducerIdAndEpoch
    partitions: frozenset[TopicPartition]
    answer: Answer


@dataclass(slots=True, kw_only=True, eq=False)
class Entry:
    """One transactional id at work.

    Attributes:
        now: the durable state.
        is_busy: a decision is being stored.
        missing: partitions whose marker is not durable yet.
        refused: those of `missing` that did not accept it; `tick` retries them.
        waiting: the answer to the request that ended the transaction.
        admissions: producers' requests that wait for their partitions to join, in order.
    """

    now: TxnSnapshot
    is_busy: bool = False
    missing: set[TopicPartition] = field(default_factory=set)
    refused: set[TopicPartition] = field(default_factory=set)
    waiting: Answer | None = None
    admissions: deque[Admission] = field(default_factory=deque)


def transactional_producer(data: Buffer | None) -> ProducerIdAndEpoch | None:
    """The producer of a transactional first batch; None if that batch is not transactional.

    The log refuses records that are no batch at all.
    """
    if data is None or len(data) < BATCH_OVERHEAD or data[MAGIC_AT] != MAGIC_V2:
        return None
    if not data[ATTRIBUTES_AT + 1] & TRANSACTIONAL_BIT:
        return None
    try:
        batch = RecordBatch(data)
    except CorruptRecords:
        return None
    return batch.producer_id, batch.producer_epoch

"""The producers that one partition remembers: duplicates, sequences, open transactions.

Owns the map *producer id -> last five batches*, and the list of open transactions, which bounds the
offsets that a ``read_committed`` consumer may see. By the map, a retried batch is answered with its
original offsets, a gap in sequence numbers is refused, and a producer whose epoch was taken over is
fenced. Refuses to know files and clocks: :mod:`storage.producers.snapshots` writes the map to disk,
and the time is always a parameter.

The map is derived: replaying the log from the start with :meth:`ProducerState.update` rebuilds it.
Therefore *checking* and *updating* are two methods. A new batch is checked first, then written,
then passed to ``update``. A batch read back in recovery is only passed to ``update``, which never
refuses a batch, because the log is the truth.

How ``check`` judges a batch of a client, by the map's entry for its producer id:

| known producer epoch | first sequence of the batch | verdict                                  |
|----------------------|-----------------------------|------------------------------------------|
| none                 | any                         | accepted (retention may have expired it) |
| higher than batch's  | any                         | ``InvalidProducerEpoch``                 |
| lower than batch's   | 0                           | accepted, the epoch moves up             |
| lower than batch's   | not 0                       | ``OutOfOrderSequence``                   |
| equal                | range of a cached batch     | duplicate: the cached batch is returned  |
| equal                | follows the last (wrapping) | accepted                                 |
| equal                | anything else               | ``OutOfOrderSequence``                   |

Sequences are 31-bit: 0 follows 2**31 - 1. Timestamps here are batch *max timestamps*, so under
CreateTime an old back-fill can expire its own producer id, as in Kafka.

Source: KIP-98, KIP-360; Kafka ``ProducerStateManager``, ``ProducerAppendInfo``,
``ProducerStateEntry``.
"""

from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import Final, NamedTuple

from protocol.records.entry import Entry
from protocol.records.layout import (
    CONTROL_KEY,
    END_TXN_VALUE,
    INT32_MAX,
    NO_OFFSET,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    ControlType,
)
from storage.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from values.dataclasses import dataclass

NO_COORDINATOR_EPOCH: Final = -1
SEQUENCE_MAX: Final = INT32_MAX

CACHED_BATCHES_MAX: Final = 5
"""Batches remembered per producer: as many as an idempotent client keeps in flight."""

PRODUCERS_MAX: Final = 100_000
"""Producer ids remembered per partition; above it the least recently used idle one expires."""

PRODUCER_ID_EXPIRATION_MS: Final = 86_400_000


class CachedBatch(NamedTuple):
    """One accepted batch of a producer. A tuple, because one is made per produced batch."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    max_timestamp: int

    @property
    def first_offset(self) -> int:
        """Offset of the batch's first record."""
        return self.last_offset - self.offset_delta

    @property
    def first_sequence(self) -> int:
        """Sequence of the batch's first record, wrapped below zero."""
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MAX


class EndTxnMarker(NamedTuple):
    """The content of a transaction marker: the outcome, and the epoch of its coordinator."""

    is_commit: bool
    coordinator_epoch: int

    @classmethod
    def decode(cls, key: bytes | memoryview, value: bytes | memoryview) -> "EndTxnMarker | None":
        """The marker in a control record, or None when the record is of another control type.

        Key: int16 version, int16 type (0 abort, 1 commit). Value: int16 version, int32 epoch.
        A short key or value is None too: the batch's CRC was correct, so it is another record type.
        """
        if len(key) < CONTROL_KEY.size or len(value) < END_TXN_VALUE.size:
            return None
        _, control_type = CONTROL_KEY.unpack_from(key)
        if control_type not in (ControlType.ABORT, ControlType.COMMIT):
            return None
        _, coordinator_epoch = END_TXN_VALUE.unpack_from(value)
        return cls(control_type == ControlType.COMMIT, coordinator_epoch)


class CompletedTxn(NamedTuple):
    """A transaction that its marker has just ended; offsets inclusive, the last is the marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


@dataclass(slots=True, kw_only=True)
class ProducerEntry:
    """The state of one producer id in this partition. Mutable, owned by its map."""

    producer_id: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    last_timestamp: int = NO_TIMESTAMP
    txn_first_offset: int = NO_OFFSET
    batches: list[CachedBatch] = field(default_factory=list)

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record written in this epoch, or NO_SEQUENCE."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def next_sequence(self) -> int:
        """The sequence that the next batch of this epoch begins with."""
        # NO_SEQUENCE + 1 is 0: the first batch of an epoch begins at 0 by the same rule.
        last = self.batches[-1].last_sequence if self.batches else NO_SEQUENCE
        return (last + 1) & SEQUENCE_MAX

    @property
    def last_offset(self) -> int:
        """Offset of the last data record written in this epoch, or NO_OFFSET."""
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    def find_duplicate(self, batch: Entry) -> CachedBatch | None:
        """The cached batch with exactly this epoch and sequence range, or None."""
        if batch.producer_epoch != self.producer_epoch:
            return None
        first, last = batch.base_sequence, batch.last_sequence
        for cached in self.batches:
            if cached.last_sequence == last and cached.first_sequence == first:
                return cached
        return None

    def move_to_epoch(self, producer_epoch: int) -> None:
        """Start over with another epoch: sequences of the old one have no meaning in it."""
        if producer_epoch != self.producer_epoch:
            self.batches.clear()
            self.producer_epoch = producer_epoch

    def remember(self, batch: CachedBatch) -> None:
        """Add an accepted batch; drops the oldest of more than five."""
        if len(self.batches) == CACHED_BATCHES_MAX:
            del self.batches[0]
        self.batches.append(batch)


class ProducerState:
    """The producers and open transactions of one partition.

    Only the partition's single writer uses it. Nothing here survives a crash by itself; the log
    does. ``map_end_offset`` is the offset up to which (exclusive) the log is included here.
    """

    __slots__ = (
        "completed",
        "expiration_ms",
        "map_end_offset",
        "open_transactions",
        "producers",
        "producers_max",
    )

    def __init__(
        self,
        *,
        expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
        producers_max: int = PRODUCERS_MAX,
    ) -> None:
        """An empty map at offset 0; ``expiration_ms`` is ``producer.id.expiration.ms``."""
        self.expiration_ms = expiration_ms
        self.producers_max = producers_max
        self.map_end_offset = 0
        # Least recently updated first: update() inserts an entry again at the end.
        self.producers: dict[int, ProducerEntry] = {}
        # first offset -> producer id; ascending, because transactions open in log order.
        self.open_transactions: dict[int, int] = {}
        # first offset -> last offset of ended transactions that are not yet below the high
        # watermark: their marker may still be lost, so they stay unstable.
        self.completed: dict[int, int] = {}

    def __len__(self) -> int:
        """Number of known producer ids."""
        return len(self.producers)

    def __iter__(self) -> Iterator[ProducerEntry]:
        """The entries, least recently updated first."""
        return iter(self.producers.values())

    def find(self, producer_id: int) -> ProducerEntry | None:
        """The live entry of a producer id, or None; the caller must not change it."""
        return self.producers.get(producer_id)

    def check(self, batch: Entry, *, from_client: bool = True) -> CachedBatch | None:
        """None when the batch may be appended, the original when it is a duplicate.

        ``batch`` is a data batch with a producer id. A coordinator's own appends
        (``from_client=False``) are fenced by epoch but carry no sequences to judge.

        Raises:
            InvalidProducerEpoch: a newer instance of the producer has written already, or the epoch
                is none.
            OutOfOrderSequence: the sequence does not follow the last one of its epoch.
            InvalidTxnState: a batch outside a transaction while the producer has one open.
        """
        assert batch.producer_id > NO_PRODUCER_ID
        entry = self.producers.get(batch.producer_id)
        if entry is None:
            if batch.producer_epoch < NO_PRODUCER_EPOCH:
                raise InvalidProducerEpoch(f"{batch.producer_epoch} is no producer epoch")
            return None
        if not from_client:
            _check_epoch(entry, batch.producer_epoch)
        elif (
            batch.producer_epoch != entry.producer_epoch
            or batch.base_sequence != entry.next_sequence
        ):
            # Only what does not follow the last batch can be a duplicate.
            duplicate = entry.find_duplicate(batch)
            if duplicate is not None:
                return duplicate
            _check_epoch(entry, batch.producer_epoch)
            _check_sequence(entry, batch)
        if entry.txn_first_offset != NO_OFFSET and not batch.is_transactional:
            raise InvalidTxnState(
                f"producer {batch.producer_id} wrote outside of a transaction while the one it "
                f"began at offset {entry.txn_first_offset} is open; end that one first"
            )
        return None

    def check_marker(self, producer_id: int, producer_epoch: int, marker: EndTxnMarker) -> None:
        """Judge a transaction marker before it is appended.

        Raises:
            InvalidProducerEpoch: the marker's epoch is older than the producer's.
            TransactionCoordinatorFenced: the marker is from an older coordinator than the last one.
        """
        entry = self.producers.get(producer_id)
        if entry is None:
            return
        _check_epoch(entry, producer_epoch)
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"marker of producer {producer_id} comes from coordinator epoch "
                f"{marker.coordinator_epoch}, but epoch {entry.coordinator_epoch} wrote before; "
                "it must not end this transaction"
            )

    def update(self, batch: Entry, *, marker: EndTxnMarker | None = None) -> CompletedTxn | None:
        """Add a batch that is in the log; returns the transaction that it ended, if any.

        Never refuses a batch. A control batch comes with its decoded ``marker``, or with None when
        it is no transaction marker. The caller has to pass a returned transaction to
        :meth:`last_stable_offset_after` (for the transaction index) and then to
        :meth:`complete_txn`.
        """
        producer_id = batch.producer_id
        assert producer_id > NO_PRODUCER_ID
        assert batch.base_offset <= batch.last_offset
        entry = self.producers.pop(producer_id, None)
        if entry is None:
            entry = ProducerEntry(producer_id=producer_id)
            if len(self.producers) >= self.producers_max:
                self._forget_one()
        self.producers[producer_id] = entry
        if batch.is_control:
            if marker is not None:
                return _end_txn(entry, batch, marker)
            if batch.records_count == 0:
                # Compaction has left the header of a marker, because the epoch was known by it.
                entry.move_to_epoch(batch.producer_epoch)
                entry.last_timestamp = batch.max_timestamp
            return None
        entry.move_to_epoch(batch.producer_epoch)
        last_offset = batch.last_offset
        entry.remember(
            CachedBatch(
                batch.last_sequence,
                last_offset,
                last_offset - batch.base_offset,
                batch.max_timestamp,
            )
        )
        entry.last_timestamp = batch.max_timestamp
        if batch.is_transactional and entry.txn_first_offset == NO_OFFSET:
            newest = next(reversed(self.open_transactions), NO_OFFSET)
            assert newest < batch.base_offset, "transactions open in the order of the log"
            entry.txn_first_offset = batch.base_offset
            self.open_transactions[batch.base_offset] = producer_id
        return None

    def first_unstable_offset(self) -> int | None:
        """First offset of the oldest transaction not known to have ended, or None.

        A transaction whose marker lies at or above the high watermark counts as not ended.
        """
        oldest = self.first_undecided_offset()
        if not self.completed:
            return oldest
        oldest_completed = min(self.completed)
        return oldest_completed if oldest is None else min(oldest, oldest_completed)

    def first_undecided_offset(self) -> int | None:
        """First offset of the oldest open transaction, or None."""
        return next(iter(self.open_transactions), None)

    def last_stable_offset_after(self, txn: CompletedTxn) -> int:
        """The last stable offset once ``txn`` is complete, for the transaction index."""
        for first_offset, producer_id in self.open_transactions.items():
            if producer_id != txn.producer_id:
                return first_offset
        return txn.last_offset + 1

    def complete_txn(self, txn: CompletedTxn) -> None:
        """Move a transaction from open to ended-but-not-yet-below-the-high-watermark."""
        producer_id = self.open_transactions.pop(txn.first_offset, None)
        assert producer_id == txn.producer_id, "only an open transaction can be completed"
        assert txn.first_offset <= txn.last_offset
        assert txn.first_offset not in self.completed, "a transaction is completed once"
        self.completed[txn.first_offset] = txn.last_offset

    def advance_high_watermark(self, high_watermark: int) -> None:
        """Drop ended transactions whose marker is now below ``high_watermark``."""
        if not self.completed:
            return
        self.completed = {
            first: last for first, last in self.completed.items() if last >= high_watermark
        }

    def expire(self, now_ms: int) -> int:
        """Expire producer ids idle for ``expiration_ms`` or longer; returns their number.

        The last batch's max timestamp decides whether an id is idle. An id with an open transaction
        stays.
        """
        before = len(self.producers)
        kept = [entry for entry in self if not self._is_expired(entry, now_ms)]
        if len(kept) < before:
            # A new dictionary: the old one would keep the memory of all entries that it ever held.
            self.producers = {entry.producer_id: entry for entry in kept}
        return before - len(kept)

    def clear(self, map_end_offset: int) -> None:
        """Drop all state; the log below ``map_end_offset`` counts as included."""
        assert map_end_offset >= 0
        self.producers.clear()
        self.open_transactions.clear()
        self.completed.clear()
        self.map_end_offset = map_end_offset

    def restore(
        self, entries: Iterable[ProducerEntry], *, map_end_offset: int, now_ms: int
    ) -> None:
        """Replace all state by the entries of a snapshot, without the expired ones."""
        self.clear(map_end_offset)
        kept = [entry for entry in entries if not self._is_expired(entry, now_ms)]
        self.producers = {entry.producer_id: entry for entry in kept}
        self.open_transactions = dict(
            sorted(
                (entry.txn_first_offset, entry.producer_id)
                for entry in kept
                if entry.txn_first_offset != NO_OFFSET
            )
        )

    def advance_log_start(self, log_start_offset: int) -> None:
        """Follow the log's start: drop transactions ended below it, raise the map's end to it."""
        assert log_start_offset >= 0
        self.advance_high_watermark(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)

    def _is_expired(self, entry: ProducerEntry, now_ms: int) -> bool:
        if entry.txn_first_offset != NO_OFFSET:
            return False
        return now_ms - entry.last_timestamp >= self.expiration_ms

    def _forget_one(self) -> None:
        # Bounds memory against a client that uses a new producer id per batch. The dropped producer
        # can still write: an unknown producer may start at any sequence.
        for producer_id, entry in self.producers.items():
            if entry.txn_first_offset == NO_OFFSET:
                del self.producers[producer_id]
                return


def _check_epoch(entry: ProducerEntry, producer_epoch: int) -> None:
    if producer_epoch < entry.producer_epoch:
        raise InvalidProducerEpoch(
            f"producer {entry.producer_id} wrote with epoch {producer_epoch}, but epoch "
            f"{entry.producer_epoch} has taken over; the older instance must stop"
        )


def _check_sequence(entry: ProducerEntry, batch: Entry) -> None:
    if entry.producer_epoch == NO_PRODUCER_EPOCH:
        return
    first = batch.base_sequence
    expected = entry.next_sequence if batch.producer_epoch == entry.producer_epoch else 0
    if first != expected:
        raise OutOfOrderSequence(
            f"producer {entry.producer_id} epoch {batch.producer_epoch} sent sequence {first}, "
            f"expected {expected}; a batch before it is missing or was older than the last "
            f"{CACHED_BATCHES_MAX}"
        )


def _end_txn(entry: ProducerEntry, batch: Entry, marker: EndTxnMarker) -> CompletedTxn | None:
    completed = None
    if entry.txn_first_offset != NO_OFFSET:
        completed = CompletedTxn(
            entry.producer_id, entry.txn_first_offset, batch.last_offset, not marker.is_commit
        )
    # An empty transaction changes the epochs only: a marker may fence older writers.
    entry.move_to_epoch(batch.producer_epoch)
    entry.coordinator_epoch = marker.coordinator_epoch
    entry.last_timestamp = batch.max_timestamp
    entry.txn_first_offset = NO_OFFSET
    return completed

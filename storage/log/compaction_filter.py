"""The records of a log that survive compaction, entry by entry: bytes in, bytes or nothing out.

Owns the rules, for one *round* over a log from its first segment on:

| entry                           | what stays of it                                               |
|---------------------------------|----------------------------------------------------------------|
| record whose key comes later    | nothing                                                        |
| record without a key            | nothing (old topics only; a compacted one takes no such record)|
| last record of a key            | itself                                                         |
| the same, without value         | itself until its delete horizon: a *tombstone* for readers     |
| record at or above the map's end| itself: later records of its key are not known                 |
| record of an aborted transaction| nothing                                                        |
| marker                          | itself, until its transaction is empty and its horizon is past |

The *delete horizon* of magic 2 is the time of the round that first kept a tombstone (or the marker
of an emptied transaction) plus `delete.retention.ms`. It is written into the batch as attribute bit
6 and the base timestamp, from which the records' times are then counted. Older formats have no room
for it, so their tombstones go by the age of their segment.

An entry is kept byte for byte unless a record in it goes or it gets a horizon. A batch that loses
all its records stays as a bare header where its offsets or its producer are still needed. These are
the last batch of each producer (sequence numbers), and the last batch of each rewritten segment. So
the segment ends where the segments that it replaces ended, and the log has no gaps between
segments.

Keys are compared in full, not by a hash, so that a collision never drops a record.

Source: Kafka `Cleaner`, `CleanedTransactionMetadata`, `MemoryRecords.filterTo`; KIP-98, KIP-534.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from protocol.records.batch import RecordBatch
from protocol.records.builder import assemble_batch, build_message_set, rebuild_batch
from protocol.records.checksums import Buffer
from protocol.records.compression import compress
from protocol.records.encode_loops import encode_record
from protocol.records.layout import (
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    INT64_MAX,
    INT64_MIN,
    MAGIC_V2,
    NO_OFFSET,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    TimestampType,
)
from protocol.records.record import Record, decode_batch, record_bytes
from protocol.records.record_loops import outline_records
from protocol.records.scan import Entry, iter_records
from storage.disk.steps import SLICE_RECORDS, Steps, off_loop
from storage.log.producers import decode_marker
from storage.segment.txn_index import AbortedTxn
from values.dataclasses import dataclass

KEY_OVERHEAD_BYTES: Final = 128
"""Memory that one key costs in the map besides its own bytes: two objects and a slot."""

OFF_LOOP_BYTES: Final = 64 * 1024
"""Compressed entries from this size on are (de)compressed in another thread."""

_FLAGS: Final = TIMESTAMP_TYPE_BIT | TRANSACTIONAL_BIT | CONTROL_BIT


class Outline(NamedTuple):
    """The record fields that the rules use; `start` and `end` are bytes in its batch's records."""

    start: int
    end: int
    offset: int
    timestamp: int
    key: bytes | None
    has_value: bool


class KeyMap:
    """The newest offset of every key in a stretch of log, as far as memory allows.

    Attributes:
        end: exclusive end of the stretch that is known completely.
        newest: the newest offset of each key in it.
    """

    __slots__ = ("_left", "_start", "end", "newest")

    def __init__(self, start: int, max_bytes: int) -> None:
        """An empty map of the log from `start` on, which may grow to about `max_bytes`.

        The keys of the first entry are always taken in, whatever they need, so that a round makes
        progress.
        """
        self.newest: dict[bytes, int] = {}
        self.end = start
        self._start = start
        self._left = max_bytes

    def put(self, key: bytes, offset: int) -> bool:
        """Remember that `key` occurs at `offset`, which rises; False when the memory is used up."""
        if key not in self.newest:
            cost = len(key) + KEY_OVERHEAD_BYTES
            if cost > self._left and self.end > self._start:
                return False
            self._left -= cost
        self.newest[key] = offset
        return True


class TransactionFates:
    """Follows the transactions of a log from its first batch on, in the order of offsets."""

    __slots__ = ("_coming", "_committed", "_ongoing", "_seen", "kept_aborts")

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        """Take the aborted transactions of the whole log, in any order."""
        self._coming = [(txn.first_offset, txn) for txn in aborted]
        heapq.heapify(self._coming)
        self._ongoing: dict[int, AbortedTxn] = {}
        self._seen: set[int] = set()
        self._committed: set[int] = set()
        self.kept_aborts: list[AbortedTxn] = []

    def is_dead(self, entry: Entry, data: memoryview) -> bool:
        """Whether a batch is obsolete: aborted data, or the marker of an emptied transaction.

        `kept_aborts` gets the transactions whose markers readers still need.
        """
        if not entry.is_transactional:
            return False
        while self._coming and self._coming[0][0] <= entry.last_offset:
            txn = heapq.heappop(self._coming)[1]
            if txn.last_offset >= entry.base_offset:
                self._ongoing[txn.producer_id] = txn
        producer_id = entry.producer_id
        if not entry.is_control:
            if producer_id in self._ongoing:
                self._seen.add(producer_id)
                return True
            self._committed.add(producer_id)
            return False
        marker = decode_marker(data)
        if marker is None:
            return entry.records_count == 0
        if marker.is_commit:
            had_records = producer_id in self._committed
            self._committed.discard(producer_id)
            return not had_records
        aborted = self._ongoing.pop(producer_id, None)
        if aborted is None or producer_id not in self._seen:
            return True
        self._seen.discard(producer_id)
        self.kept_aborts.append(aborted)
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class LastOfProducer:
    """State of a producer: offset of its last data (or NO_OFFSET) and its epoch."""

    last_offset: int
    epoch: int


@dataclass(slots=True, kw_only=True)
class Round:
    """The state of one round of compaction over the log.

    Attributes:
        keys: the newest offsets.
        fates: the outcomes of the transactions.
        producers: the last batch of each producer that is still remembered.
        now_ms: when the round began.
        delete_retention_ms: how long a tombstone is kept after the first round that keeps it.
        drops_old_tombstones: whether the current segment is old enough for tombstones of magic 0
            and 1 to go; set before each segment.
        dropped, kept: records counted so far.
    """

    keys: KeyMap
    fates: TransactionFates
    producers: Mapping[int, LastOfProducer]
    now_ms: int
    delete_retention_ms: int
    drops_old_tombstones: bool = False
    dropped: int = 0
    kept: int = 0

    def is_kept(self, record: Outline, *, tombstones_stay: bool) -> bool:
        """Whether the record is the newest of its key, or lies beyond the map."""
        if record.offset >= self.keys.end:
            return True
        if record.key is None or record.offset < self.keys.newest.get(record.key, NO_OFFSET):
            return False
        return record.has_value or tombstones_stay

    def is_last_of_producer(self, entry: Entry) -> bool:
        """Whether the producer's state could not be rebuilt without this batch."""
        last = self.producers.get(entry.producer_id)
        if last is None:
            return False
        if last.last_offset != NO_OFFSET:
            return entry.last_offset == last.last_offset
        return entry.is_control and entry.producer_epoch == last.epoch

    def filter(self, entry: Entry, data: memoryview, *, ends_segment: bool) -> Steps[bytes | None]:
        """The part of an entry that stays; `data` is all of it, and is returned if nothing goes.

        `ends_segment` says that the entry is the last one of a rewritten segment.
        """
        if entry.magic != MAGIC_V2:
            old = yield from self._filter_old(entry, data, ends_segment)
            return old
        is_dead = self.fates.is_dead(entry, data)
        if entry.base_offset >= self.keys.end and not is_dead:
            self.kept += entry.records_count
            return bytes(data)
        horizon_ms = entry.base_timestamp if entry.attributes & DELETE_HORIZON_BIT else NO_TIMESTAMP
        is_past = 0 <= horizon_ms <= self.now_ms
        stays_bare = ends_segment or self.is_last_of_producer(entry)
        if entry.is_control:
            if entry.records_count == 0 or (is_dead and is_past):
                return self._bare(entry, data) if stays_bare else None
            self.kept += 1
            return self._with_horizon(data) if is_dead and horizon_ms < 0 else bytes(data)
        if is_dead:
            self.dropped += entry.records_count
        elif entry.records_count:
            kept = yield from self._select(entry, data, tombstones_stay=not is_past)
            if isinstance(kept, bytes):
                return kept
            if kept:
                rewritten: bytes = yield from self._rewrite(data, kept, horizon_ms)
                return rewritten
        return self._bare(entry, data) if stays_bare else None

    # --- magic 2 --------------------------------------------------------------------------------

    def _select(
        self, entry: Entry, data: memoryview, *, tombstones_stay: bool
    ) -> Steps[bytes | list[Outline]]:
        """The records that stay, or the bytes of the entry when it stays unchanged."""
        batch = RecordBatch(data)
        clear, position, end = yield from _clear_records(batch)
        kept: list[Outline] = []
        left = batch.records_count
        while left > 0:
            count = min(left, SLICE_RECORDS)
            outlines = outline_records(
                clear, position, end, count, batch.base_offset, batch.base_timestamp
            )
            for fields in outlines:
                record = Outline._make(fields)
                if self.is_kept(record, tombstones_stay=tombstones_stay):
                    kept.append(record)
            position = outlines[-1][1]
            left -= count
            if left:
                yield None
        self.kept += len(kept)
        self.dropped += batch.records_count - len(kept)
        # The map ends between two entries, so all records of this one are below its end.
        needs_horizon = not (
            entry.attributes & DELETE_HORIZON_BIT or all(record.has_value for record in kept)
        )
        if len(kept) == batch.records_count and not needs_horizon:
            return bytes(data)
        return kept

    def _rewrite(self, data: memoryview, kept: list[Outline], horizon_ms: int) -> Steps[bytes]:
        """The batch with these records only, under a delete horizon if there are tombstones."""
        batch = RecordBatch(data)
        base_timestamp, flags = batch.base_timestamp, batch.attributes & (_FLAGS | CODEC_MASK)
        if horizon_ms >= 0:
            flags |= DELETE_HORIZON_BIT
            payload = yield from _cut_out(batch, kept)
        elif all(record.has_value for record in kept):
            payload = yield from _cut_out(batch, kept)
        else:
            flags |= DELETE_HORIZON_BIT
            base_timestamp = self._horizon_ms()
            payload = _rebase(batch, {record.offset for record in kept}, base_timestamp)
        if batch.codec:
            codec, clear = batch.codec, payload
            if len(clear) >= OFF_LOOP_BYTES:
                payload = yield from off_loop(lambda: compress(codec, clear))
            else:
                payload = compress(codec, clear)
        max_timestamp = batch.max_timestamp
        if batch.timestamp_type is not TimestampType.LOG_APPEND_TIME:
            max_timestamp = max(NO_TIMESTAMP, *(record.timestamp for record in kept))
        return rebuild_batch(
            batch,
            payload,
            records_count=len(kept),
            max_timestamp=max_timestamp,
            attributes=flags,
            base_timestamp=base_timestamp,
        )

    def _horizon_ms(self) -> int:
        return min(self.now_ms + self.delete_retention_ms, INT64_MAX)

    def _with_horizon(self, data: memoryview) -> bytes:
        """A marker with a delete horizon, otherwise unchanged."""
        batch = RecordBatch(data)
        base_timestamp = self._horizon_ms()
        offsets = {record.offset for record in decode_batch(batch)}
        return rebuild_batch(
            batch,
            _rebase(batch, offsets, base_timestamp),
            records_count=batch.records_count,
            max_timestamp=batch.max_timestamp,
            attributes=batch.attributes & _FLAGS | DELETE_HORIZON_BIT,
            base_timestamp=base_timestamp,
        )

    def _bare(self, entry: Entry, data: memoryview) -> bytes:
        """The header of a batch that lost all its records: offsets, producer, largest time."""
        if entry.magic == MAGIC_V2 and entry.records_count == 0:
            return bytes(data)
        return assemble_batch(
            b"",
            base_offset=entry.base_offset,
            leader_epoch=entry.partition_leader_epoch,
            attributes=entry.attributes & _FLAGS,
            last_offset_delta=entry.last_offset - entry.base_offset,
            base_timestamp=NO_TIMESTAMP,
            max_timestamp=entry.max_timestamp,
            producer=(entry.producer_id, entry.producer_epoch, entry.base_sequence),
            records_count=0,
        )

    # --- magic 0 and 1 --------------------------------------------------------------------------

    def _filter_old(
        self, entry: Entry, data: memoryview, ends_segment: bool
    ) -> Steps[bytes | None]:
        """The part that stays of a message, or of a wrapper, which may lose some inner messages."""
        records = yield from _old_records(entry, data)
        kept = [
            record
            for record in records
            if self.is_kept(
                Outline(0, 0, record.offset, NO_TIMESTAMP, record.key, record.value is not None),
                tombstones_stay=not self.drops_old_tombstones,
            )
        ]
        self.kept += len(kept)
        self.dropped += len(records) - len(kept)
        if len(kept) == len(records):
            return bytes(data)
        rest = build_message_set(
            kept,
            entry.magic,
            entry.codec,
            timestamp_type=entry.timestamp_type,
            append_timestamp=entry.max_timestamp,
        )
        if not ends_segment or (kept and kept[-1].offset == entry.last_offset):
            return rest or None
        # These formats have no empty entries; a magic 2 batch marks where the segment ends.
        bare = entry._replace(base_offset=entry.last_offset)
        return rest + self._bare(bare, data)


def index_entry(entry: Entry, data: memoryview, keys: KeyMap, first_dirty: int) -> Steps[bool]:
    """Put the keys of an entry's records from `first_dirty` on into the map; False if it is full.

    Unless it is full, the map then covers everything up to the entry's end.
    """
    if entry.magic == MAGIC_V2:
        batch = RecordBatch(data)
        clear, position, end = yield from _clear_records(batch)
        left = batch.records_count
        while left > 0:
            count = min(left, SLICE_RECORDS)
            outlines = outline_records(clear, position, end, count, batch.base_offset, 0)
            for _, _, offset, _, key, _ in outlines:
                if key is not None and offset >= first_dirty and not keys.put(key, offset):
                    return False
            position = outlines[-1][1]
            left -= count
            if left:
                yield None
    else:
        for record in (yield from _old_records(entry, data)):
            key, offset = record.key, record.offset
            if key is not None and offset >= first_dirty and not keys.put(key, offset):
                return False
    keys.end = max(keys.end, entry.next_offset)
    return True


def _clear_records(batch: RecordBatch) -> Steps[tuple[bytes | bytearray | memoryview, int, int]]:
    """`record_bytes`, in another thread when that takes long."""
    if batch.codec and batch.size >= OFF_LOOP_BYTES:
        result = yield from off_loop(lambda: record_bytes(batch))
        return result
    return record_bytes(batch)


def _old_records(entry: Entry, data: memoryview) -> Steps[list[Record]]:
    """The records of a message or wrapper, opened in another thread when that takes long."""
    if entry.codec and len(data) >= OFF_LOOP_BYTES:
        records = yield from off_loop(lambda: list(iter_records(data)))
        return records
    return list(iter_records(data))


def _cut_out(batch: RecordBatch, kept: list[Outline]) -> Steps[bytes | bytearray]:
    clear, _, _ = yield from _clear_records(batch)
    return joined_records(clear, [(record.start, record.end) for record in kept])


def joined_records(clear: Buffer, kept: Sequence[tuple[int, int]]) -> bytearray:
    """The bytes of the records at these places; adjacent ones are copied together."""
    view = memoryview(clear)
    out = bytearray()
    start = end = kept[0][0]
    for record_start, record_end in kept:
        if record_start != end:
            out += view[start:end]
            start = record_start
        end = record_end
    out += view[start:end]
    return out


def _rebase(batch: RecordBatch, offsets: set[int], base_timestamp: int) -> bytes:
    """The records at `offsets` with their own times, encoded against another base timestamp."""
    assert base_timestamp >= 0, "a horizon is a time of the broker"
    out = bytearray()
    clear = RecordBatch(batch.bytes)
    # Under LogAppendTime a record reads as the batch's time; its own time is kept here.
    clear.attributes &= ~TIMESTAMP_TYPE_BIT
    for record in decode_batch(clear):
        if record.offset not in offsets:
            continue
        delta = record.timestamp - base_timestamp
        if delta < INT64_MIN:
            # Readers add in 64 bits. The base is a time of the broker, so it is never negative.
            delta += 2**64
        headers = [
            (name.encode("utf-8", "surrogateescape"), value) for name, value in record.headers
        ]
        encode_record(
            out, record.offset - batch.base_offset, delta, record.key, record.value, headers
        )
    return bytes(out)

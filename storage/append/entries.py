"""One incoming entry on its way into the log: examined, stamped, recompressed or decoded.

The two kinds of entry, a magic 2 batch and a message of magic 0 or 1, are examined in one way;
`storage.append.plan` decides what follows. Nothing here knows a topic's configuration: the bounds
arrive as a `Window`.

Lifecycle of an entry: made (header read), `examine` (records walked once, refused or counted), then
of a batch `stamp` (bytes written), or `recompress`/`decode` (fresh bytes made); a log holds batches
alone, so a message is always decoded.

Source: Kafka `LogValidator` (validateRecord, validateBatch).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, NoReturn, TypedDict

from protocol.errors import InvalidRecords
from protocol.records import entry_loops, record_loops
from protocol.records.batch import RecordBatch
from protocol.records.builder import assemble_batch
from protocol.records.checksums import Buffer, crc32
from protocol.records.compression import compress
from protocol.records.entry import Entry
from protocol.records.layout import (
    CONTROL_BIT,
    INT64_MAX,
    MAGIC_V2,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    Codec,
    TimestampType,
)
from protocol.records.legacy import Message, decode_message
from protocol.records.record import Record, decode_batch, record_bytes
from storage.append.opening import Opening
from storage.errors import InvalidRecord, InvalidTimestamp, RecordError, UnstorableTimestamp

Faults = list[tuple[int, int, int]]


class Window(NamedTuple):
    """The conditions that the records of one append must satisfy.

    Attributes:
        oldest: least timestamp (ms, inclusive); NO_TIMESTAMP always passes.
        newest: largest timestamp (ms, inclusive).
        stamps: the broker will replace all timestamps, so none may claim to be the broker's.
        keys_required: records without key are refused.
    """

    oldest: int
    newest: int
    stamps: bool
    keys_required: bool

    def type_rule(self, timestamp_type: TimestampType, timestamp: int) -> int:
        """The rule by which the loops judge the records of an entry of `timestamp_type`.

        `timestamp` is the header's, which all records of a flagged entry have when read.

        | entry flagged LogAppendTime  | topic CreateTime | topic LogAppendTime |
        |------------------------------|------------------|---------------------|
        | no                           | the window alone | the window (open)   |
        | yes, header has no timestamp | refuse all       | refuse all          |
        | yes, header has one          | the window alone | refuse all          |
        """
        if timestamp_type != TimestampType.LOG_APPEND_TIME:
            return record_loops.TYPE_IGNORED
        if self.stamps or timestamp == NO_TIMESTAMP:
            return record_loops.TYPE_FORBIDDEN
        return record_loops.TYPE_IGNORED


class _Examined:
    """What `examine` finds out about an entry, of any magic.

    Attributes:
        records_count: number of records; inside of a wrapper, those in it.
        max_timestamp: true maximum (ms) of the records, or NO_TIMESTAMP.
        min_timestamp: true minimum (ms) of the records; NO_TIMESTAMP if one has none.
    """

    __slots__ = ("max_timestamp", "min_timestamp", "records_count")

    def __init__(self, records_count: int) -> None:
        """Start with what the header claims."""
        self.records_count = records_count
        self.max_timestamp = NO_TIMESTAMP
        self.min_timestamp = NO_TIMESTAMP


class BatchEntry(_Examined):
    """A magic 2 batch of an append; `view` is the batch in the append's buffer."""

    __slots__ = ("_clear", "is_sequential", "view")

    magic = MAGIC_V2

    def __init__(self, buffer: Buffer, position: int) -> None:
        """Read the header at `position`; raises CorruptRecords as `RecordBatch` does."""
        self.view = RecordBatch(buffer, position)
        super().__init__(self.view.records_count)
        self.is_sequential = True
        """Whether the offset deltas are 0, 1, 2, ..."""
        self._clear: tuple[Buffer, int, int] | None = None

    @property
    def is_control(self) -> bool:
        """Whether it holds a control record."""
        return self.view.is_control

    def examine(self, window: Window, max_bytes: int, opening: Opening) -> int:
        """Walk the records once; returns their size in bytes.

        Raises:
            MessageTooLarge, TooMuchAtOnce: as `opening` does.
            RecordsError: compression or structure is broken.
            InvalidRecord: records without key where keys are required.
            InvalidTimestamp: at least one timestamp is refused.
        """
        batch = self.view
        self._clear = self._open(max_bytes, opening)
        self.max_timestamp, _, self.is_sequential, faults, self.min_timestamp = (
            record_loops.check_records(
                *self._clear,
                batch.records_count,
                batch.base_timestamp,
                window.oldest,
                window.newest,
                window.type_rule(batch.timestamp_type, batch.max_timestamp),
                window.keys_required,
            )
        )
        if faults is not None:
            raise_faults(faults, window)
        return self._clear[2] - self._clear[1]

    def _open(self, max_bytes: int, opening: Opening) -> tuple[Buffer, int, int]:
        batch = self.view
        if not batch.codec:
            return record_bytes(batch)
        opened: list[tuple[Buffer, int, int]] = []

        def decompress(most: int, pieces: int) -> Buffer:
            opened.append(record_bytes(batch, max_bytes=most, max_pieces=pieces))
            return opened[0][0]

        opening.open(max_bytes, decompress)
        return opened[0]

    @property
    def is_gapless(self) -> bool:
        """Whether its records can be stored as they are."""
        return self.is_sequential and self.view.last_offset_delta == self.records_count - 1

    def stamp(
        self, offset: int, leader_epoch: int, timestamp_type: TimestampType, append_time: int
    ) -> None:
        """Write offset, epoch, and the true or the broker's timestamp into the header."""
        stamped = timestamp_type == TimestampType.LOG_APPEND_TIME
        self.view.stamp_position(offset, leader_epoch)
        self.view.stamp_timestamps(timestamp_type, append_time if stamped else self.max_timestamp)

    def recompress(self, codec: Codec, level: int | None) -> bytes:
        """The same batch with its records unchanged, in `codec`.

        Raises:
            UnstorableTimestamp: a record's timestamp is below NO_TIMESTAMP.
        """
        assert self._clear is not None, "examine comes first"
        clear, start, end = self._clear
        batch = self.view
        faults = record_loops.check_records(
            clear,
            start,
            end,
            batch.records_count,
            batch.base_timestamp,
            NO_TIMESTAMP,
            INT64_MAX,
            record_loops.TYPE_IGNORED,
            False,
        )[3]
        if faults is not None:
            raise _unstorable(faults[0][2])
        kept_flags = batch.attributes & (TRANSACTIONAL_BIT | CONTROL_BIT)
        return assemble_batch(
            compress(codec, memoryview(clear)[start:end], level),
            base_offset=batch.base_offset,
            leader_epoch=batch.partition_leader_epoch,
            attributes=codec | kept_flags,
            last_offset_delta=batch.last_offset_delta,
            base_timestamp=batch.base_timestamp,
            max_timestamp=self.max_timestamp,
            producer=(batch.producer_id, batch.producer_epoch, batch.base_sequence),
            records_count=batch.records_count,
        )

    def decode(self, max_bytes: int) -> list[Record]:
        """The records; a cleared LogAppendTime flag leaves them their own timestamps."""
        self.view.attributes &= ~TIMESTAMP_TYPE_BIT
        return decode_batch(self.view, max_bytes=max_bytes)


class MessageEntry(_Examined):
    """A magic 0 or 1 message of an append, plain or wrapper; `view` is the bytes in place."""

    __slots__ = ("magic", "view")

    is_control = False

    def __init__(self, buffer: Buffer, position: int) -> None:
        """Read the header at `position`; raises CorruptRecords as `Message` does."""
        super().__init__(1)
        self.view = Message(buffer, position)
        self.magic = self.view.magic

    def examine(self, window: Window, max_bytes: int, opening: Opening) -> int:
        """Check the message, or decompress the wrapper and walk its inner messages once; returns
        the size in bytes.

        Raises:
            MessageTooLarge, TooMuchAtOnce: as `opening` does.
            RecordsError: compression or structure is broken, or an inner CRC is wrong.
            InvalidRecord: no key where one is required, nested compression, mixed magics.
            InvalidTimestamp: at least one timestamp is refused.
        """
        message = self.view
        type_rule = window.type_rule(message.timestamp_type, message.timestamp)
        if message.is_wrapper:
            clear = opening.open(
                max_bytes,
                lambda most, pieces: message.inner_bytes(max_bytes=most, max_pieces=pieces),
            )
            size, faults = len(clear), self._examine_inner(message, window, type_rule, clear)
        else:
            size, faults = message.size, self._examine_plain(message, window, type_rule)
        if faults:
            raise_faults(faults, window)
        return size

    def _examine_plain(self, message: Message, window: Window, type_rule: int) -> Faults:
        """The faults of a plain message, at most one."""
        # Reading the value also checks that it ends where the message ends.
        has_key, _ = message.key is not None, message.value
        self.max_timestamp = max(message.timestamp, NO_TIMESTAMP)
        self.min_timestamp = self.max_timestamp
        fault = record_loops.timestamp_fault(
            message.timestamp, window.oldest, window.newest, type_rule
        )
        if window.keys_required and not has_key:
            fault = record_loops.FAULT_NO_KEY
        return [(0, fault, message.timestamp)] if fault else []

    def _examine_inner(
        self, message: Message, window: Window, type_rule: int, clear: Buffer
    ) -> Faults:
        """The faults of a wrapper's inner messages."""
        (
            self.records_count,
            self.max_timestamp,
            faults,
            self.min_timestamp,
        ) = entry_loops.check_messages(
            clear,
            0,
            len(clear),
            message.magic,
            window.oldest,
            window.newest,
            type_rule,
            window.keys_required,
            message.timestamp,
            message.timestamp_type == TimestampType.LOG_APPEND_TIME,
            crc32,
        )
        if self.records_count == 0:
            raise InvalidRecords("a wrapper message holds no messages")
        return faults or []

    def decode(self, max_bytes: int) -> list[Record]:
        """The message, or those inside the wrapper."""
        return decode_message(self.view, max_bytes=max_bytes)


IncomingEntry = BatchEntry | MessageEntry


def incoming(view: memoryview, header: Entry) -> IncomingEntry:
    """The entry of `view` that has this header."""
    if header.magic == MAGIC_V2:
        return BatchEntry(view, header.position)
    return MessageEntry(view, header.position)


class ProducerFields(TypedDict, total=False):
    """The producer's part of a batch header, as an argument of `build_batch`."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool


def producer_fields(entry: IncomingEntry) -> ProducerFields:
    """The producer fields that a rebuilt batch keeps; messages of magic 0 and 1 have none."""
    if isinstance(entry, MessageEntry):
        return ProducerFields()
    batch = entry.view
    assert not batch.is_control, "a marker is one record and stays as it is"
    return ProducerFields(
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        is_transactional=batch.is_transactional,
    )


def check_client_batch(batch: RecordBatch) -> None:
    """Refuse a header that a client must not send.

    Raises:
        InvalidRecord: the counts contradict each other, the batch is a control batch, or it is
            idempotent and has no sequence.
    """
    offsets = batch.last_offset_delta + 1
    count = batch.records_count
    if not 0 < offsets == count:
        raise InvalidRecord(f"a batch spans {offsets} offsets and counts {count} records")
    if batch.is_control:
        raise InvalidRecord("clients may not write control batches")
    if batch.has_producer_id and batch.base_sequence < 0:
        raise InvalidRecord(
            f"producer {batch.producer_id} sent base sequence {batch.base_sequence}"
        )


def refuse_negative_timestamps(records: Sequence[Record]) -> None:
    """Refuse to rewrite records whose timestamps are below NO_TIMESTAMP.

    Raises:
        UnstorableTimestamp: there is one. Kafka stores such a record as long as its bytes need no
            change and fails internally otherwise.
    """
    for record in records:
        if record.timestamp < NO_TIMESTAMP:
            raise _unstorable(record.timestamp)


def _unstorable(timestamp: int) -> UnstorableTimestamp:
    """The refusal, with the timestamp in it."""
    return UnstorableTimestamp(f"timestamp {timestamp} is negative and cannot be rewritten")


_TIMESTAMP_FAULTS = (record_loops.FAULT_TIMESTAMP_RANGE, record_loops.FAULT_TIMESTAMP_TYPE)

_FAULT_TEXTS = {
    record_loops.FAULT_NO_KEY: "a compacted topic needs a key in every record",
    record_loops.FAULT_TIMESTAMP_TYPE: "the producer may not mark timestamps as LogAppendTime",
    entry_loops.FAULT_MAGIC: "the record's magic is not that of its wrapper",
    entry_loops.FAULT_NESTED: "a record inside a compressed message is compressed itself",
}


def raise_faults(faults: Faults, window: Window) -> NoReturn:
    """Refuse an entry for its records: every bad one is listed, and a bad timestamp has priority.

    Raises:
        InvalidTimestamp: at least one fault concerns a timestamp.
        InvalidRecord: none does.
    """
    errors = tuple(
        RecordError(batch_index=index, message=_fault_text(kind, timestamp, window))
        for index, kind, timestamp in faults
    )
    if any(kind in _TIMESTAMP_FAULTS for _, kind, _ in faults):
        raise InvalidTimestamp("one or more records were refused for their timestamps", errors)
    raise InvalidRecord("one or more records were refused", errors)


def _fault_text(kind: int, timestamp: int, window: Window) -> str:
    """Why one record was refused, for the producer."""
    if kind == record_loops.FAULT_TIMESTAMP_RANGE:
        is_late = timestamp > window.newest
        bound, limit, side = (
            (window.newest, "message.timestamp.after.max.ms", "newest")
            if is_late
            else (window.oldest, "message.timestamp.before.max.ms", "oldest")
        )
        return (
            f"timestamp {timestamp} ({_iso(timestamp)}) is too {'new' if is_late else 'old'}: by "
            f"{limit} of the topic and the broker's clock the {side} accepted now is {bound} "
            f"({_iso(bound)})"
        )
    return _FAULT_TEXTS[kind]


def _iso(timestamp: int) -> str:
    """A timestamp in readable form, in UTC."""
    try:
        moment = datetime(1970, 1, 1) + timedelta(milliseconds=timestamp)
    except OverflowError:
        return "outside of the calendar"
    return f"{moment.isoformat(timespec='milliseconds')}Z"

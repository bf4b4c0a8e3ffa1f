"""Records into magic 2 batches, one batch under construction for each partition.

Keeps the values that Spark's own sink drops: the record's own time, headers and partition. The
bytes of records are written by `protocol.records.encode_loops`, one record of objects or many rows
of Arrow columns; this module adds the header, the codec (`codecs`) and the checksum, and does not
know the sender.

Source: Kafka `MemoryRecordsBuilder`.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.errors import BadOptions
from pipeline.records import codecs
from pipeline.records.batches import HEADERS, KEY, TIMESTAMP, TIMESTAMP_ARROW, VALUE
from protocol.records.checksums import crc32c
from protocol.records.encode_loops import (
    Column,
    HeaderColumn,
    choose_partitions,
    encode_record,
    encode_rows,
)
from protocol.records.layout import (
    ATTRIBUTES_AT,
    BATCH_OVERHEAD,
    CRC_AT,
    HEADER,
    INT64_MAX,
    LOG_OVERHEAD,
    MAGIC_V2,
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    UINT32,
)

Headers = Sequence[tuple[bytes, bytes | None]]


class Rows:
    """The columns of an Arrow batch, as the loop reads them; without copying keys and values.

    Attributes:
        micros: the times, i64.
        keys: None where there is no such column; likewise `values` and `headers`.
    """

    __slots__ = ("headers", "keys", "micros", "values")

    def __init__(self, batch: pa.RecordBatch, now_ms: int) -> None:
        """Look at the columns by name; a null time is `now_ms`.

        Raises:
            BadOptions: a header, or the key of one, is null.
        """
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        self.micros = _times(columns.get(TIMESTAMP), now_ms, batch.num_rows)
        self.keys = _cells(columns.get(KEY))
        self.values = _cells(columns.get(VALUE))
        self.headers = _header_cells(columns.get(HEADERS))


def groups(column: pa.Array) -> Iterator[tuple[Any, pa.Array]]:
    """Each distinct value of `column` with the numbers (i32) of its rows, in their order."""
    order = pc.array_sort_indices(column)
    runs = pc.run_end_encode(column.take(order))
    start = 0
    for value, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        yield value, order.slice(start, end - start).cast(pa.int32())
        start = end


def partitions_of(keys: pa.Array, partitions: int) -> pa.Array:
    """Which of `partitions` each key (binary) belongs to, as every Kafka client chooses it."""
    if keys.null_count == len(keys):
        return pa.nulls(len(keys), pa.int32())
    room = pa.allocate_buffer(4 * len(keys))
    choose_partitions(_cells(keys), len(keys), partitions, memoryview(room).cast("B").cast("i"))
    chosen = pa.Array.from_buffers(pa.int32(), len(keys), [None, room])
    return pc.if_else(keys.is_null(), None, chosen) if keys.null_count else chosen


def digest_rows(rows: Rows, numbers: pa.Array) -> int:
    """The sum modulo 2^64 of the digests of the rows `numbers` (i32), without sending them."""
    if not len(numbers):
        return 0
    return BatchBuilder().add_rows(rows, numbers_of(numbers), 0, INT64_MAX, digests=True)[1]


class BatchBuilder:
    """One batch of one partition, in the order in which records are added.

    Attributes:
        records_count: how many records it holds.
        size_bytes: of the records, uncompressed.
    """

    __slots__ = ("_base_timestamp", "_body", "_max_timestamp", "records_count")

    def __init__(self) -> None:
        """Start without records."""
        self._body = bytearray()
        self._base_timestamp = NO_TIMESTAMP
        self._max_timestamp = NO_TIMESTAMP
        self.records_count = 0

    @property
    def size_bytes(self) -> int:
        """Bytes of the records so far."""
        return len(self._body)

    def add(
        self, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> None:
        """Append one record; `timestamp_ms` is its CreateTime, -1 for none."""
        if not self.records_count:
            self._base_timestamp = timestamp_ms
        encode_record(
            self._body,
            self.records_count,
            timestamp_ms - self._base_timestamp,
            key,
            value,
            headers,
        )
        self._max_timestamp = max(self._max_timestamp, timestamp_ms)
        self.records_count += 1

    def add_rows(
        self, rows: Rows, numbers: memoryview, start: int, full_bytes: int, *, digests: bool
    ) -> tuple[int, int]:
        """Append the rows `numbers[start:]`, up to the one with which the batch is full.

        Returns (how many, the sum of their digests modulo 2^64, 0 unless `digests`).
        """
        if not self.records_count:
            self._base_timestamp = rows.micros[numbers[start]] // 1000
        taken, newest_ms, digest = encode_rows(
            self._body, numbers, start, (self.records_count, self._base_timestamp, full_bytes),
            rows.micros, rows.keys, rows.values, rows.headers, digests,
        )  # fmt: skip
        self._max_timestamp = max(self._max_timestamp, newest_ms)
        self.records_count += taken
        return taken, digest

    def build(
        self,
        codec: int,
        *,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        is_transactional: bool,
    ) -> bytes:
        """The batch as Produce wants it, offsets counted from 0."""
        payload = codecs.compress(codec, self._body) if codec else self._body
        attributes = codec | (TRANSACTIONAL_BIT if is_transactional else 0)
        out = bytearray(
            HEADER.pack(
                0, BATCH_OVERHEAD - LOG_OVERHEAD + len(payload), NO_LEADER_EPOCH, MAGIC_V2, 0,
                attributes, self.records_count - 1, self._base_timestamp, self._max_timestamp,
                producer_id, producer_epoch, base_sequence, self.records_count,
            )
        )  # fmt: skip
        out += payload
        UINT32.pack_into(out, CRC_AT, crc32c(memoryview(out)[ATTRIBUTES_AT:]))
        return bytes(out)


def numbers_of(rows: pa.Array) -> memoryview:
    """An array of i32 without nulls as the loop reads it."""
    return _view(rows.buffers()[1], "i")[rows.offset : rows.offset + len(rows)]


def _view(buffer: pa.Buffer | None, code: Any) -> memoryview:
    """The numbers of a buffer, of the `struct` type `code`; an absent one has none."""
    if buffer is None or not buffer.size:
        # A view without entries cannot be cast.
        return memoryview(bytes(8)).cast(code)[:0]
    return memoryview(buffer).cast("B").cast(code)


def _times(column: pa.Array | None, now_ms: int, count: int) -> memoryview:
    if column is None:
        column = pa.repeat(pa.scalar(now_ms * 1000, pa.int64()), count)
    elif column.type != pa.int64():
        column = column.cast(TIMESTAMP_ARROW).cast(pa.int64())
    column = column.fill_null(now_ms * 1000)
    return _view(column.buffers()[1], "q")[column.offset : column.offset + count]


def _cells(column: pa.Array | None) -> Column | None:
    if column is None:
        return None
    # Of text this changes the type alone.
    valid, ends, data = column.cast(pa.binary()).buffers()
    return _entries(column, valid, ends, _view(data, "B"))


def _entries(column: pa.Array, valid: Any, ends: Any, data: memoryview) -> Column:
    bitmap = _view(valid, "B") if column.null_count else None
    last = column.offset + len(column) + 1
    return _view(ends, "i")[column.offset : last], bitmap, column.offset, data


def _header_cells(column: pa.Array | None) -> HeaderColumn | None:
    if column is None or column.null_count == len(column):
        return None
    if column.flatten().null_count:
        raise BadOptions(
            "column headers holds an array with a null element, which is no header: leave "
            "nulls out, for example by filter(headers, one -> one is not null)"
        )
    if column.flatten().flatten()[0].null_count:
        raise BadOptions(
            "column headers holds a header whose key is null, and Kafka's headers have keys: leave "
            "such headers out, for example by filter(headers, one -> one.key is not null)"
        )
    names, contents = map(_cells, column.values.flatten())
    assert names is not None
    assert contents is not None
    lists = _entries(column, column.buffers()[0], column.buffers()[1], memoryview(b""))
    return lists, names, contents

"""From the bytes of a fetch or a segment file to Arrow record batches with Kafka's columns.

Owns the steps between raw log bytes and Spark: the choice of batches (no control batches, no
aborted transactions, none outside the requested offsets), their checksums and decompression, and
the building of Arrow arrays around the buffers that `arrow_loops` fills. It reads no socket and no
file; bytes come in through `PartitionDecoder.feed`.

The columns have exactly the types that Spark will compare them with, bit for bit:

| column        | Arrow type                              | null when                              |
|---------------|-----------------------------------------|----------------------------------------|
| key, value    | binary                                  | the record says so                     |
| topic         | string                                  | never                                  |
| partition     | int32                                   | never                                  |
| offset        | int64                                   | never                                  |
| timestamp     | timestamp[us, tz=UTC]                   | by `onMalformedTimestamp=null`         |
| timestampType | int32                                   | never; 0 CreateTime, 1 LogAppendTime   |
| headers       | list<struct<key string, value binary>>  | the record has none                    |

Magic 0 and 1 go through `protocol.records`, slower; a current log holds none of them.

Invariant: records come out in the order of their offsets, each at most once, also when a fetch
answers with batches that begin below the requested offset.

Source: Kafka `CompletedFetch` (aborted transactions); Spark `KafkaRecordToRowConverter` (columns).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import pyarrow as pa

from pipeline.errors import CorruptData, MalformedTimestamp
from pipeline.records import codecs
from pipeline.records.arrow_loops import WANT_HEADERS, WANT_KEY, WANT_VALUE, fill_rows
from protocol.errors import InvalidRecords
from protocol.records import layout
from protocol.records.checksums import crc32c
from protocol.records.entry import Entry
from protocol.records.entry_loops import STOP_CORRUPT, check_entries
from protocol.records.record_loops import RecordWalk

KEY: Final = "key"
VALUE: Final = "value"
TOPIC: Final = "topic"
PARTITION: Final = "partition"
OFFSET: Final = "offset"
TIMESTAMP: Final = "timestamp"
TIMESTAMP_TYPE: Final = "timestampType"
HEADERS: Final = "headers"

TIMESTAMP_ARROW: Final = pa.timestamp("us", tz="UTC")
HEADER_ARROW: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
COLUMN_TYPES: Final[Mapping[str, pa.DataType]] = {
    KEY: pa.binary(),
    VALUE: pa.binary(),
    TOPIC: pa.string(),
    PARTITION: pa.int32(),
    OFFSET: pa.int64(),
    TIMESTAMP: TIMESTAMP_ARROW,
    TIMESTAMP_TYPE: pa.int32(),
    HEADERS: pa.list_(HEADER_ARROW),
}
"""The columns in Kafka's order; `headers` only on request."""
_NEVER_NULL: Final = frozenset({TOPIC, PARTITION, OFFSET, TIMESTAMP_TYPE})

CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1

ROWS_PER_BATCH: Final = 16_384
BYTES_PER_BATCH: Final = 4 << 20

_Run = tuple[int, int, int, int, int, int]


def never_null(on_malformed: str) -> frozenset[str]:
    """The columns that have a value in every record, by the rule for times that do not fit."""
    return _NEVER_NULL if on_malformed == "null" else _NEVER_NULL | {TIMESTAMP}


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeRules:
    """The wanted records and columns of a partition, and how strictly to check them.

    Attributes:
        columns: names out of `COLUMN_TYPES`, in the order of the answer.
        required: those of them that the schema of the answer declares to be never null, so that
            its reader looks for no nulls; out of `never_null`.
        oldest_ms: records older than this are dropped; INT64_MIN for none.
        newest_ms: so are records of this time and later; INT64_MAX for none.
        read_committed: drop the records of aborted transactions.
        verify_checksums: compute the CRC-32C of every batch.
        on_malformed: "error", "null" or "clamp" for times beyond 64-bit microseconds; with
            "null" a record without timestamp (-1) is null too.
        rows_per_batch: most rows of one Arrow batch.
        bytes_per_batch: about how many bytes of keys and values one Arrow batch may hold.
        stop: (ms, records): no record is wanted after so many that are older than this time,
            whether they are wanted or not.
    """

    columns: tuple[str, ...]
    required: frozenset[str] = frozenset()
    oldest_ms: int = layout.INT64_MIN
    newest_ms: int = layout.INT64_MAX
    read_committed: bool = False
    verify_checksums: bool = True
    on_malformed: str = "error"
    rows_per_batch: int = ROWS_PER_BATCH
    bytes_per_batch: int = BYTES_PER_BATCH
    stop: tuple[int, int] | None = None

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the answer, every field nullable but the required ones."""
        return pa.schema(
            [
                pa.field(name, COLUMN_TYPES[name], nullable=name not in self.required)
                for name in self.columns
            ]
        )


class PartitionDecoder:
    """Decodes the log bytes of one partition, chunk by chunk, in order of offsets.

    Not thread-safe. Chunks are borrowed during `feed` only; what it yields owns its memory.

    Attributes:
        next_offset: where reading continues; moves past every batch, also one that was dropped.
    """

    def __init__(
        self, topic: str, partition: int, start: int, end: int, rules: DecodeRules
    ) -> None:
        """Expect the records with offsets in `[start, end)`."""
        self.topic = topic
        self.partition = partition
        self.next_offset = start
        self._end = end
        # Without an upper end even the largest number is inside, and is checked like the others.
        unbounded = rules.newest_ms == layout.INT64_MAX
        self._newest_ms = layout.INT64_MAX if unbounded else rules.newest_ms - 1
        self._counted_ms, self._left = rules.stop or (layout.INT64_MIN, 1)
        self._rules = rules
        self._schema = rules.schema
        self._wanted = (
            (WANT_KEY if KEY in rules.columns else 0)
            | (WANT_VALUE if VALUE in rules.columns else 0)
            | (WANT_HEADERS if HEADERS in rules.columns else 0)
        )
        self._is_beyond = False
        self._aborting: set[int] = set()
        self._constants: dict[str, pa.Array] = {}

    @property
    def is_done(self) -> bool:
        """Whether every offset below the end has been seen."""
        return self.next_offset >= self._end

    def feed(
        self, data: memoryview, aborted: Sequence[tuple[int, int]] = ()
    ) -> Iterator[pa.RecordBatch]:
        """The wanted records of `data`: whole batches, of which the last may be cut short.

        `aborted` are (producer id, first offset) of the aborted transactions in `data`.

        Raises:
            CorruptData: a checksum, size or record is wrong.
            MalformedTimestamp: a time does not fit, and the rules call that an error.
        """
        waiting = sorted(aborted, key=lambda entry: entry[1], reverse=True)
        runs: list[_Run] = []
        stamped = CREATE_TIME
        seen = self.next_offset
        for entry in self._entries(data):
            end = entry.position + entry.size
            if entry.magic != layout.MAGIC_V2:
                yield from self._build(data, runs, stamped)
                runs = []
                yield from self._legacy(data, entry.position, end)
                seen = self.next_offset
                continue
            seen = entry.next_offset
            if self._is_dropped(data, entry, waiting):
                self._count_dropped(entry)
                continue
            kind = LOG_APPEND_TIME if entry.attributes & layout.TIMESTAMP_TYPE_BIT else CREATE_TIME
            run = self._run(entry)
            codec = entry.attributes & layout.CODEC_MASK
            if runs and (codec or kind != stamped):
                yield from self._build(data, runs, stamped)
                runs = []
            stamped = kind
            if codec:
                payload = codecs.decompress(codec, data[run[0] : end])
                yield from self._build(payload, [(0, len(payload), *run[2:])], stamped)
            else:
                runs.append(run)
        yield from self._build(data, runs, stamped)
        is_over = self._is_beyond or self._left <= 0
        self.next_offset = max(self.next_offset, self._end if is_over else seen)

    def _entries(self, data: memoryview) -> Iterator[Entry]:
        """The complete entries below the end offset that may hold a wanted record."""
        headers, position, stop = check_entries(data, 0, len(data), None, None)
        for entry in map(Entry._make, headers):
            if entry.magic == layout.MAGIC_V2:
                if entry.base_offset >= self._end:
                    # Offsets only rise: all records that compaction left of the range were seen.
                    self._is_beyond = True
                    return
                # Batches below the wanted offset come from the start of a fetch; no check needed.
                if entry.last_offset < self.next_offset:
                    continue
                if self._rules.verify_checksums:
                    self._check_crc(data, entry)
            yield entry
        if stop == STOP_CORRUPT:
            raise CorruptData(self._at(f"no entry can start like the bytes at position {position}"))

    def _check_crc(self, data: memoryview, entry: Entry) -> None:
        found = crc32c(data[entry.position + layout.ATTRIBUTES_AT : entry.position + entry.size])
        (claimed,) = layout.UINT32.unpack_from(data, entry.position + layout.CRC_AT)
        if found != claimed:
            raise CorruptData(
                self._at(
                    f"the batch at offset {entry.base_offset} has CRC-32C {found:#010x} and claims "
                    f"{claimed:#010x}"
                )
            )

    def _at(self, sentence: str) -> str:
        return f"{self.topic}-{self.partition}: {sentence}"

    def _run(self, entry: Entry) -> _Run:
        start, end = entry.position + layout.BATCH_OVERHEAD, entry.position + entry.size
        flags, count = entry.attributes, entry.records_count
        if count < 0 or (
            not flags & layout.CODEC_MASK and count * layout.MIN_RECORD_BYTES > end - start
        ):
            raise CorruptData(self._at(f"a batch claims {count} records in {end - start} bytes"))
        append_timestamp = (
            entry.max_timestamp if flags & layout.TIMESTAMP_TYPE_BIT else layout.NO_TIMESTAMP
        )
        return (start, end, count, entry.base_offset, entry.base_timestamp, append_timestamp)

    def _is_dropped(self, data: memoryview, entry: Entry, waiting: list[tuple[int, int]]) -> bool:
        """Whether the batch is a marker, of an aborted transaction, or too old as a whole."""
        while waiting and waiting[-1][1] <= entry.last_offset:
            self._aborting.add(waiting.pop()[0])
        if entry.is_control:
            if _control_type(data, entry) == layout.ControlType.ABORT:
                self._aborting.discard(entry.producer_id)
            return True
        is_aborted = entry.is_transactional and entry.producer_id in self._aborting
        return (
            self._rules.read_committed and is_aborted
        ) or entry.max_timestamp < self._rules.oldest_ms

    def _count_dropped(self, entry: Entry) -> None:
        """Count the records of a batch that is not decoded; too few are counted in case of doubt,
        which has more read.
        """
        if (
            entry.max_timestamp < self._counted_ms
            and not entry.is_control
            and self.next_offset <= entry.base_offset
            and entry.last_offset < self._end
        ):
            self._left -= max(entry.records_count, 0)

    def _build(
        self, data: bytes | memoryview, runs: Sequence[_Run], stamped: int
    ) -> Iterator[pa.RecordBatch]:
        """The records of `runs`, all in `data`, as Arrow batches of the allowed size."""
        if not runs:
            return
        rows = sum(run[2] for run in runs)
        payload = sum(run[1] - run[0] for run in runs)
        if rows * layout.MIN_RECORD_BYTES > payload:
            raise CorruptData(self._at(f"a batch claims {rows} records in {payload} bytes"))
        columns = _Columns(rows, payload, self._wanted)
        rules = self._rules
        try:
            limits = (self.next_offset, self._end, rules.oldest_ms, self._newest_ms)
            columns.fill(data, runs, (*limits, self._counted_ms))
        except InvalidRecords as error:
            raise CorruptData(self._at(f"near offset {runs[0][3]}: {error}")) from error
        self._left -= columns.counted
        if not columns.rows:
            return
        if columns.misfits:
            self._judge_misfits(columns.misfits, columns.first_misfit)
        batch = self._assemble(columns, stamped)
        step = min(rules.rows_per_batch, max(1, rules.bytes_per_batch * columns.rows // payload))
        for start in range(0, columns.rows, step):
            yield batch.slice(start, step)

    def _judge_misfits(self, count: int, find_first: Callable[[], int]) -> None:
        """Check the times, if they are read and have to fit; raises MalformedTimestamp."""
        if TIMESTAMP in self._rules.columns and self._rules.on_malformed == "error":
            raise MalformedTimestamp(
                self._at(
                    f"{count} records from offset {find_first()} on have timestamps beyond Spark's "
                    "microseconds; they were probably written in nanoseconds or microseconds "
                    "instead of milliseconds. Set onMalformedTimestamp to null or clamp to read "
                    "them, or leave the column timestamp out (option columns)"
                )
            )

    def _assemble(self, columns: _Columns, stamped: int) -> pa.RecordBatch:
        arrays = []
        for name in self._rules.columns:
            if name == TOPIC:
                arrays.append(self._constant(name, self.topic, columns.rows))
            elif name == PARTITION:
                arrays.append(self._constant(name, self.partition, columns.rows))
            elif name == TIMESTAMP_TYPE:
                arrays.append(self._constant(f"{name}{stamped}", stamped, columns.rows))
            elif name == TIMESTAMP:
                arrays.append(columns.timestamps(self._rules.on_malformed))
            else:
                arrays.append(columns.array(name))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _constant(self, name: str, value: str | int, rows: int) -> pa.Array:
        """`rows` times `value`; the longest so far is kept and sliced."""
        known = self._constants.get(name)
        if known is None or len(known) < rows:
            known = self._constants[name] = _repeated(value, rows)
        return known.slice(0, rows)

    def _legacy(self, data: memoryview, position: int, end: int) -> Iterator[pa.RecordBatch]:
        """The records of a magic 0 or 1 entry, by way of Python objects."""
        # Needs the compression packages of the full install, which no current log requires.
        from pipeline.records.old_formats import read_entry

        rules = self._rules
        limits = (self.next_offset, self._end, rules.oldest_ms, self._newest_ms)
        entry = read_entry(self._at(""), bytes(data[position:end]), limits)
        self.next_offset = max(self.next_offset, entry.last_offset + 1)
        misfits = entry.misfits()
        if misfits:
            self._judge_misfits(len(misfits), lambda: misfits[0])
        if entry.records:
            rows = entry.rows(self.topic, self.partition, rules.on_malformed)
            yield pa.RecordBatch.from_arrays(
                [pa.array(rows[name], COLUMN_TYPES[name]) for name in rules.columns],
                schema=self._schema,
            )


class _Columns:
    """The output buffers of one `fill_rows`, and the Arrow arrays over them."""

    def __init__(self, rows: int, payload: int, wanted: int) -> None:
        """Room for `rows` records of `payload` bytes in all; memory is touched when filled."""
        headers = payload // 2 + 1 if wanted & WANT_HEADERS else 0
        key_rows = rows if wanted & WANT_KEY else 0
        value_rows = rows if wanted & WANT_VALUE else 0
        self._wanted = wanted
        self._counts = (0,) * 8
        self._offsets = _room(rows, "q")
        self._micros = _room(rows, "q")
        self._micros_valid = _all_valid(rows)
        self._keys = _binary_room(key_rows, payload if wanted & WANT_KEY else 0)
        self._values = _binary_room(value_rows, payload if wanted & WANT_VALUE else 0)
        header_bytes = payload if headers else 0
        self._lists = (_room(rows + 1 if headers else 1, "i"), _all_valid(rows if headers else 0))
        self._names = _binary_room(headers, header_bytes)
        self._contents = _binary_room(headers, header_bytes)
        for ends in (self._keys[0], self._values[0], self._lists[0], self._names[0], self._contents[0]):  # noqa: E501  # fmt: skip
            ends[0] = 0

    def fill(
        self,
        data: bytes | memoryview,
        runs: Sequence[_Run],
        limits: tuple[int, int, int, int, int],
    ) -> None:
        """Run the loop over `runs`."""
        self._counts = fill_rows(
            data, runs, limits, self._wanted, (self._offsets, self._micros, self._micros_valid),
            self._keys, self._values, self._lists, self._names, self._contents,
        )  # fmt: skip

    @property
    def rows(self) -> int:
        """Records written."""
        return self._counts[0]

    @property
    def misfits(self) -> int:
        """Records whose time did not fit into microseconds."""
        return self._counts[6]

    @property
    def counted(self) -> int:
        """Records before the counted time, written or not."""
        return self._counts[7]

    def first_misfit(self) -> int:
        """The offset of the first of them."""
        return next(
            self._offsets[row]
            for row in range(self.rows)
            if not self._micros_valid[row >> 3] >> (row & 7) & 1
        )

    def array(self, name: str) -> pa.Array:
        """The column `name` as an Arrow array over the filled buffers."""
        if name == OFFSET:
            return pa.Array.from_buffers(pa.int64(), self.rows, [None, pa.py_buffer(self._offsets)])
        if name == KEY:
            return self._binary(pa.binary(), self._keys, self.rows, self._counts[1])
        if name == VALUE:
            return self._binary(pa.binary(), self._values, self.rows, self._counts[2])
        assert name == HEADERS, name
        count = self._counts[3]
        names = self._binary(pa.string(), self._names, count, self._counts[4])
        contents = self._binary(pa.binary(), self._contents, count, self._counts[5])
        entries = pa.StructArray.from_arrays([names, contents], fields=list(HEADER_ARROW))
        ends, valid = self._lists
        buffers = [pa.py_buffer(valid), pa.py_buffer(ends)]
        return pa.ListArray.from_buffers(
            COLUMN_TYPES[HEADERS], self.rows, buffers, children=[entries]
        )

    def timestamps(self, on_malformed: str) -> pa.Array:
        """The times; nulls only where the rules require them."""
        valid = None
        if on_malformed == "null":
            for row in range(self.rows):
                if self._micros[row] == layout.NO_TIMESTAMP * 1000:
                    self._micros_valid[row >> 3] &= 0xFF ^ (1 << (row & 7))
            valid = pa.py_buffer(self._micros_valid)
        buffers = [valid, pa.py_buffer(self._micros)]
        return pa.Array.from_buffers(TIMESTAMP_ARROW, self.rows, buffers)

    @staticmethod
    def _binary(
        kind: pa.DataType, room: tuple[memoryview, memoryview, memoryview], rows: int, size: int
    ) -> pa.Array:
        ends, valid, data = room
        buffers = [pa.py_buffer(valid), pa.py_buffer(ends), pa.py_buffer(data)[:size]]
        return pa.Array.from_buffers(kind, rows, buffers)


def _repeated(value: str | int, rows: int) -> pa.Array:
    """`rows` times `value`.

    The one that is repeated is made of its bytes: `pa.scalar` imports pandas, half a second in a
    worker.
    """
    if isinstance(value, int):
        kind, buffers = pa.int32(), [None, pa.py_buffer(array("i", [value]))]
    else:
        text = value.encode()
        kind = pa.string()
        buffers = [None, pa.py_buffer(array("i", [0, len(text)])), pa.py_buffer(text)]
    return pa.repeat(pa.Array.from_buffers(kind, 1, buffers)[0], rows)


def _room(count: int, code: Literal["q", "i", "B"]) -> memoryview:
    """Uninitialised room for `count` numbers of the `struct` type `code`, at least one."""
    size = max(count, 1) * (8 if code == "q" else 4 if code == "i" else 1)
    room = memoryview(pa.allocate_buffer(size)).cast("B")
    return room if code == "B" else room.cast(code)


def _all_valid(rows: int) -> memoryview:
    return memoryview(bytearray(b"\xff" * (rows // 8 + 1)))


def _binary_room(rows: int, size: int) -> tuple[memoryview, memoryview, memoryview]:
    return _room(rows + 1, "i"), _all_valid(rows), _room(size, "B")


def _control_type(data: memoryview, entry: Entry) -> int:
    """The type in the key of the control record in `entry`, -1 if unreadable."""
    walk = RecordWalk(data)
    walk.begin(entry.position + layout.BATCH_OVERHEAD, entry.position + entry.size, 0, 0)
    try:
        walk.read_head()
        walk.read_pair()
    except InvalidRecords:
        return -1
    if walk.key_size < layout.CONTROL_KEY.size:
        return -1
    kind: int = layout.CONTROL_KEY.unpack_from(data, walk.key_at)[1]
    return kind

"""`Record`: one record of any magic as a value, and the records of a magic 2 batch as values.

For clients, tools, conversion and compaction. The broker's Produce and Fetch never use it: they
work on batches as bytes. Values are copies and may be kept.

With timestamp type LOG_APPEND_TIME a record's time is its batch's max timestamp, not the one in its
own bytes. Header names are text; bytes that are not UTF-8 survive a round trip (surrogateescape).

Source: Kafka `DefaultRecord`.
"""

from typing import Final, NamedTuple

from protocol.errors import InvalidRecords
from protocol.records import record_loops
from protocol.records.batch import RecordBatch
from protocol.records.checksums import Buffer
from protocol.records.compression import PIECES_MAX, decompress
from protocol.records.layout import (
    CONTROL_KEY,
    MIN_RECORD_BYTES,
    RECORDS_AT,
    ControlType,
    TimestampType,
)

DECOMPRESSED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Most bytes that one batch may decompress to, unless a caller sets another limit."""

Headers = tuple[tuple[str, bytes | None], ...]
Fields = tuple[int, int, bytes | None, bytes | None, Headers]
"""Those of `Record`, in its order."""


class Record(NamedTuple):
    """One record; a plain tuple because consumers make millions of them.

    Attributes:
        offset: logical position in its log; for records not built yet, see the builder.
        timestamp: ms since the epoch, or NO_TIMESTAMP.
        key: bytes, or None.
        value: bytes, or None, which marks a deletion in compacted topics.
        headers: (name, value) pairs in order; always empty in magic 0 and 1.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def record_bytes(
    batch: RecordBatch,
    *,
    max_bytes: int = DECOMPRESSED_BYTES_MAX,
    max_pieces: int = PIECES_MAX,
) -> tuple[Buffer, int, int]:
    """(buffer, start, end) of the batch's records in the clear; borrowed when uncompressed.

    Raises:
        CorruptRecords: the compressed data is broken.
        DecompressionLimitExceeded: it holds more than `max_bytes`, or in more than `max_pieces`.
        UnsupportedCompression: the codec number is undefined.
        InvalidRecords: the header counts more records than so many bytes can hold.
    """
    codec = batch.codec
    if codec:
        clear = decompress(codec, batch.payload, max_bytes=max_bytes, max_pieces=max_pieces)
        start, end = 0, len(clear)
    else:
        clear = batch.buffer
        start, end = batch.position + RECORDS_AT, batch.position + batch.size
    if not 0 <= batch.records_count * MIN_RECORD_BYTES <= end - start:
        raise InvalidRecords(f"{batch.records_count} records cannot lie in {end - start} bytes")
    return clear, start, end


def decode_batch(batch: RecordBatch, *, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> list[Record]:
    """The records of `batch`, control records included.

    Raises:
        RecordsError: as `record_bytes`, or a record is broken.
    """
    return list(map(Record._make, decode_fields(batch, max_bytes=max_bytes)))


def decode_fields(batch: RecordBatch, *, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> list[Fields]:
    """As `decode_batch`, for those who make other values of the fields: half of its time."""
    clear, start, end = record_bytes(batch, max_bytes=max_bytes)
    return record_loops.decode_records(
        clear,
        start,
        end,
        batch.records_count,
        batch.base_offset,
        batch.base_timestamp,
        batch.max_timestamp,
        batch.timestamp_type == TimestampType.LOG_APPEND_TIME,
    )


def control_type(record: Record) -> ControlType | None:
    """The type of the control record; None for a type newer than this code.

    Raises:
        InvalidRecords: the key is too short to hold a version and a type.
    """
    if record.key is None or len(record.key) < CONTROL_KEY.size:
        raise InvalidRecords("a control record needs a key of version and type")
    _, number = CONTROL_KEY.unpack_from(record.key)
    return ControlType(number) if number in ControlType.__members__.values() else None

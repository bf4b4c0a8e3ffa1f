"""Conversion to older magics, for consumers of Kafka 0.8 to 0.10; entry by entry on log bytes.

Records from producers of that time are converted when they are appended (`storage.append.plan`).

| entry                         | becomes                                              |
|-------------------------------|------------------------------------------------------|
| magic already at most target  | itself, byte for byte                                |
| control batch                 | nothing                                              |
| zstd batch                    | an error, if nothing was converted before it         |
| uncompressed batch            | one message per record at or above the fetch offset  |
| compressed batch              | one wrapper of all its records, same codec           |

The older formats lose headers and producer ids; magic 0 also every timestamp. A compressed batch
comes whole, as in magic 2, so a consumer skips the records below its offset.

Source: Kafka `RecordsUtil`; KIP-283 without its lazy sizes, since here the
converted size is known before anything is sent.
"""

from typing import NamedTuple

from protocol.errors import UnsupportedCompression
from protocol.records.batch import RecordBatch
from protocol.records.builder import build_message_set
from protocol.records.checksums import Buffer
from protocol.records.layout import MAGIC_V2, Codec
from protocol.records.legacy import Message, decode_message
from protocol.records.record import DECOMPRESSED_BYTES_MAX, Record, decode_batch
from protocol.records.scan import Entry, scan_entries


class Converted(NamedTuple):
    """The records for a reader of old formats, and their cost.

    Attributes:
        records: entries of the requested magic.
        opened_bytes: bytes of keys and values that had to be decoded.
    """

    records: bytes
    opened_bytes: int


def down_convert(
    buffer: Buffer,
    target_magic: int,
    fetch_offset: int,
    *,
    enough_bytes: int | None = None,
    max_bytes: int = DECOMPRESSED_BYTES_MAX,
) -> Converted:
    """The whole entries of `buffer` for a reader that knows nothing above `target_magic`.

    `fetch_offset` is the offset of that reader's fetch. Bytes that end inside an entry are dropped.
    No further entry is converted when `enough_bytes` have been opened: a compressed batch is small
    in the log whatever it contains. The result may be empty though `buffer` is not (control
    batches). Then the caller must continue with the bytes that follow, or the reader requests the
    same offset forever.

    Raises:
        UnsupportedCompression: the first entry to convert is zstd.
        RecordsError: an entry is broken.
    """
    parts: list[bytes] = []
    opened_bytes = 0
    view = memoryview(buffer)
    for entry in scan_entries(buffer):
        if enough_bytes is not None and opened_bytes >= enough_bytes and parts:
            break
        if entry.magic <= target_magic:
            parts.append(bytes(view[entry.position : entry.position + entry.size]))
        elif entry.magic == MAGIC_V2 and entry.is_control:
            continue
        elif entry.codec == Codec.ZSTD:
            if parts:
                break
            raise UnsupportedCompression("zstd cannot be sent to a reader of old formats")
        else:
            records = _open(buffer, entry, fetch_offset, max_bytes)
            opened_bytes += sum(len(r.key or b"") + len(r.value or b"") for r in records)
            parts.append(
                build_message_set(
                    records,
                    target_magic,
                    entry.codec,
                    timestamp_type=entry.timestamp_type,
                    append_timestamp=entry.max_timestamp,
                )
            )
    return Converted(b"".join(parts), opened_bytes)


def _open(buffer: Buffer, entry: Entry, fetch_offset: int, max_bytes: int) -> list[Record]:
    """The records of one entry of a higher magic that go to the reader."""
    if entry.magic == MAGIC_V2:
        records = decode_batch(RecordBatch(buffer, entry.position), max_bytes=max_bytes)
    else:
        records = decode_message(Message(buffer, entry.position), max_bytes=max_bytes)
    if entry.codec == Codec.NONE:
        records = [record for record in records if record.offset >= fetch_offset]
    return records

"""Records into magic 2 batches, one batch under construction for each partition.

Keeps the values that Spark's own sink drops: the record's own time, headers and partition. The
bytes of a record are written by `protocol.records.encode_loops`; this module adds the header, the
codec (`codecs`) and the checksum, and does not know the sender.

Source: Kafka `MemoryRecordsBuilder`.
"""

from collections.abc import Sequence

from pipeline.records import codecs
from protocol.records.checksums import crc32c
from protocol.records.encode_loops import encode_record
from protocol.records.layout import (
    ATTRIBUTES_AT,
    BATCH_OVERHEAD,
    CRC_AT,
    HEADER,
    LOG_OVERHEAD,
    MAGIC_V2,
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    UINT32,
)

Headers = Sequence[tuple[bytes, bytes | None]]


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

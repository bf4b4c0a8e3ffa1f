"""`RecordBatch`: a magic 2 batch seen in place, and the few bytes of it a broker may rewrite.

A batch is borrowed, never copied: the view remembers a buffer and a position and unpacks the
61-byte header once. It knows nothing of records (see `record`), other magics (see `legacy`) or
whether the content is allowed (see `storage.append.plan`).

Invariant: after any method that rewrites bytes, the unpacked attributes and the bytes agree, and
the CRC is right if it was right before. It rewrites only what Kafka's broker rewrites:

| method                 | bytes                    | under the CRC?        |
|------------------------|--------------------------|-----------------------|
| `stamp_position`       | 0-7 offset, 12-15 epoch  | no, so no CRC is spent|
| `stamp_timestamps`     | 21-22, 35-42, 17-20 crc  | yes, recomputed       |

Base timestamp and deltas always stay the producer's. With type LOG_APPEND_TIME every record
therefore *reads* the header's max timestamp, whatever its delta is.

Source: Kafka `DefaultRecordBatch` (setLastOffset, setPartitionLeaderEpoch, setMaxTimestamp).
"""

from typing import Final

from protocol.errors import CorruptRecords
from protocol.records import layout
from protocol.records.checksums import Buffer, crc32c
from protocol.records.entry import codec_of

_KNOWN_FLAGS: Final = (
    layout.CODEC_MASK
    | layout.TIMESTAMP_TYPE_BIT
    | layout.TRANSACTIONAL_BIT
    | layout.CONTROL_BIT
    | layout.DELETE_HORIZON_BIT
)


class RecordBatch:
    """A magic 2 batch inside a borrowed buffer.

    The buffer must outlive the view and must be writable for the `stamp_*` methods. Not
    thread-safe. The header is read once: the view does not see later writes to it by others.

    Attributes:
        buffer: the memory that holds the batch; `position` is where in it the batch starts.
        size: bytes of the whole batch, header included.
        base_offset: offset of the first record.
        last_offset_delta: `last_offset` minus `base_offset`.
        base_timestamp: ms that the records' deltas count from, or the delete horizon.
        max_timestamp: ms as the header claims; reliable only in a batch written by a broker.
        records_count: the header's count, not verified here.
    """

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "buffer",
        "crc",
        "last_offset_delta",
        "magic",
        "max_timestamp",
        "partition_leader_epoch",
        "position",
        "producer_epoch",
        "producer_id",
        "records_count",
        "size",
    )

    def __init__(self, buffer: Buffer, position: int = 0) -> None:
        """Unpack the header at `position`.

        Raises:
            CorruptRecords: fewer than 61 bytes are there, the magic is not 2, or the size field
                is below a header's size or runs past the end of `buffer`.
        """
        available = len(buffer) - position
        if available < layout.BATCH_OVERHEAD:
            raise CorruptRecords(
                f"a batch header needs {layout.BATCH_OVERHEAD} bytes, found {available}"
            )
        self.buffer = buffer
        self.position = position
        self.base_offset: int
        self.partition_leader_epoch: int
        self.magic: int
        self.crc: int
        self.attributes: int
        self.last_offset_delta: int
        self.base_timestamp: int
        self.max_timestamp: int
        self.producer_id: int
        self.producer_epoch: int
        self.base_sequence: int
        self.records_count: int
        (
            self.base_offset,
            size,
            self.partition_leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.records_count,
        ) = layout.HEADER.unpack_from(buffer, position)
        self.size: int = size + layout.LOG_OVERHEAD
        if self.magic != layout.MAGIC_V2:
            raise CorruptRecords(
                f"byte {layout.MAGIC_AT} of a batch must be magic 2, found {self.magic}"
            )
        if not layout.BATCH_OVERHEAD <= self.size <= available:
            raise CorruptRecords(
                f"batch of {self.size} bytes is outside {layout.BATCH_OVERHEAD}..{available}"
            )

    def __repr__(self) -> str:
        """One line for logs and assertion messages; no payload."""
        return (
            f"RecordBatch(offsets {self.base_offset}..{self.last_offset}, {self.records_count} "
            f"records, {self.size} bytes, attributes {self.attributes:#x}, "
            f"max_timestamp {self.max_timestamp})"
        )

    @property
    def last_offset(self) -> int:
        """Offset of the last record (inclusive); compaction keeps it when records vanish."""
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> layout.Codec:
        """How the records are compressed; raises UnsupportedCompression for numbers 5 to 7."""
        return codec_of(self.attributes)

    @property
    def timestamp_type(self) -> layout.TimestampType:
        """Whether the records carry the producer's time or all the broker's."""
        if self.attributes & layout.TIMESTAMP_TYPE_BIT:
            return layout.TimestampType.LOG_APPEND_TIME
        return layout.TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """Part of a transaction (data or marker)."""
        return bool(self.attributes & layout.TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Holds one control record that clients skip."""
        return bool(self.attributes & layout.CONTROL_BIT)

    @property
    def has_producer_id(self) -> bool:
        """Written by an idempotent or transactional producer."""
        return self.producer_id > layout.NO_PRODUCER_ID

    @property
    def bytes(self) -> memoryview:
        """The whole batch, borrowed."""
        return memoryview(self.buffer)[self.position : self.position + self.size]

    @property
    def payload(self) -> memoryview:
        """Everything after the header, borrowed: the records, or their compressed blob."""
        return memoryview(self.buffer)[
            self.position + layout.RECORDS_AT : self.position + self.size
        ]

    def compute_crc(self) -> int:
        """CRC-32C of the batch as its bytes are now."""
        covered = memoryview(self.buffer)[
            self.position + layout.ATTRIBUTES_AT : self.position + self.size
        ]
        return crc32c(covered)

    def crc_ok(self) -> bool:
        """Whether the header's CRC is that of the bytes; one pass over the batch, no copy."""
        return self.compute_crc() == self.crc

    def stamp_position(self, base_offset: int, leader_epoch: int) -> None:
        """Set the batch's position in the log; both fields are outside the CRC."""
        assert base_offset >= 0, "offsets of a log start at 0"
        layout.INT64.pack_into(self.buffer, self.position + layout.OFFSET_AT, base_offset)
        layout.INT32.pack_into(self.buffer, self.position + layout.LEADER_EPOCH_AT, leader_epoch)
        self.base_offset = base_offset
        self.partition_leader_epoch = leader_epoch

    def stamp_timestamps(self, timestamp_type: layout.TimestampType, max_timestamp: int) -> bool:
        """Set the type bit and the max timestamp (ms); True if bytes had to change.

        Changes nothing when both are already set. Otherwise the attributes are rebuilt from the
        known flags (unknown bits are dropped, as in Kafka) and the CRC is recomputed.
        """
        if max_timestamp == self.max_timestamp and timestamp_type == self.timestamp_type:
            return False
        attributes = self.attributes & _KNOWN_FLAGS & ~layout.TIMESTAMP_TYPE_BIT
        if timestamp_type == layout.TimestampType.LOG_APPEND_TIME:
            attributes |= layout.TIMESTAMP_TYPE_BIT
        layout.INT16.pack_into(self.buffer, self.position + layout.ATTRIBUTES_AT, attributes)
        layout.INT64.pack_into(self.buffer, self.position + layout.MAX_TIMESTAMP_AT, max_timestamp)
        self.attributes = attributes
        self.max_timestamp = max_timestamp
        self.crc = self.compute_crc()
        layout.UINT32.pack_into(self.buffer, self.position + layout.CRC_AT, self.crc)
        return True

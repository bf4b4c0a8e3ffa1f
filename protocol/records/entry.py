"""`Entry`: the header of one entry of any magic, as numbers.

The one value for a header from here to the indexes: the scan of a log yields it, the append plans
with it, the segment and the map of producers are fed with it, a lookup and the pipeline decide by
it. `entry_loops` reads the numbers out of the bytes; rewriting bytes is `batch` and `legacy`.
"""

from typing import Final, NamedTuple

from protocol.errors import UnsupportedCompression
from protocol.records.layout import (
    CODEC_MASK,
    CONTROL_BIT,
    INT32_MAX,
    MAGIC_V0,
    MAGIC_V2,
    NO_SEQUENCE,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    Codec,
    TimestampType,
)

_CODECS: Final = tuple(Codec)


def advance_sequence(sequence: int, records: int) -> int:
    """The sequence number `records` after `sequence`; numbers wrap from 2^31-1 to 0.

    Source: Kafka `DefaultRecordBatch.incrementSequence`.
    """
    if sequence > INT32_MAX - records:
        return records - (INT32_MAX - sequence) - 1
    return sequence + records


def codec_of(attributes: int) -> Codec:
    """The codec in bits 0-2 of `attributes`.

    Raises:
        UnsupportedCompression: the number is 5, 6 or 7, which are undefined.
    """
    number = attributes & CODEC_MASK
    if number >= len(_CODECS):
        raise UnsupportedCompression(f"codec number {number} is not defined")
    return _CODECS[number]


class Entry(NamedTuple):
    """The header of one entry, as numbers; a plain tuple because recovery makes millions.

    Fields that magic 0 and 1 do not have are -1.

    Attributes:
        position: byte position in the scanned buffer.
        size: bytes, header included.
        magic: 0, 1 or 2.
        base_offset: first offset; of a magic 0 or 1 wrapper the *last* one, because the first is
            known only after decompression.
        last_offset: last offset, inclusive.
        max_timestamp: ms from the header, -1 in magic 0.
        attributes: the low byte.
        partition_leader_epoch: the leader epoch stamped at append.
        base_timestamp: ms.
        producer_id: of an idempotent producer.
        producer_epoch: its epoch.
        base_sequence: sequence number of the first record.
        records_count: records that the header counts.
    """

    position: int
    size: int
    magic: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    attributes: int
    partition_leader_epoch: int
    base_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def next_offset(self) -> int:
        """The first offset after the entry."""
        return self.last_offset + 1

    @property
    def codec(self) -> Codec:
        """How the records are compressed; raises UnsupportedCompression for undefined numbers."""
        return codec_of(self.attributes)

    @property
    def timestamp_type(self) -> TimestampType:
        """Who stamped the records."""
        if self.magic == MAGIC_V0:
            return TimestampType.NO_TIMESTAMP_TYPE
        if self.attributes & TIMESTAMP_TYPE_BIT:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """Part of a transaction (data or marker)."""
        return self.magic == MAGIC_V2 and bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Holds a control record."""
        return self.magic == MAGIC_V2 and bool(self.attributes & CONTROL_BIT)

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record, or NO_SEQUENCE; wraps at 2^31-1."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return advance_sequence(self.base_sequence, self.last_offset - self.base_offset)

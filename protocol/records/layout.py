"""The record formats as numbers: the position, width and bits of each field.

This module owns every constant of Kafka's three record formats and nothing else. It reads no
buffer, decides nothing and imports no module of Tidelog. Every other module of this package (and of
`storage`) takes positions from here, so a layout is stated exactly once.

All integers are big-endian. Every format starts with the same frame, and the magic byte lies at
the same place in all of them::

    0        8       12                16      17
    +--------+--------+-----------------+-------+----
    | offset | size   | crc or epoch    | magic | ...      size counts the bytes after byte 12
    +--------+--------+-----------------+-------+----

Magic 0 and 1, one entry is one message:

| at | magic 0                      | magic 1                                     |
|----|------------------------------|---------------------------------------------|
| 12 | crc32 u32 over [16, end)     | same                                        |
| 16 | magic i8                     | same                                        |
| 17 | attributes i8, bits 0-2 codec| same, and bit 3 the timestamp type          |
| 18 | key length i32 (-1: null)    | timestamp i64                               |
| .. | key, value length i32, value | 26: key length i32, key, value length, value|

Magic 2, one entry is one batch; `HEADER` unpacks all of its 61 bytes:

| at | field                    | at | field                          |
|----|--------------------------|----|--------------------------------|
| 0  | base offset i64          | 27 | base timestamp i64             |
| 8  | size i32 (total - 12)    | 35 | max timestamp i64              |
| 12 | partition leader epoch   | 43 | producer id i64                |
| 16 | magic i8 = 2             | 51 | producer epoch i16             |
| 17 | crc32c u32 over [21, end)| 53 | base sequence i32              |
| 21 | attributes i16           | 57 | records count i32              |
| 23 | last offset delta i32    | 61 | records, or one compressed blob|

Source: KIP-32 (timestamps), KIP-98 (magic 2), Kafka `LegacyRecord`, `DefaultRecordBatch`.
"""

from enum import IntEnum
from struct import Struct
from typing import Final

NO_TIMESTAMP: Final = -1
NO_OFFSET: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_LEADER_EPOCH: Final = -1

MAGIC_V0: Final = 0
MAGIC_V1: Final = 1
MAGIC_V2: Final = 2

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
INT64_MIN: Final = -(2**63)


class TimestampType(IntEnum):
    """Who put the timestamp on a record: the producer, or the broker as it appended."""

    NO_TIMESTAMP_TYPE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class Codec(IntEnum):
    """The compression codecs by their wire numbers (bits 0-2 of the attributes)."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


# The frame that every magic shares.
OFFSET_AT: Final = 0
SIZE_AT: Final = 8
LOG_OVERHEAD: Final = 12
"""Bytes before those that the size field counts."""
MAGIC_AT: Final = 16

# Attribute bits.
CODEC_MASK: Final = 0x07
TIMESTAMP_TYPE_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

# Magic 0 and 1.
LEGACY_CRC_AT: Final = 12
V0_KEY_SIZE_AT: Final = 18
V1_KEY_SIZE_AT: Final = 26
V0_MIN_SIZE: Final = 14
"""The least value of a size field in any magic: a magic 0 message without key and value."""
V1_MIN_SIZE: Final = 22
V0_OVERHEAD: Final = LOG_OVERHEAD + V0_MIN_SIZE
V1_OVERHEAD: Final = LOG_OVERHEAD + V1_MIN_SIZE

# Magic 2.
LEADER_EPOCH_AT: Final = 12
CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21
LAST_OFFSET_DELTA_AT: Final = 23
BASE_TIMESTAMP_AT: Final = 27
MAX_TIMESTAMP_AT: Final = 35
PRODUCER_ID_AT: Final = 43
PRODUCER_EPOCH_AT: Final = 51
BASE_SEQUENCE_AT: Final = 53
RECORDS_COUNT_AT: Final = 57
RECORDS_AT: Final = 61
BATCH_OVERHEAD: Final = 61
"""Bytes of a magic 2 batch header, which is also the least size of a batch."""
MIN_RECORD_BYTES: Final = 7
"""Least bytes of one magic 2 record: its length, attributes, four varints and a header count."""

INT16: Final = Struct(">h")
INT32: Final = Struct(">i")
UINT32: Final = Struct(">I")
INT64: Final = Struct(">q")

HEADER: Final = Struct(">qiibIhiqqqhii")
"""base offset, size, leader epoch, magic, crc, attributes, last offset delta, base timestamp,
max timestamp, producer id, producer epoch, base sequence, records count."""

CRC_COVERED_HEADER: Final = Struct(">hiqqqhii")
"""The part of `HEADER` after the CRC and covered by it, from byte 21 to 61."""

V0_HEADER: Final = Struct(">qiIbb")
"""offset, size, crc, magic, attributes."""

V1_HEADER: Final = Struct(">qiIbbq")
"""offset, size, crc, magic, attributes, timestamp."""

assert HEADER.size == BATCH_OVERHEAD
assert CRC_COVERED_HEADER.size == BATCH_OVERHEAD - ATTRIBUTES_AT


class ControlType(IntEnum):
    """The type of a control record (its key holds an i16 version and this i16 type)."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


CONTROL_KEY: Final = Struct(">hh")
"""version, control type."""

END_TXN_VALUE: Final = Struct(">hi")
"""version, coordinator epoch."""

"""Magic 0 and 1: one message in place, messages as records, and wrapper messages.

Owns the message formats of Kafka 0.8 to 0.10. A *message* is an entry of its own. A *wrapper* is
a message whose attributes name a codec: its value, decompressed, is a set of *inner messages*.

| rule                        | magic 0             | magic 1                               |
|-----------------------------|---------------------|---------------------------------------|
| inner offsets               | absolute            | relative: 0, 1, 2, ... of the wrapper |
| the wrapper's offset        | of the last inner   | of the last inner; 0 counts from 0    |
| the wrapper's timestamp     | none                | the largest inner, or the append time |
| an inner message's time     | none                | its own, or the wrapper's if bit 3    |

"0 counts from 0": some producers leave a wrapper's offset 0; its inner offsets are then absolute.
An inner message must not be compressed itself, and a wrapper must hold at least one.

Source: Kafka `LegacyRecord`, `AbstractLegacyRecordBatch`; KIP-31, KIP-32.
"""

from protocol.errors import CorruptRecords, InvalidRecords, UnsupportedCompression
from protocol.records import entry_loops, layout
from protocol.records.checksums import Buffer, crc32
from protocol.records.compression import PIECES_MAX, compress, decompress
from protocol.records.entry import codec_of
from protocol.records.record import DECOMPRESSED_BYTES_MAX, Record


class Message:
    """A magic 0 or 1 message inside a borrowed buffer, plain or wrapper.

    The buffer must outlive the view.

    Attributes:
        buffer: the memory; `position` is where in it the message starts, `size` its bytes.
        offset: the offset field: of the message, or of a wrapper's last inner message.
        magic: 0 or 1.
        crc: the CRC field.
        attributes: codec and, in magic 1, the timestamp type.
        timestamp: ms, or NO_TIMESTAMP (always in magic 0).
    """

    __slots__ = (
        "_key_at", "attributes", "buffer", "crc", "magic", "offset", "position", "size",
        "timestamp",
    )  # fmt: skip

    def __init__(self, buffer: Buffer, position: int = 0) -> None:
        """Unpack the fixed fields at `position`.

        Raises:
            CorruptRecords: too few bytes for the header or the claimed size, or magic not 0 or 1.
        """
        available = len(buffer) - position
        magic = buffer[position + layout.MAGIC_AT] if available > layout.MAGIC_AT else -1
        overhead = layout.V1_OVERHEAD if magic == layout.MAGIC_V1 else layout.V0_OVERHEAD
        if magic not in (layout.MAGIC_V0, layout.MAGIC_V1) or available < overhead:
            raise CorruptRecords(f"{available} bytes hold no message of magic 0 or 1")
        self.buffer = buffer
        self.position = position
        self.magic = magic
        self.offset: int
        self.crc: int
        self.attributes: int
        self.timestamp: int = layout.NO_TIMESTAMP
        if magic == layout.MAGIC_V0:
            self.offset, size, self.crc, _, self.attributes = layout.V0_HEADER.unpack_from(
                buffer, position
            )
            self._key_at = position + layout.V0_KEY_SIZE_AT
        else:
            (
                self.offset, size, self.crc, _, self.attributes, self.timestamp,
            ) = layout.V1_HEADER.unpack_from(buffer, position)  # fmt: skip
            self._key_at = position + layout.V1_KEY_SIZE_AT
        self.size: int = size + layout.LOG_OVERHEAD
        if not overhead <= self.size <= available:
            raise CorruptRecords(f"message of {self.size} bytes is outside {overhead}..{available}")

    @property
    def codec(self) -> layout.Codec:
        """The codec of a wrapper, NONE for a plain message.

        Raises:
            UnsupportedCompression: zstd, which these formats never had, or an undefined number.
        """
        codec = codec_of(self.attributes)
        if codec == layout.Codec.ZSTD:
            raise UnsupportedCompression("zstd does not exist in message formats 0 and 1")
        return codec

    @property
    def is_wrapper(self) -> bool:
        """Whether the value is a compressed set of inner messages."""
        return bool(self.attributes & layout.CODEC_MASK)

    @property
    def timestamp_type(self) -> layout.TimestampType:
        """Who stamped the message; magic 0 has no time at all."""
        if self.magic == layout.MAGIC_V0:
            return layout.TimestampType.NO_TIMESTAMP_TYPE
        if self.attributes & layout.TIMESTAMP_TYPE_BIT:
            return layout.TimestampType.LOG_APPEND_TIME
        return layout.TimestampType.CREATE_TIME

    @property
    def key(self) -> memoryview | None:
        """The key, borrowed; raises CorruptRecords when it leaves the message."""
        return self._field(self._key_at)[0]

    @property
    def value(self) -> memoryview | None:
        """The value, borrowed; raises CorruptRecords when it does not end the message."""
        value, end = self._field(self._field(self._key_at)[1])
        if end != self.position + self.size:
            raise CorruptRecords("a message's value does not end where the message does")
        return value

    def _field(self, position: int) -> tuple[memoryview | None, int]:
        """(bytes or None, position after it) of the length-prefixed field at `position`."""
        end = self.position + self.size
        if position + layout.INT32.size > end:
            raise CorruptRecords("a message ends inside a length")
        (size,) = layout.INT32.unpack_from(self.buffer, position)
        start = position + layout.INT32.size
        if size < 0:
            return None, start
        if size > end - start:
            raise CorruptRecords(f"{size} bytes of key or value in {end - start}")
        return memoryview(self.buffer)[start : start + size], start + size

    def crc_ok(self) -> bool:
        """Whether the CRC-32 field is that of the bytes."""
        view = memoryview(self.buffer)
        return crc32(view[self.position + layout.MAGIC_AT : self.position + self.size]) == self.crc

    def inner_bytes(
        self, *, max_bytes: int = DECOMPRESSED_BYTES_MAX, max_pieces: int = PIECES_MAX
    ) -> Buffer:
        """The inner message set of a wrapper, decompressed.

        Raises:
            InvalidRecords: the wrapper's value is null.
            CorruptRecords: the compressed data is broken.
            DecompressionLimitExceeded: it holds more than `max_bytes`, or in more than
                `max_pieces`.
        """
        value = self.value
        if value is None:
            raise InvalidRecords("a wrapper message has no value")
        legacy_lz4 = self.magic == layout.MAGIC_V0
        return decompress(
            self.codec, value, max_bytes=max_bytes, legacy_lz4=legacy_lz4, max_pieces=max_pieces
        )


def decode_message(message: Message, *, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> list[Record]:
    """The record of a plain message, or those inside a wrapper, with absolute offsets.

    Raises:
        RecordsError: the message, its compression or an inner message is broken.
    """
    if not message.is_wrapper:
        return [_record(message, message.offset, message.timestamp)]
    clear = message.inner_bytes(max_bytes=max_bytes)
    positions = entry_loops.message_positions(clear, 0, len(clear))
    if not positions:
        raise InvalidRecords("a wrapper message holds no messages")
    shift = _inner_offset_shift(message, positions[-1][2])
    stamped = message.timestamp_type == layout.TimestampType.LOG_APPEND_TIME
    records = []
    for position, _, offset, timestamp, _ in positions:
        inner = Message(clear, position)
        if inner.is_wrapper:
            raise InvalidRecords("an inner message is compressed itself")
        if inner.magic != message.magic:
            raise InvalidRecords(f"an inner message has magic {inner.magic}, not {message.magic}")
        records.append(_record(inner, offset + shift, message.timestamp if stamped else timestamp))
    return records


def _record(message: Message, offset: int, timestamp: int) -> Record:
    """A message that is no wrapper as a record, which owns its bytes."""
    key, value = message.key, message.value
    return Record(
        offset,
        timestamp,
        None if key is None else bytes(key),
        None if value is None else bytes(value),
    )


def _inner_offset_shift(wrapper: Message, last_inner: int) -> int:
    """The number to add to an inner offset to get the absolute one.

    Raises:
        InvalidRecords: a magic 1 wrapper's offset is below its last inner one and is not 0.
    """
    if wrapper.magic == layout.MAGIC_V0 or wrapper.offset == 0:
        return 0
    if wrapper.offset < last_inner:
        raise InvalidRecords(f"wrapper offset {wrapper.offset} is below inner offset {last_inner}")
    return wrapper.offset - last_inner


def encode_message(
    magic: int,
    offset: int,
    timestamp: int,
    key: Buffer | None,
    value: Buffer | None,
    attributes: int = 0,
) -> bytes:
    """One message of magic 0 (`timestamp` ignored) or 1 with its CRC."""
    body = _nullable(key) + _nullable(value)
    if magic == layout.MAGIC_V0:
        size = layout.V0_KEY_SIZE_AT - layout.LOG_OVERHEAD + len(body)
        out = bytearray(layout.V0_HEADER.pack(offset, size, 0, magic, attributes))
    else:
        size = layout.V1_KEY_SIZE_AT - layout.LOG_OVERHEAD + len(body)
        out = bytearray(layout.V1_HEADER.pack(offset, size, 0, magic, attributes, timestamp))
    out += body
    layout.UINT32.pack_into(out, layout.LEGACY_CRC_AT, crc32(memoryview(out)[layout.MAGIC_AT :]))
    return bytes(out)


def _nullable(value: Buffer | None) -> bytes:
    """`value` with its i32 length; -1 for None."""
    return layout.INT32.pack(-1) if value is None else layout.INT32.pack(len(value)) + bytes(value)


def encode_wrapper(
    magic: int,
    records: list[Record],
    codec: layout.Codec,
    *,
    level: int | None = None,
    timestamp_type: layout.TimestampType = layout.TimestampType.CREATE_TIME,
    append_timestamp: int = layout.NO_TIMESTAMP,
) -> bytes:
    """A wrapper message around `records`, whose offsets are absolute and ascending.

    With LOG_APPEND_TIME wrapper and inner messages carry bit 3 and the wrapper
    `append_timestamp` (ms). Headers are dropped, the format has none.
    """
    assert records, "a wrapper holds at least one message"
    is_v1 = magic == layout.MAGIC_V1
    stamped = is_v1 and timestamp_type == layout.TimestampType.LOG_APPEND_TIME
    bit = layout.TIMESTAMP_TYPE_BIT if stamped else 0
    base = records[0].offset if is_v1 else 0
    inner = b"".join(
        encode_message(magic, record.offset - base, record.timestamp, record.key, record.value, bit)
        for record in records
    )
    timestamp = append_timestamp if stamped else max(record.timestamp for record in records)
    blob = compress(codec, inner, level, legacy_lz4=not is_v1)
    return encode_message(magic, records[-1].offset, timestamp, None, blob, codec | bit)

"""Bytes from records: magic 2 batches, message sets of magic 0 and 1, transaction markers.

Used by the client, by conversion and compaction, and by the broker for its own topics. It always
builds into fresh memory and has no limits: the caller decides how large a batch may become.

Invariant: a built batch passes every check of `storage.append.plan` on a client's batch, as long as
the timestamps are -1 or more. The base timestamp is that of the first record, as in Kafka's
builder, so equal records give equal bytes.

Source: Kafka `MemoryRecordsBuilder`, `EndTransactionMarker`.
"""

from collections.abc import Iterable, Sequence

from protocol.records import layout
from protocol.records.batch import RecordBatch
from protocol.records.checksums import Buffer, crc32c
from protocol.records.compression import compress
from protocol.records.encode_loops import encode_record
from protocol.records.legacy import encode_message, encode_wrapper
from protocol.records.record import Record


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    codec: layout.Codec = layout.Codec.NONE,
    level: int | None = None,
    timestamp_type: layout.TimestampType = layout.TimestampType.CREATE_TIME,
    append_timestamp: int = layout.NO_TIMESTAMP,
    producer_id: int = layout.NO_PRODUCER_ID,
    producer_epoch: int = layout.NO_PRODUCER_EPOCH,
    base_sequence: int = layout.NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
    leader_epoch: int = layout.NO_LEADER_EPOCH,
    keep_offsets: bool = False,
) -> bytes:
    """One magic 2 batch of `records` with a valid CRC.

    Records get the offsets `base_offset`, +1, +2, ...; their own are used only with
    `keep_offsets` (ascending, not below `base_offset`). With LOG_APPEND_TIME the batch's max
    timestamp is `append_timestamp` (ms), which is what readers report for every record.
    """
    assert records, "a batch that is built holds at least one record"
    base_timestamp = records[0].timestamp
    max_timestamp = layout.NO_TIMESTAMP
    body = bytearray()
    delta = -1
    for index, record in enumerate(records):
        delta = record.offset - base_offset if keep_offsets else index
        headers = [
            (name.encode("utf-8", "surrogateescape"), value) for name, value in record.headers
        ]
        timestamp_delta = record.timestamp - base_timestamp
        if not layout.INT64_MIN <= timestamp_delta <= layout.INT64_MAX:
            # Readers add modulo 2^64, so the distance is written modulo 2^64.
            timestamp_delta += -(2**64) if timestamp_delta > 0 else 2**64
        encode_record(body, delta, timestamp_delta, record.key, record.value, headers)
        max_timestamp = max(max_timestamp, record.timestamp)
    attributes = int(codec)
    if timestamp_type == layout.TimestampType.LOG_APPEND_TIME:
        attributes |= layout.TIMESTAMP_TYPE_BIT
        max_timestamp = append_timestamp
    attributes |= layout.TRANSACTIONAL_BIT if is_transactional else 0
    attributes |= layout.CONTROL_BIT if is_control else 0
    return assemble_batch(
        compress(codec, body, level) if codec else body,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=attributes,
        last_offset_delta=delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer=(producer_id, producer_epoch, base_sequence),
        records_count=len(records),
    )


def assemble_batch(
    payload: Buffer,
    *,
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer: tuple[int, int, int],
    records_count: int,
) -> bytes:
    """`payload`, already encoded and compressed, after a header with a valid CRC.

    `producer` is (id, epoch, base sequence).
    """
    size = layout.BATCH_OVERHEAD - layout.LOG_OVERHEAD + len(payload)
    out = bytearray(
        layout.HEADER.pack(
            base_offset, size, leader_epoch, layout.MAGIC_V2, 0, attributes, last_offset_delta,
            base_timestamp, max_timestamp, *producer, records_count,
        )
    )  # fmt: skip
    out += payload
    layout.UINT32.pack_into(out, layout.CRC_AT, crc32c(memoryview(out)[layout.ATTRIBUTES_AT :]))
    return bytes(out)


def rebuild_batch(
    batch: RecordBatch,
    payload: Buffer,
    *,
    records_count: int,
    max_timestamp: int,
    attributes: int,
    base_timestamp: int,
) -> bytes:
    """`batch` with other records: `payload` is encoded, and compressed as `attributes` say.

    Offsets, leader epoch and producer stay, so that a reader moves on as over the whole batch.
    """
    return assemble_batch(
        payload,
        base_offset=batch.base_offset,
        leader_epoch=batch.partition_leader_epoch,
        attributes=attributes,
        last_offset_delta=batch.last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer=(batch.producer_id, batch.producer_epoch, batch.base_sequence),
        records_count=records_count,
    )


def build_empty_batch(first_offset: int, next_offset: int) -> bytes:
    """A batch without records that covers the offsets from the first up to below the second.

    Compaction leaves such batches too; every client skips them.
    """
    return assemble_batch(
        b"",
        base_offset=first_offset,
        leader_epoch=layout.NO_LEADER_EPOCH,
        attributes=0,
        last_offset_delta=next_offset - first_offset - 1,
        base_timestamp=layout.NO_TIMESTAMP,
        max_timestamp=layout.NO_TIMESTAMP,
        producer=(layout.NO_PRODUCER_ID, layout.NO_PRODUCER_EPOCH, layout.NO_SEQUENCE),
        records_count=0,
    )


def build_message_set(
    records: Iterable[Record],
    magic: int,
    codec: layout.Codec = layout.Codec.NONE,
    *,
    level: int | None = None,
    timestamp_type: layout.TimestampType = layout.TimestampType.CREATE_TIME,
    append_timestamp: int = layout.NO_TIMESTAMP,
) -> bytes:
    """Messages of magic 0 or 1 with the records' own offsets: a plain set, or one wrapper.

    With LOG_APPEND_TIME messages of magic 1 carry bit 3 and `append_timestamp` (ms). Headers are
    dropped, these formats have none. No records give no bytes.
    """
    if codec:
        whole = list(records)
        if not whole:
            return b""
        return encode_wrapper(
            magic,
            whole,
            codec,
            level=level,
            timestamp_type=timestamp_type,
            append_timestamp=append_timestamp,
        )
    stamped = magic > 0 and timestamp_type == layout.TimestampType.LOG_APPEND_TIME
    return b"".join(
        encode_message(
            magic,
            record.offset,
            append_timestamp if stamped else record.timestamp,
            record.key,
            record.value,
            layout.TIMESTAMP_TYPE_BIT if stamped else 0,
        )
        for record in records
    )


def build_end_txn_marker(
    *,
    commit: bool,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    coordinator_epoch: int = 0,
    base_offset: int = 0,
    leader_epoch: int = layout.NO_LEADER_EPOCH,
) -> bytes:
    """The 78-byte control batch that ends a producer's transaction in one partition."""
    kind = layout.ControlType.COMMIT if commit else layout.ControlType.ABORT
    marker = Record(
        base_offset,
        timestamp_ms,
        layout.CONTROL_KEY.pack(0, kind),
        layout.END_TXN_VALUE.pack(0, coordinator_epoch),
    )
    return build_batch(
        [marker],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
        leader_epoch=leader_epoch,
    )
